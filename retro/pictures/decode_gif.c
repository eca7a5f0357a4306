/* retro/pictures/decode_gif.c: the first frame of a GIF on its canvas. The format is in "GIF89a
 * Specification", CompuServe 1990; where it leaves something open, this is as Pillow. */
#include <stdlib.h>
#include <string.h>

#include "retro/pictures/decoders.h"

/* Bytes not read yet. Missing bytes read as zero and set `cut`. */
struct gif_bytes {
    const uint8_t *data;
    size_t left;
    bool cut;
};

struct gif_frame {
    int canvas_width, canvas_height;
    int left, top, width, height;
    bool interlaced, has_transparent;
    uint8_t transparent;
    uint8_t palette[256][3];
};

enum { LZW_BITS = 12, LZW_CODES = 1 << LZW_BITS };

/* The dictionary: code c stands for the bytes of `before[c]`, then `last[c]`. The first codes, the
 * roots, stand for themselves. */
struct lzw_table {
    uint16_t before[LZW_CODES];
    uint8_t first[LZW_CODES], last[LZW_CODES];
    uint8_t word[LZW_CODES]; /* of the code at hand, from its end */
    int roots, next; /* how many codes are roots; the first code that stands for nothing yet */
};

static uint8_t gif_byte(struct gif_bytes *bytes) {
    if (bytes->left == 0) {
        bytes->cut = true;
        return 0;
    }
    bytes->left--;
    return *bytes->data++;
}

static int gif_short(struct gif_bytes *bytes) {
    int low = gif_byte(bytes);
    return low | gif_byte(bytes) << 8;
}

static void gif_skip(struct gif_bytes *bytes, size_t n) {
    if (n > bytes->left) bytes->cut = true;
    n = n < bytes->left ? n : bytes->left;
    bytes->data += n;
    bytes->left -= n;
}

static void gif_skip_blocks(struct gif_bytes *bytes) {
    for (uint8_t size = gif_byte(bytes); size > 0; size = gif_byte(bytes)) gif_skip(bytes, size);
}

static void gif_read_palette(struct gif_bytes *bytes, struct gif_frame *frame, int flags) {
    size_t size = 3 * ((size_t)2 << (flags & 7));
    const uint8_t *colors = bytes->data;
    gif_skip(bytes, size);
    if (!bytes->cut) memcpy(frame->palette, colors, size);
}

static void gif_read_extension(struct gif_bytes *bytes, struct gif_frame *frame) {
    enum { GRAPHIC_CONTROL = 0xF9, TRANSPARENT = 1 };
    if (gif_byte(bytes) == GRAPHIC_CONTROL && bytes->left > 0 && bytes->data[0] >= 4) {
        uint8_t size = gif_byte(bytes), flags = gif_byte(bytes);
        gif_short(bytes);
        uint8_t transparent = gif_byte(bytes);
        gif_skip(bytes, size - 4u);
        if (flags & TRANSPARENT) {
            frame->has_transparent = true;
            frame->transparent = transparent;
        }
    }
    gif_skip_blocks(bytes);
}

/* Everything up to the pixels of the first frame. */
static enum status gif_read_head(struct gif_bytes *bytes, struct gif_frame *frame,
                                 struct error *e) {
    enum { HAS_PALETTE = 0x80, INTERLACED = 0x40 };
    for (int i = 0; i < 256; i++) memset(frame->palette[i], i, 3);
    gif_skip(bytes, 6);
    frame->canvas_width = gif_short(bytes);
    frame->canvas_height = gif_short(bytes);
    int flags = gif_byte(bytes);
    gif_skip(bytes, 2);
    if (flags & HAS_PALETTE) gif_read_palette(bytes, frame, flags);

    while (!bytes->cut) {
        uint8_t block = gif_byte(bytes);
        if (block == ',') break;
        if (block == ';') return error_set(e, STATUS_INVALID, "the file has no picture");
        if (block == '!') gif_read_extension(bytes, frame);
    }

    frame->left = gif_short(bytes);
    frame->top = gif_short(bytes);
    frame->width = gif_short(bytes);
    frame->height = gif_short(bytes);
    flags = gif_byte(bytes);
    frame->interlaced = flags & INTERLACED;
    if (flags & HAS_PALETTE) gif_read_palette(bytes, frame, flags);
    frame->canvas_width = max_int(frame->canvas_width, frame->left + frame->width);
    frame->canvas_height = max_int(frame->canvas_height, frame->top + frame->height);
    if (bytes->cut) return error_set(e, STATUS_INVALID, "the file is cut off before the picture");
    if (frame->width == 0 || frame->height == 0)
        return error_set(e, STATUS_INVALID, "the frame is empty");
    return STATUS_OK;
}

/* Where the next pixel of the frame goes. */
struct gif_pen {
    const struct gif_frame *frame;
    uint8_t *canvas;
    int x, y, pass; /* y == height: the frame is full */
};

static void gif_next_row(struct gif_pen *pen) {
    static const int steps[] = {8, 8, 4, 2}, starts[] = {0, 4, 2, 1};
    pen->x = 0;
    pen->y += pen->frame->interlaced ? steps[pen->pass] : 1;
    while (pen->frame->interlaced && pen->y >= pen->frame->height && pen->pass < 3) {
        pen->pass++;
        pen->y = starts[pen->pass];
    }
    pen->y = min_int(pen->y, pen->frame->height);
}

