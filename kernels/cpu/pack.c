/* kernels/cpu/pack.c: weights into the packed layout (layout.h), at the speed of memory, all
 * threads together.
 *
 * In every layout but f16's, what lies side by side is 32-bit words along K, one of each column: an
 * f32, a pair of bf16, a quad of quantised weights. So packing a tile is turning 16 rows of words
 * into lines of 16, four by four in vectors of 16 bytes. f16 is turned as pairs, and these are
 * split. */
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/super_image.h"

struct weight_packing {
    const struct weight *weight;
    const struct host_matrix *host;
    int tiles, all; /* of one piece, and of the weight with what pads it */
};

enum {
    RUN = 128,       /* columns of a float weight that are converted and turned at a time */
    LINE_WORDS = 16, /* of a cache line, which is read whole before another row's */
    PIECE_BYTES = 2 << 20,
    AHEAD_BYTES =
        512 /* of each of the 16 rows: so many streams the hardware does not follow by itself */
};

/* 16 bytes as the compiler's vectors, which every machine has. */
typedef uint32_t words_vector __attribute__((vector_size(16)));
typedef uint64_t halves_vector __attribute__((vector_size(16)));
typedef uint8_t bytes_vector __attribute__((vector_size(16)));

/* `bytes` that will be read after AHEAD_BYTES others of the row. Past the matrix this does nothing.
 */
static void fetch_ahead(const char *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += LINE_BYTES) __builtin_prefetch(from + AHEAD_BYTES + at);
}

/* Four words of four rows become the four columns at `to` of four lines, `step` words apart. */
static void turn_square(uint32_t *to, size_t step, const char *const rows[4], size_t word,
                        uint32_t flip) {
    words_vector row[4];
    for (int i = 0; i < 4; i++) {
        memcpy(&row[i], rows[i] + 4 * word, sizeof row[i]);
        row[i] ^= flip;
    }
    halves_vector low0 = (halves_vector)__builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
    halves_vector low1 = (halves_vector)__builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
    halves_vector high0 = (halves_vector)__builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
    halves_vector high1 = (halves_vector)__builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
    const halves_vector columns[4] = {
        __builtin_shufflevector(low0, low1, 0, 2), __builtin_shufflevector(low0, low1, 1, 3),
        __builtin_shufflevector(high0, high1, 0, 2), __builtin_shufflevector(high0, high1, 1, 3)};
    for (size_t i = 0; i < 4; i++) memcpy(to + i * step, &columns[i], sizeof columns[i]);
}

/* Line w of `to` = word w of each row, with the bits of `flip` turned over. Rows need no alignment.
 */
static void words_turn(void *to, size_t step_bytes, const char *const rows[TILE_COLUMNS], int words,
                       uint32_t flip) {
    size_t step = step_bytes / sizeof(uint32_t);
    uint32_t *lines = to;
    int squares = words / 4 * 4;
    for (int first = 0; first < squares; first += LINE_WORDS)
        for (int row = 0; row < TILE_COLUMNS; row += 4)
            for (int w = first; w < min_int(squares, first + LINE_WORDS); w += 4)
                turn_square(lines + (size_t)w * step + row, step, rows + row, (size_t)w, flip);
    for (int w = squares; w < words; w++)
        for (int row = 0; row < TILE_COLUMNS; row++) {
            uint32_t word;
            memcpy(&word, rows[row] + (size_t)w * sizeof word, sizeof word);
            lines[(size_t)w * step + (size_t)row] = word ^ flip;
        }
}

/* n columns of f16: pairs of columns apart. */
static void split_pairs(uint16_t *to, const uint32_t *pairs, int n) {
    for (int k = 0; k < n; k++)
        for (int i = 0; i < TILE_COLUMNS; i++)
            to[k * TILE_COLUMNS + i] =
                (uint16_t)(pairs[k / 2 * TILE_COLUMNS + i] >> (k % 2 ? 16 : 0));
}

/* Columns [k, k + n) of a row in the weight's dtype, zeros behind: in the host's memory where that
 * will do. */
