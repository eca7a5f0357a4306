/* retro/pictures/decode_jpeg.c: JPEG by libjpeg-turbo, which no other file knows. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "retro/pictures/decoders.h"

/* A progressive file of a few bytes a scan could keep the decoder busy for minutes. */
enum { MOST_SCANS = 100 };

/* All that lives across the library's jump back. */
struct jpeg_reading {
    struct jpeg_decompress_struct codec;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    uint8_t *row; /* of four channels */
    struct picture *out;
    const struct picture_rules *rules;
    int *orientation;
    enum status status;
    struct error *e;
};

static void jpeg_fail(j_common_ptr codec) {
    struct jpeg_reading *r = codec->client_data;
    char words[JMSG_LENGTH_MAX];
    codec->err->format_message(codec, words);
    r->status = error_set(r->e, STATUS_INVALID, "%s", words);
    longjmp(r->back, 1);
}

/* Warnings are kept silent but for the end of the file: the library would make the missing rows grey. */
static void jpeg_warn(j_common_ptr codec, int level) {
    if (level < 0 && codec->err->msg_code == JWRN_JPEG_EOF) jpeg_fail(codec);
}

static void jpeg_count_scans(j_common_ptr codec) {
    struct jpeg_reading *r = codec->client_data;
    if (r->codec.input_scan_number <= MOST_SCANS) return;
    r->status = error_set(r->e, STATUS_TOO_LARGE, "the picture has more than %d scans", MOST_SCANS);
    longjmp(r->back, 1);
}

static void jpeg_read_orientation(struct jpeg_reading *r) {
    for (jpeg_saved_marker_ptr m = r->codec.marker_list; m; m = m->next)
        if (m->data_length > 6 && memcmp(m->data, "Exif\0\0", 6) == 0) {
            *r->orientation = exif_orientation((struct text_span){(const char *)m->data, m->data_length});
            return;
        }
}

/* One row of inverted CMYK, as Adobe writes it and Pillow assumes it, to RGB. */
static void cmyk_convert(uint8_t *out, const uint8_t *in, int width) {
    for (int x = 0; x < width; x++) {
        unsigned white = in[4 * x + 3];
        for (int channel = 0; channel < 3; channel++) {
            unsigned product = (255u - in[4 * x + channel]) * white + 128;
            unsigned ink = ((product >> 8) + product) >> 8;
            out[3 * x + channel] = (uint8_t)(white - ink);
        }
    }
}

static void jpeg_read_rows(struct jpeg_reading *r) {
    size_t stride = (size_t)r->out->width * 3;
    while (r->codec.output_scanline < r->codec.output_height) {
        uint8_t *out = r->out->pixels + r->codec.output_scanline * stride;
        JSAMPROW row = r->row ? r->row : out;
        jpeg_read_scanlines(&r->codec, &row, 1);
        if (r->row) cmyk_convert(out, r->row, r->out->width);
    }
}

static enum status jpeg_prepare(struct jpeg_reading *r) {
    bool four = r->codec.num_components == 4;
    enum status status = picture_check_size(r->codec.image_width, r->codec.image_height, r->rules, r->e);
    if (status == STATUS_OK) status = picture_take(r->out, r->codec.image_width, r->codec.image_height, r->e);
    if (status) return status;
    r->codec.out_color_space = four ? JCS_CMYK : JCS_RGB;
    r->row = four ? malloc((size_t)r->codec.image_width * 4) : NULL;
    if (four && r->row == NULL) return error_set(r->e, STATUS_NO_MEMORY, "no memory for a row of the picture");
    return STATUS_OK;
}

/* The library's failures come back to the first line. */
static enum status jpeg_run(struct jpeg_reading *r, struct text_span bytes) {
    if (setjmp(r->back)) return r->status;
    jpeg_create_decompress(&r->codec);
    r->codec.progress = &r->progress;
    jpeg_mem_src(&r->codec, (const unsigned char *)bytes.text, bytes.size);
    jpeg_save_markers(&r->codec, JPEG_APP0 + 1, 0xFFFF);
    jpeg_read_header(&r->codec, TRUE);
    jpeg_read_orientation(r);

    r->status = jpeg_prepare(r);
    if (r->status) return r->status;
    jpeg_start_decompress(&r->codec);
    jpeg_read_rows(r);
    return STATUS_OK;
}

enum status picture_decode_jpeg(struct picture *out, struct text_span bytes, const struct picture_rules *rules,
                                int *orientation, struct error *e) {
    struct jpeg_reading r = {.out = out, .rules = rules, .orientation = orientation, .e = e};
    r.codec.err = jpeg_std_error(&r.errors);
    r.codec.client_data = &r;
    r.errors.error_exit = jpeg_fail;
    r.errors.emit_message = jpeg_warn;
    r.progress.progress_monitor = jpeg_count_scans;

    enum status status = jpeg_run(&r, bytes);
    jpeg_destroy_decompress(&r.codec);
    free(r.row);
    return status;
}