static void gif_draw(struct gif_pen *pen, uint8_t index) {
    const struct gif_frame *frame = pen->frame;
    if (pen->y >= frame->height) return;
    size_t row = (size_t)(frame->top + pen->y) * (size_t)frame->canvas_width;
    pen->canvas[row + (size_t)(frame->left + pen->x)] = index;
    pen->x++;
    if (pen->x == frame->width) gif_next_row(pen);
}

/* Bits of the data blocks, the lowest first. */
struct gif_bits {
    struct gif_bytes *bytes;
    unsigned block; /* bytes left in this block */
    unsigned bits;
    int count;
};

static int gif_code(struct gif_bits *bits, int width) {
    while (bits->count < width && !bits->bytes->cut) {
        if (bits->block == 0) bits->block = gif_byte(bits->bytes);
        if (bits->block == 0) bits->bytes->cut = true;
        if (bits->bytes->cut) return -1;
        bits->bits |= (unsigned)gif_byte(bits->bytes) << bits->count;
        bits->block--;
        bits->count += 8;
    }
    if (bits->bytes->cut) return -1;
    int code = (int)(bits->bits & ((1u << width) - 1));
    bits->bits >>= width;
    bits->count -= width;
    return code;
}

static void lzw_clear(struct lzw_table *table, int roots) {
    for (int code = 0; code < roots; code++) table->first[code] = (uint8_t)code;
    table->roots = roots;
    table->next = roots + 2;
}

/* The word of `previous` and the first byte of `code`, which may be the new word itself. */
static void lzw_learn(struct lzw_table *table, int previous, int code) {
    table->before[table->next] = (uint16_t)previous;
    table->first[table->next] = table->first[previous];
    table->last[table->next] = table->first[code == table->next ? previous : code];
    table->next++;
}

/* Draws the word of a code that stands for one. A code's word begins with the word of a smaller
 * code. */
static void lzw_draw(struct lzw_table *table, struct gif_pen *pen, int code) {
    int n = 0;
    while (code >= table->roots) {
        table->word[n] = table->last[code];
        n++;
        code = table->before[code];
    }
    gif_draw(pen, (uint8_t)code);
    while (n > 0) {
        n--;
        gif_draw(pen, table->word[n]);
    }
}

/* Variable-length LZW until the frame is full. */
static enum status gif_draw_frame(struct gif_bytes *bytes, struct gif_pen *pen,
                                  struct lzw_table *table, struct error *e) {
    struct gif_bits bits = {.bytes = bytes};
    int root_bits = gif_byte(bytes), width = root_bits + 1, previous = -1;
    if (root_bits < 1 || root_bits > 8)
        return error_set(e, STATUS_INVALID, "the code size is %d, allowed is 1 .. 8", root_bits);
    int clear = 1 << root_bits;
    lzw_clear(table, clear);

    while (pen->y < pen->frame->height) {
        int code = gif_code(&bits, width);
        if (code < 0 || code == clear + 1)
            return error_set(e, STATUS_INVALID, "the picture is cut off in row %d of %d", pen->y,
                             pen->frame->height);
        if (code == clear) {
            lzw_clear(table, clear);
            width = root_bits + 1;
            previous = -1;
            continue;
        }
        if (code > table->next || (previous < 0 && code > clear))
            return error_set(e, STATUS_INVALID, "a code in row %d of %d is wrong", pen->y,
                             pen->frame->height);

        if (previous >= 0 && table->next < LZW_CODES) lzw_learn(table, previous, code);
        if (table->next == 1 << width && width < LZW_BITS) width++;
        lzw_draw(table, pen, code);
        previous = code;
    }
    return STATUS_OK;
}

static enum status gif_color(struct picture *out, const struct gif_frame *frame,
                             const uint8_t *canvas, const struct picture_rules *rules,
                             struct error *e) {
    enum status status = picture_take(out, frame->canvas_width, frame->canvas_height, e);
    if (status) return status;
    size_t n = (size_t)out->width * (size_t)out->height;
    for (size_t i = 0; i < n; i++) {
        bool through = frame->has_transparent && canvas[i] == frame->transparent;
        memcpy(out->pixels + 3 * i, through ? rules->background : frame->palette[canvas[i]], 3);
    }
    return STATUS_OK;
}

enum status picture_decode_gif(struct picture *out, struct text_span bytes,
                               const struct picture_rules *rules, int *orientation,
                               struct error *e) {
    struct gif_bytes left = {.data = (const uint8_t *)bytes.text, .left = bytes.size};
    struct gif_frame frame = {0};
    (void)orientation;
    enum status status = gif_read_head(&left, &frame, e);
    if (status == STATUS_OK)
        status = picture_check_size(frame.canvas_width, frame.canvas_height, rules, e);
    if (status) return status;

    size_t n = (size_t)frame.canvas_width * (size_t)frame.canvas_height;
    struct gif_pen pen = {.frame = &frame, .canvas = malloc(n)};
    struct lzw_table *table = calloc(1, sizeof *table);
    if (pen.canvas && table) {
        memset(pen.canvas, frame.has_transparent ? frame.transparent : 0, n);
        status = gif_draw_frame(&left, &pen, table, e);
        if (status == STATUS_OK) status = gif_color(out, &frame, pen.canvas, rules, e);
    } else {
        status = error_set(e, STATUS_NO_MEMORY, "no memory for a canvas of %zu pixels", n);
    }
    free(table);
    free(pen.canvas);
    return status;
}
