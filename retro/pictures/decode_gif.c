/* retro/pictures/decode_gif.c: the first frame of a GIF on its canvas. The format is in "GIF89a Specification",
 * CompuServe 1990; where it leaves something open, this is as Pillow. */
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

/* The dictionary: code c stands for the bytes of `before[c]`, then `last[c]`. The first codes, the roots, stand for
 * themselves. */
struct lzw_table {
    uint16_t before[LZW_CODES];
    uint8_t first[LZW_CODES], last[LZW_CODES];
    uint8_t word[LZW_CODES]; /* of the code at hand, from its end */
    int roots, next;         /* how many codes are roots; the first code that stands for nothing yet */
};

static uint8_t gif_byte(struct gif_bytes *b) {
    if (b->left == 0) {
        b->cut = true;
        return 0;
    }
    b->left--;
    return *b->data++;
}

static int gif_short(struct gif_bytes *b) {
    int low = gif_byte(b);
    return low | gif_byte(b) << 8;
}

static void gif_skip(struct gif_bytes *b, size_t n) {
    if (n > b->left) b->cut = true;
    n = n < b->left ? n : b->left;
    b->data += n;
    b->left -= n;
}

static void gif_skip_blocks(struct gif_bytes *b) {
    for (uint8_t size = gif_byte(b); size > 0; size = gif_byte(b)) gif_skip(b, size);
}

static void gif_read_palette(struct gif_bytes *b, struct gif_frame *f, int flags) {
    size_t size = 3 * ((size_t)2 << (flags & 7));
    const uint8_t *colors = b->data;
    gif_skip(b, size);
    if (!b->cut) memcpy(f->palette, colors, size);
}

static void gif_read_extension(struct gif_bytes *b, struct gif_frame *f) {
    enum { GRAPHIC_CONTROL = 0xF9, TRANSPARENT = 1 };
    if (gif_byte(b) == GRAPHIC_CONTROL && b->left > 0 && b->data[0] >= 4) {
        uint8_t size = gif_byte(b), flags = gif_byte(b);
        gif_short(b);
        uint8_t transparent = gif_byte(b);
        gif_skip(b, size - 4u);
        if (flags & TRANSPARENT) {
            f->has_transparent = true;
            f->transparent = transparent;
        }
    }
    gif_skip_blocks(b);
}

/* Everything up to the pixels of the first frame. */
static enum status gif_read_head(struct gif_bytes *b, struct gif_frame *f, struct error *e) {
    enum { HAS_PALETTE = 0x80, INTERLACED = 0x40 };
    for (int i = 0; i < 256; i++) memset(f->palette[i], i, 3);
    gif_skip(b, 6);
    f->canvas_width = gif_short(b);
    f->canvas_height = gif_short(b);
    int flags = gif_byte(b);
    gif_skip(b, 2);
    if (flags & HAS_PALETTE) gif_read_palette(b, f, flags);

    while (!b->cut) {
        uint8_t block = gif_byte(b);
        if (block == ',') break;
        if (block == ';') return error_set(e, STATUS_INVALID, "the file has no picture");
        if (block == '!') gif_read_extension(b, f);
    }

    f->left = gif_short(b);
    f->top = gif_short(b);
    f->width = gif_short(b);
    f->height = gif_short(b);
    flags = gif_byte(b);
    f->interlaced = flags & INTERLACED;
    if (flags & HAS_PALETTE) gif_read_palette(b, f, flags);
    f->canvas_width = max_int(f->canvas_width, f->left + f->width);
    f->canvas_height = max_int(f->canvas_height, f->top + f->height);
    if (b->cut) return error_set(e, STATUS_INVALID, "the file is cut off before the picture");
    if (f->width == 0 || f->height == 0) return error_set(e, STATUS_INVALID, "the frame is empty");
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
    const struct gif_frame *f = pen->frame;
    if (pen->y >= f->height) return;
    size_t row = (size_t)(f->top + pen->y) * (size_t)f->canvas_width;
    pen->canvas[row + (size_t)(f->left + pen->x)] = index;
    pen->x++;
    if (pen->x == f->width) gif_next_row(pen);
}