static const char *float_run(const struct weight_packing *packing, int row, int k, int n,
                             uint32_t room[RUN]) {
    static const uint32_t zeros[RUN];
    const struct weight *weight = packing->weight;
    if (row >= weight->n_out) return (const char *)zeros;
    const char *from =
        (const char *)packing->host->values +
        ((size_t)row * (size_t)weight->n_in + (size_t)k) * dtype_bytes(packing->host->dtype);
    fetch_ahead(from, RUN * dtype_bytes(packing->host->dtype));
    if (n == RUN && packing->host->dtype == weight->dtype) return from;
    if (n < RUN) memset(room, 0, RUN * sizeof *room);
    dtype_convert(room, weight->dtype, from, packing->host->dtype, (size_t)n);
    return (const char *)room;
}

/* The padding of the tile, columns past n_out and the second of a last pair, comes out of the runs
 * as zeros. */
static void pack_floats(const struct weight_packing *packing, int tile) {
    const struct weight *weight = packing->weight;
    bool words_of_two = weight->dtype != DTYPE_F32;
    size_t step = packed_step(weight->dtype);
    char *to = (char *)weight->data + packed_tile_start(weight->dtype, weight->n_in, tile);
    uint32_t room[TILE_COLUMNS][RUN], pairs[RUN / 2 * TILE_COLUMNS];
    const char *rows[TILE_COLUMNS];
    for (int k = 0; k < weight->n_in; k += RUN) {
        int n = min_int(RUN, weight->n_in - k);
        for (int i = 0; i < TILE_COLUMNS; i++)
            rows[i] = float_run(packing, tile * TILE_COLUMNS + i, k, n, room[i]);
        if (weight->dtype == DTYPE_F16) {
            words_turn(pairs, QUAD_BYTES, rows, (n + 1) / 2, 0);
            split_pairs((uint16_t *)(void *)(to + (size_t)k * step), pairs, n);
        } else {
            char *lines = to + (size_t)(words_of_two ? k / 2 : k) * step;
            words_turn(lines, step, rows, words_of_two ? (n + 1) / 2 : n, 0);
        }
    }
}

/* Block `block` of the tile's columns: their scales or minimums to a line of f16. */
static void place_scales(uint16_t *to, const uint16_t *from, const struct weight *weight, int tile,
                         int block) {
    size_t blocks = (size_t)weight->n_in / QUANTISE_BLOCK, first = (size_t)tile * TILE_COLUMNS;
    int here = min_int(TILE_COLUMNS, weight->n_out - tile * TILE_COLUMNS);
    for (int i = 0; i < TILE_COLUMNS; i++)
        to[i] = i < here ? from[(first + (size_t)i) * blocks + (size_t)block] : 0;
}

/* The values of a block's columns; `absent` past n_out. */
static void block_rows(const char *rows[TILE_COLUMNS], const struct weight_packing *packing,
                       int tile, int block, const char *absent) {
    const struct weight *weight = packing->weight;
    size_t bytes = weight->dtype == DTYPE_INT8 ? QUANTISE_BLOCK : QUANTISE_BLOCK / 2;
    size_t row_bytes = (size_t)weight->n_in / QUANTISE_BLOCK * bytes;
    for (int i = 0; i < TILE_COLUMNS; i++) {
        int row = tile * TILE_COLUMNS + i;
        rows[i] = absent;
        if (row >= weight->n_out) continue;
        rows[i] =
            (const char *)packing->host->values + (size_t)row * row_bytes + (size_t)block * bytes;
        fetch_ahead(rows[i], bytes);
    }
}

