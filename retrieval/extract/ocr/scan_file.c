/* retrieval/extract/ocr/scan_file.c: the only file that includes leptonica. See scan_file.h. */
#include "retrieval/extract/ocr/scan_file.h"

#include <dlfcn.h>
#include <leptonica/allheaders.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/extract/ocr/exif.h"

enum { MOST_PAGES = 10000 };

#define FUNCTIONS(X) \
    X(setMsgSeverity) \
    X(findFileFormatBuffer) \
    X(pixReadHeaderMem) \
    X(readHeaderMemTiff) \
    X(pixReadMem) \
    X(pixReadMemJpeg) \
    X(pixReadMemTiff) \
    X(pixRemoveAlpha) \
    X(pixConvertTo8) \
    X(pixEndianByteSwap) \
    X(pixGetData) \
    X(pixGetWpl) \
    X(pixGetWidth) \
    X(pixGetHeight) \
    X(pixGetXRes) \
    X(pixGetYRes) \
    X(pixDestroy)

#define AS_FIELD(name) __typeof__(&name) name;
static struct {
    void *library; /* NULL: not open */
    FUNCTIONS(AS_FIELD)
} lept;

static bool find_functions(void) {
#define FIND(name) \
    *(void **)&lept.name = dlsym(lept.library, #name); \
    if (lept.name == NULL) return false;
    FUNCTIONS(FIND)
    return true;
}

/* Leptonica's interface is called the fifth in Debian 12 and the sixth in Debian 13, whose library
 * has another name, too; what is used here is in both. */
static void *open_leptonica(void) {
    void *library = dlopen("liblept.so.5", RTLD_NOW | RTLD_LOCAL);
    return library ? library : dlopen("libleptonica.so.6", RTLD_NOW | RTLD_LOCAL);
}

enum status scan_open_library(struct error *e) {
    if (lept.library) return STATUS_OK;
    lept.library = open_leptonica();
    if (lept.library == NULL || !find_functions()) {
        const char *reason = dlerror();
        lept.library = NULL;
        return error_set(e, STATUS_UNSUPPORTED,
                         "OCR is not installed: package tesseract-ocr "
                         "(needs liblept.so.5 or libleptonica.so.6: %s)",
                         reason ? reason : "");
    }
    lept.setMsgSeverity(L_SEVERITY_NONE);
    return STATUS_OK;
}

/* The pages of a TIFF are a list: each ends with the place of the next. */

struct tiff {
    struct text_span file;
    bool big_endian, large; /* large: BigTIFF, of 64 bits */
};

static uint64_t read_number(const struct tiff *tiff, size_t at, int size) {
    uint64_t number = 0;
    for (int i = 0; i < size; i++) {
        int shift = 8 * (tiff->big_endian ? size - 1 - i : i);
        number |= (uint64_t)(unsigned char)tiff->file.text[at + (size_t)i] << shift;
    }
    return number;
}

/* The place of the list's next page behind the one at `at`; 0: it was the last, or is cut off. */
static uint64_t next_page(const struct tiff *tiff, uint64_t at) {
    int head = tiff->large ? 8 : 2, entry = tiff->large ? 20 : 12, place = tiff->large ? 8 : 4;
    if (at > tiff->file.size || tiff->file.size - at < (size_t)head) return 0;
    uint64_t n = read_number(tiff, (size_t)at, head);
    if (n > tiff->file.size / (size_t)entry) return 0;
    uint64_t end = at + (uint64_t)head + n * (uint64_t)entry;
    if (end > tiff->file.size || tiff->file.size - end < (size_t)place) return 0;
    return read_number(tiff, (size_t)end, place);
}

int scan_count_pages(struct text_span file) {
    struct tiff tiff = {.file = file};
    bool little = file.size >= 16 && memcmp(file.text, "II", 2) == 0;
    tiff.big_endian = file.size >= 16 && memcmp(file.text, "MM", 2) == 0;
    if (!little && !tiff.big_endian) return 1;
    uint64_t version = read_number(&tiff, 2, 2);
    if (version != 42 && version != 43) return 1;
    tiff.large = version == 43;
    uint64_t at = tiff.large ? read_number(&tiff, 8, 8) : read_number(&tiff, 4, 4);
    int n = 0;
    while (at > 0 && at < file.size && n < MOST_PAGES) {
        n++;
        at = next_page(&tiff, at);
    }
    return n > 0 ? n : 1;
}

/* Pixels. */

struct header {
    int format, width, height, bits, samples, is_mapped;
};

static bool read_header(struct text_span file, int i, struct header *header) {
    const l_uint8 *bytes = (const l_uint8 *)file.text;
    int resolution, map;
    if (lept.findFileFormatBuffer(bytes, &header->format)) return false;
    bool tiff = header->format >= IFF_TIFF && header->format <= IFF_TIFF_ZIP;
    if (tiff || header->format == IFF_TIFF_JPEG)
        return lept.readHeaderMemTiff(bytes, file.size, i, &header->width, &header->height,
                                      &header->bits, &header->samples, &resolution, &map,
                                      &header->format) == 0;
    return lept.pixReadHeaderMem(bytes, file.size, &header->format, &header->width, &header->height,
                                 &header->bits, &header->samples, &header->is_mapped) == 0;
}

/* Bytes that decoding takes, and the picture in grey; a JPEG may be read at a half, a quarter, an
 * eighth of its size. */
static double count_bytes(const struct header *header, int reduction) {
    double pixels = (double)header->width * header->height / ((double)reduction * reduction);
    double each = header->samples > 1 ? 4 : header->bits > 8 ? 2 : (double)header->bits / 8;
    return pixels * (each + 1 + (header->samples > 3 ? 4 : 0));
}

static enum status check_size(const struct header *header, size_t memory, int *reduction,
                              struct error *e) {
    /* The models of tesseract, and what it makes of the page. */
    const double taken = 384.0 * (1 << 20), least = 96.0 * (1 << 20);
    double most = (double)memory > taken + least ? (double)memory - taken : least;
    *reduction = 1;
    if (header->width <= 0 || header->height <= 0)
        return error_set(e, STATUS_INVALID, "its picture has no size");
    while (header->format == IFF_JFIF_JPEG && *reduction < 8 &&
           count_bytes(header, *reduction) > most)
        *reduction *= 2;
    if (count_bytes(header, *reduction) <= most) return STATUS_OK;
    return error_set(e, STATUS_TOO_LARGE,
                     "its picture of %d x %d pixels takes over %d MiB of memory; save it smaller",
                     header->width, header->height, (int)(most / (1 << 20)));
}

static PIX *decode(struct text_span file, int i, const struct header *header, int reduction) {
    const l_uint8 *bytes = (const l_uint8 *)file.text;
    int warnings;
    if (header->format == IFF_JFIF_JPEG)
        return lept.pixReadMemJpeg(bytes, file.size, 0, reduction, &warnings, 0);
    bool tiff = header->format >= IFF_TIFF && header->format <= IFF_TIFF_ZIP;
    if (tiff || header->format == IFF_TIFF_JPEG) return lept.pixReadMemTiff(bytes, file.size, i);
    return lept.pixReadMem(bytes, file.size);
}

static PIX *make_grey(PIX *pix, const struct header *header) {
    PIX *opaque = header->samples == 4 ? lept.pixRemoveAlpha(pix) : NULL;
    PIX *grey = lept.pixConvertTo8(opaque ? opaque : pix, 0);
    if (opaque) lept.pixDestroy(&opaque);
    return grey;
}

/* A word of 32 bits holds four pixels, the first in its highest byte. */
static void copy_pixels(PIX *grey, struct grey *picture) {
    lept.pixEndianByteSwap(grey);
    size_t stride = (size_t)lept.pixGetWpl(grey) * 4;
    const char *data = (const char *)lept.pixGetData(grey);
    grey_make(picture, lept.pixGetWidth(grey), lept.pixGetHeight(grey));
    for (int y = 0; y < picture->height; y++)
        memcpy(grey_row(picture, y), data + (size_t)y * stride, (size_t)picture->width);
}

static float dpi_of(PIX *pix, int reduction) {
    const float least = 50, most = 2400;
    float dpi = (float)lept.pixGetXRes(pix) / (float)reduction;
    return dpi >= least && dpi <= most ? dpi : 0;
}

/* Fax machines send rows of half the height. */
static void make_square(PIX *pix, struct grey *picture) {
    int across = lept.pixGetXRes(pix), down = lept.pixGetYRes(pix);
    if (across < 50 || down < 50 || across > 4 * down || down > 4 * across) return;
    double height = (double)picture->height * across / down;
    if (across != down && height >= 1 && height < 30000)
        grey_scale(picture, picture->width, (int)height);
}

/* As the camera was held. */
static void turn_as_shown(struct text_span file, struct grey *picture) {
    struct exif_turn turn = exif_find_turn(file);
    if (turn.mirrored) grey_mirror(picture);
    if (turn.quarters > 0) grey_turn(picture, turn.quarters);
}

enum status scan_read_page(struct text_span file, int i, size_t memory, struct grey *picture,
                           float *dpi, struct error *e) {
    struct header header = {0};
    int reduction;
    if (file.size < 16 || !read_header(file, i, &header))
        return error_set(e, STATUS_INVALID, "it is no picture that is known, or damaged");
    if (check_size(&header, memory, &reduction, e)) return e->status;
    PIX *pix = decode(file, i, &header, reduction);
    PIX *grey = pix ? make_grey(pix, &header) : NULL;
    if (grey) {
        copy_pixels(grey, picture);
        *dpi = dpi_of(pix, reduction);
        lept.pixDestroy(&grey);
        make_square(pix, picture);
        turn_as_shown(file, picture);
    }
    bool done = picture->pixels != NULL;
    if (pix) lept.pixDestroy(&pix);
    return done ? STATUS_OK : error_set(e, STATUS_INVALID, "its picture is damaged");
}

/* As a source of pages. */

static enum status prepare_library(const char *name, struct error *e) {
    (void)name;
    return scan_open_library(e);
}

static enum status open_scan(void **self, const char *name, struct text_span bytes,
                             const char *passwords, struct error *e) {
    struct text_span *file = xmalloc(sizeof *file);
    (void)name;
    (void)passwords;
    (void)e;
    *file = bytes;
    *self = file;
    return STATUS_OK;
}

static enum status read_scan(void *self, int i, size_t memory, struct grey *picture, float *dpi,
                             struct error *e) {
    return scan_read_page(*(const struct text_span *)self, i, memory, picture, dpi, e);
}

const struct ocr_source scan_source = {
    .prepare = prepare_library, .open = open_scan, .read = read_scan};