/* Bits of the data blocks, the lowest first. */
struct gif_bits {
    struct gif_bytes *bytes;
    unsigned block; /* bytes left in this block */
    unsigned bits;
    int count;
};

static int gif_code(struct gif_bits *s, int width) {
    while (s->count < width && !s->bytes->cut) {
        if (s->block == 0) s->block = gif_byte(s->bytes);
        if (s->block == 0) s->bytes->cut = true;
        if (s->bytes->cut) return -1;
        s->bits |= (unsigned)gif_byte(s->bytes) << s->count;
        s->block--;
        s->count += 8;
    }
    if (s->bytes->cut) return -1;
    int code = (int)(s->bits & ((1u << width) - 1));
    s->bits >>= width;
    s->count -= width;
    return code;
}

static void lzw_clear(struct lzw_table *t, int roots) {
    for (int code = 0; code < roots; code++) t->first[code] = (uint8_t)code;
    t->roots = roots;
    t->next = roots + 2;
}

/* The word of `previous` and the first byte of `code`, which may be the new word itself. */
static void lzw_learn(struct lzw_table *t, int previous, int code) {
    t->before[t->next] = (uint16_t)previous;
    t->first[t->next] = t->first[previous];
    t->last[t->next] = t->first[code == t->next ? previous : code];
    t->next++;
}

/* Draws the word of a code that stands for one. A code's word begins with the word of a smaller code. */
static void lzw_draw(struct lzw_table *t, struct gif_pen *pen, int code) {
    int n = 0;
    while (code >= t->roots) {
        t->word[n] = t->last[code];
        n++;
        code = t->before[code];
    }
    gif_draw(pen, (uint8_t)code);
    while (n > 0) {
        n--;
        gif_draw(pen, t->word[n]);
    }
}

/* Variable-length LZW until the frame is full. */
static enum status gif_draw_frame(struct gif_bytes *bytes, struct gif_pen *pen, struct lzw_table *t, struct error *e) {
    struct gif_bits bits = {.bytes = bytes};
    int root_bits = gif_byte(bytes), width = root_bits + 1, previous = -1;
    if (root_bits < 1 || root_bits > 8)
        return error_set(e, STATUS_INVALID, "the code size is %d, allowed is 1 .. 8", root_bits);
    int clear = 1 << root_bits;
    lzw_clear(t, clear);

    while (pen->y < pen->frame->height) {
        int code = gif_code(&bits, width);
        if (code < 0 || code == clear + 1)
            return error_set(e, STATUS_INVALID, "the picture is cut off in row %d of %d", pen->y, pen->frame->height);
        if (code == clear) {
            lzw_clear(t, clear);
            width = root_bits + 1;
            previous = -1;
            continue;
        }
        if (code > t->next || (previous < 0 && code > clear))
            return error_set(e, STATUS_INVALID, "a code in row %d of %d is wrong", pen->y, pen->frame->height);

        if (previous >= 0 && t->next < LZW_CODES) lzw_learn(t, previous, code);
        if (t->next == 1 << width && width < LZW_BITS) width++;
        lzw_draw(t, pen, code);
        previous = code;
    }
    return STATUS_OK;
}

static enum status gif_color(struct picture *out, const struct gif_frame *f, const uint8_t *canvas,
                             const struct picture_rules *rules, struct error *e) {
    enum status status = picture_take(out, f->canvas_width, f->canvas_height, e);
    if (status) return status;
    size_t n = (size_t)out->width * (size_t)out->height;
    for (size_t i = 0; i < n; i++) {
        bool through = f->has_transparent && canvas[i] == f->transparent;
        memcpy(out->pixels + 3 * i, through ? rules->background : f->palette[canvas[i]], 3);
    }
    return STATUS_OK;
}

enum status picture_decode_gif(struct picture *out, struct text_span bytes, const struct picture_rules *rules,
                               int *orientation, struct error *e) {
    struct gif_bytes left = {.data = (const uint8_t *)bytes.text, .left = bytes.size};
    struct gif_frame frame = {0};
    (void)orientation;
    enum status status = gif_read_head(&left, &frame, e);
    if (status == STATUS_OK) status = picture_check_size(frame.canvas_width, frame.canvas_height, rules, e);
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