/* Pairs of blocks are turned together: their values are one run of lines. */
static void pack_int8(const struct weight_packing *packing, int tile) {
    const struct weight *weight = packing->weight;
    int blocks = weight->n_in / QUANTISE_BLOCK;
    char absent[2 * QUANTISE_BLOCK];
    const char *rows[TILE_COLUMNS];
    memset(absent, INT8_OFFSET, sizeof absent);
    for (int i = 0; i < blocks; i += 2) {
        /* Elsewhere the block is for reading; here it is ours to write. */
        struct packed_block pair = packed_block(weight, tile, i);
        uint16_t *scales = (uint16_t *)(uintptr_t)pair.scales;
        char *values = (char *)(uintptr_t)pair.values;
        bool both = i + 1 < blocks;
        place_scales(scales, packing->host->scales, weight, tile, i);
        block_rows(rows, packing, tile, i, absent);
        words_turn(values, QUAD_BYTES, rows, both ? 2 * BLOCK_QUADS : BLOCK_QUADS,
                   0x01010101u * INT8_OFFSET);
        if (both) {
            place_scales(scales + TILE_COLUMNS, packing->host->scales, weight, tile, i + 1);
        } else {
            memset(scales + TILE_COLUMNS, 0, TILE_COLUMNS * sizeof *scales);
            memset(values + INT8_BLOCK_BYTES, 0, INT8_BLOCK_BYTES);
        }
    }
}

/* 32 values, two a byte side by side, become bytes of value k and value k + 16. */
static void spread_int4(char to[QUANTISE_BLOCK / 2], const char *from) {
    bytes_vector low = {0}, high = {0};
    memcpy(&low, from, 8);
    memcpy(&high, from + 8, 8);
    bytes_vector even = (low & 15) | (high << 4), odd = (low >> 4) | (high & 0xF0);
    bytes_vector both =
        __builtin_shufflevector(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    memcpy(to, &both, sizeof both);
}

static void pack_int4(const struct weight_packing *packing, int tile) {
    static const char absent[QUANTISE_BLOCK / 2];
    const struct weight *weight = packing->weight;
    char spread[TILE_COLUMNS][QUANTISE_BLOCK / 2];
    const char *rows[TILE_COLUMNS];
    for (int i = 0; i < weight->n_in / QUANTISE_BLOCK; i++) {
        struct packed_block block = packed_block(weight, tile, i);
        uint16_t *scales = (uint16_t *)(uintptr_t)block.scales;
        place_scales(scales, packing->host->scales, weight, tile, i);
        place_scales(scales + TILE_COLUMNS, packing->host->minimums, weight, tile, i);
        block_rows(rows, packing, tile, i, absent);
        for (int j = 0; j < TILE_COLUMNS; j++) {
            spread_int4(spread[j], rows[j]);
            rows[j] = spread[j];
        }
        words_turn((void *)(uintptr_t)block.values, QUAD_BYTES, rows, BLOCK_QUADS / 2, 0);
    }
}

static void pack_mxfp4(const struct weight_packing *packing, int tile) {
    static const char absent[QUANTISE_BLOCK / 2];
    const struct weight *weight = packing->weight;
    const int blocks = weight->n_in / QUANTISE_BLOCK;
    char spread[TILE_COLUMNS][QUANTISE_BLOCK / 2];
    const char *rows[TILE_COLUMNS];
    for (int i = 0; i < blocks; i++) {
        struct packed_block block = packed_block(weight, tile, i);
        uint8_t *exponents = (uint8_t *)(uintptr_t)block.exponents;
        block_rows(rows, packing, tile, i, absent);
        for (int j = 0; j < TILE_COLUMNS; j++) {
            size_t row = (size_t)tile * TILE_COLUMNS + (size_t)j;
            bool there = row < (size_t)weight->n_out;
            exponents[j] = there ? packing->host->exponents[row * (size_t)blocks + (size_t)i] : 0;
            spread_int4(spread[j], rows[j]);
            rows[j] = spread[j];
        }
        words_turn((void *)(uintptr_t)block.values, QUAD_BYTES, rows, BLOCK_QUADS / 2, 0);
    }
    if (blocks % MXFP4_GROUP == 0) return;
    char *end =
        (char *)weight->data + ((size_t)tile + 1) * packed_tile_bytes(DTYPE_MXFP4, weight->n_in);
    size_t lacks = (size_t)(MXFP4_GROUP - blocks % MXFP4_GROUP);
    memset(end - MXFP4_GROUP_BYTES + LINE_BYTES - lacks * TILE_COLUMNS, 0, lacks * TILE_COLUMNS);
    memset(end - lacks * MXFP4_BLOCK_BYTES, 0, lacks * MXFP4_BLOCK_BYTES);
}

/* Super-block after super-block: the columns' images are turned into the lines behind the first. */
static void pack_supers(const struct weight_packing *packing, int tile) {
    const struct weight *weight = packing->weight;
    const size_t bytes = super_block_bytes(weight->dtype),
                 supers = (size_t)weight->n_in / SUPER_BLOCK;
    const int here = min_int(TILE_COLUMNS, weight->n_out - tile * TILE_COLUMNS);
    struct super_image images[TILE_COLUMNS] = {0};
    const char *rows[TILE_COLUMNS];
    for (int i = 0; i < TILE_COLUMNS; i++) rows[i] = (const char *)images[i].words;
    for (size_t s = 0; s < supers; s++) {
        uint16_t *halves = (uint16_t *)(uintptr_t)packed_super(weight, tile, s);
        for (int i = 0; i < here; i++) {
            size_t row = (size_t)tile * TILE_COLUMNS + (size_t)i;
            const char *from = (const char *)packing->host->values + (row * supers + s) * bytes;
            fetch_ahead(from, bytes);
            super_image_make(&images[i], weight->dtype, from);
        }
        for (int i = 0; i < TILE_COLUMNS; i++) {
            halves[i] = images[i].d;
            halves[TILE_COLUMNS + i] = images[i].dmin;
        }
        words_turn((char *)halves + LINE_BYTES, LINE_BYTES, rows, super_image_words(weight->dtype),
                   0);
    }
}

/* A piece is about as large as a huge page: the thread that writes there first has the page
 * cleared, on its own node. It is an even number of tiles, as those of bf16 lie in pairs. */
static void pack_piece(const void *context, int piece, int thread) {
    (void)thread;
    const struct weight_packing *packing = context;
    int first = piece * packing->tiles, end = min_int(packing->all, first + packing->tiles);
    for (int tile = first; tile < end; tile++) {
        switch (packing->weight->dtype) {
            case DTYPE_INT8: pack_int8(packing, tile); break;
            case DTYPE_INT4: pack_int4(packing, tile); break;
            case DTYPE_MXFP4: pack_mxfp4(packing, tile); break;
            case DTYPE_Q4_K:
            case DTYPE_Q5_K:
            case DTYPE_Q6_K: pack_supers(packing, tile); break;
            default: pack_floats(packing, tile); break;
        }
    }
}

size_t cpu_packed_bytes(const struct weight *weight) {
    CHECK(weight->n_out > 0 && weight->n_in > 0 && weight->n_out <= INT32_MAX - TILE_COLUMNS);
    size_t bytes;
    return mul_overflows(stored_tiles(weight->dtype, weight->n_out),
                         packed_tile_bytes(weight->dtype, weight->n_in), &bytes)
               ? 0
               : bytes;
}

enum status cpu_pack(struct backend *backend, struct weight *weight, const struct host_matrix *host,
                     struct error *e) {
    if (weight->dtype == DTYPE_FP8)
        return error_set(e, STATUS_UNSUPPORTED,
                         "cpu: fp8 weights run on GPUs only; set the dtype to bf16, or convert the "
                         "model to int8 with retro-convert");
    size_t bytes = cpu_packed_bytes(weight);
    weight->data = bytes == 0 ? NULL : cpu_reserve(bytes);
    if (weight->data == NULL)
        return error_set(e, STATUS_NO_MEMORY,
                         "cpu: no memory for a [%d, %d] %s weight; use a smaller model or dtype",
                         weight->n_out, weight->n_in, dtype_name(weight->dtype));
    int tiles = (int)stored_tiles(weight->dtype, weight->n_out),
        most = (int)(PIECE_BYTES / packed_tile_bytes(weight->dtype, weight->n_in));
    struct weight_packing packing = {
        .weight = weight, .host = host, .tiles = max_int(2, most / 2 * 2), .all = tiles};
    cpu_run(backend, (double)weight->n_out * weight->n_in, (tiles - 1) / packing.tiles + 1,
            pack_piece, &packing);
    return STATUS_OK;
}
