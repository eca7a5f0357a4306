/* kernels/cpu/x86/linear_amx.c: linear for bf16 weights on tdpbf16ps, which multiplies a tile of 16
 * rows x 32 bf16 by one of 32 x 16 and adds the products to a tile of 16 x 16 f32 (Intel 64 and
 * IA-32 Architectures Software Developer's Manual). linear.c has rounded the activations to bf16;
 * other weights go to the avx512 kernels.
 *
 * Element (i, j) is one chain over blocks of 32 along K, from the bias. Within a block the products
 * of even k are one chain, those of odd k another, and both sums are added. That is so for every
 * number of rows, so that a row's result does not depend on the other rows. A weight whose K is no
 * multiple of 32 goes to the kernels on vdpbf16ps. */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/variants.h"

enum {
    TILE_ROWS = 16,
    TILE_DEPTH = 32, /* values along K of one instruction */
    TILE_LINE = 64,  /* bytes of a tile's row */
    BLOCK_ROWS = 2 * TILE_ROWS,
    BLOCK_COLUMNS = 2 * TILE_COLUMNS,
    WEIGHT_LINE =
        2 * QUAD_BYTES, /* layout.h: from a pair of k to the next one, and two tiles side by side */
    WEIGHT_STEP = TILE_DEPTH / 2 * WEIGHT_LINE
};

/* The registers' numbers are text of the instructions. A block of y is two by two tiles of sums. */
#define SUMS_00 0
#define SUMS_01 1
#define SUMS_10 2
#define SUMS_11 3
#define ROWS_0 4
#define ROWS_1 5
#define COLUMNS_0 6
#define COLUMNS_1 7

/* The operand of ldtilecfg. */
struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t line_bytes[16];
    uint8_t rows[16];
};

/* Compilers do not know which memory the instructions of tiles read and write. */
ALWAYS_INLINE void order_memory(void) { __asm__ volatile("" ::: "memory"); }

/* For blocks of `rows` rows of x. Where these fit one tile, the second has a row that nothing uses.
 */
static void shape_tiles(int rows) {
    struct tile_shapes shapes = {.palette = 1}; /* eight tiles of up to 16 rows of 64 bytes */
    uint8_t first = (uint8_t)min_int(rows, TILE_ROWS),
            second = (uint8_t)max_int(rows - TILE_ROWS, 1);
    const uint8_t heights[] = {first, first,  second,         second,
                               first, second, TILE_DEPTH / 2, TILE_DEPTH / 2};
    for (size_t i = 0; i < ARRAY_COUNT(heights); i++) {
        shapes.rows[i] = heights[i];
        shapes.line_bytes[i] = TILE_LINE;
    }
    order_memory();
    _tile_loadconfig(&shapes);
}

/* Where one block of y comes from and goes to. */
struct amx_block {
    const char *x, *weights;
    size_t x_line;      /* bytes from one row to the next */
    int steps;          /* along K */
    const float *start; /* [BLOCK_COLUMNS] what sums begin with */
    float *y;
    size_t y_line;
};

/* `tall`: the block has more rows than one tile. */
ALWAYS_INLINE void multiply_block(const struct amx_block *block, const bool tall) {
    const char *lower = block->x + TILE_ROWS * block->x_line;
    _tile_loadd(SUMS_00, block->start, 0);
    _tile_loadd(SUMS_01, block->start + TILE_COLUMNS, 0);
    if (tall) _tile_loadd(SUMS_10, block->start, 0);
    if (tall) _tile_loadd(SUMS_11, block->start + TILE_COLUMNS, 0);

    for (int step = 0; step < block->steps; step++) {
        const char *weights = block->weights + (size_t)step * WEIGHT_STEP;
        _tile_loadd(COLUMNS_0, weights, WEIGHT_LINE);
        _tile_loadd(COLUMNS_1, weights + QUAD_BYTES, WEIGHT_LINE);
        _tile_loadd(ROWS_0, block->x + (size_t)step * TILE_LINE, block->x_line);
        _tile_dpbf16ps(SUMS_00, ROWS_0, COLUMNS_0);
        _tile_dpbf16ps(SUMS_01, ROWS_0, COLUMNS_1);
        if (!tall) continue;
        _tile_loadd(ROWS_1, lower + (size_t)step * TILE_LINE, block->x_line);
        _tile_dpbf16ps(SUMS_10, ROWS_1, COLUMNS_0);
        _tile_dpbf16ps(SUMS_11, ROWS_1, COLUMNS_1);
    }

    float *below = (float *)(void *)((char *)block->y + TILE_ROWS * block->y_line);
    _tile_stored(SUMS_00, block->y, block->y_line);
    _tile_stored(SUMS_01, block->y + TILE_COLUMNS, block->y_line);
    if (tall) _tile_stored(SUMS_10, below, block->y_line);
    if (tall) _tile_stored(SUMS_11, below + TILE_COLUMNS, block->y_line);
}

/* The same sums of at most FEW_ROWS rows, bit for bit, on multiply-adds of vectors. With few rows
 * memory sets the pace, and loads of vectors keep it busier than those of tiles: 1.12 times as fast
 * where both were measured. */
ALWAYS_INLINE void multiply_few(const struct amx_block *block, const int rows) {
    const __m512i upper = _mm512_set1_epi32((int)0xFFFF0000);
    __m512 total[FEW_ROWS][2];
    for (int r = 0; r < rows; r++)
        for (int t = 0; t < 2; t++) total[r][t] = _mm512_loadu_ps(block->start + t * TILE_COLUMNS);

    for (int step = 0; step < block->steps; step++) {
        __m512 even[FEW_ROWS][2], odd[FEW_ROWS][2];
        for (int r = 0; r < rows; r++)
            for (int t = 0; t < 2; t++) even[r][t] = odd[r][t] = _mm512_setzero_ps();
        for (int pair = step * TILE_DEPTH / 2; pair < (step + 1) * TILE_DEPTH / 2; pair++) {
            const char *line = block->weights + (size_t)pair * WEIGHT_LINE;
            for (int t = 0; t < 2; t++) {
                __m512i w = _mm512_loadu_si512(line + t * QUAD_BYTES);
                __m512 w_even = _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
                __m512 w_odd = _mm512_castsi512_ps(_mm512_and_si512(w, upper));
                _mm_prefetch(line + t * QUAD_BYTES + FETCH_AHEAD, _MM_HINT_T1);
                for (int r = 0; r < rows; r++) {
                    int32_t values; /* a pair of bf16 */
                    memcpy(&values,
                           block->x + (size_t)r * block->x_line + (size_t)pair * sizeof values,
                           sizeof values);
                    __m512i x = _mm512_set1_epi32(values);
                    __m512 x_even = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
                    __m512 x_odd = _mm512_castsi512_ps(_mm512_and_si512(x, upper));
                    even[r][t] = _mm512_fmadd_ps(x_even, w_even, even[r][t]);
                    odd[r][t] = _mm512_fmadd_ps(x_odd, w_odd, odd[r][t]);
                }
            }
        }
        for (int r = 0; r < rows; r++)
            for (int t = 0; t < 2; t++)
                total[r][t] = _mm512_add_ps(total[r][t], _mm512_add_ps(even[r][t], odd[r][t]));
    }

    for (int r = 0; r < rows; r++)
        for (int t = 0; t < 2; t++)
            _mm512_storeu_ps((char *)block->y + (size_t)r * block->y_line +
                                 t * TILE_COLUMNS * (int)sizeof(float),
                             total[r][t]);
}

/* tdpbf16ps takes numbers too small for a normal f32 as zero, whatever the thread's own mode is. */
static void multiply_few_rows(const struct amx_block *block, int rows) {
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
    switch (rows) {
        case 1: multiply_few(block, 1); break;
        case 2: multiply_few(block, 2); break;
        case 3: multiply_few(block, 3); break;
        case 4: multiply_few(block, 4); break;
    }
    _mm_setcsr(mode);
}

static void multiply_rows_of_block(const struct amx_block *block, int rows) {
    order_memory();
    if (rows <= FEW_ROWS)
        multiply_few_rows(block, rows);
    else if (rows <= TILE_ROWS)
        multiply_block(block, false);
    else
        multiply_block(block, true);
    order_memory();
}

/* Rows [row, end), in blocks of `rows`, of the columns of two tiles. */
static void multiply_columns(const struct linear_args *args, int tile, int row, int end, int rows) {
    const int column = tile * TILE_COLUMNS,
              wanted = min_int(BLOCK_COLUMNS, args->weight->n_out - column);
    float start[BLOCK_COLUMNS] = {0}, sums[BLOCK_ROWS][BLOCK_COLUMNS];
    if (args->bias != NULL) memcpy(start, args->bias + column, (size_t)wanted * sizeof *start);
    struct amx_block block = {
        .weights = (const char *)args->weight->data +
                   packed_tile_start(DTYPE_BF16, args->weight->n_in, tile),
        .x_line = (size_t)args->x.stride * sizeof(uint16_t),
        .steps = args->weight->n_in / TILE_DEPTH,
        .start = start,
    };
    for (; row < end; row += rows) {
        bool whole = wanted == BLOCK_COLUMNS;
        block.x = row_of(args->x, row);
        block.y = whole ? row_f32(args->y, row) + column : sums[0];
        block.y_line = whole ? (size_t)args->y.stride * sizeof(float) : sizeof sums[0];
        multiply_rows_of_block(&block, rows);
        for (int i = 0; i < rows && !whole; i++)
            memcpy(row_f32(args->y, row + i) + column, sums[i], (size_t)wanted * sizeof(float));
    }
}

/* Rows [row, end), in blocks of `rows`. Tiles of a bf16 weight lie in pairs, and a piece has whole
 * pairs. */
static void multiply_rows(const struct linear_args *args, int first_tile, int n_tiles, int row,
                          int end, int rows) {
    if (row == end) return;
    shape_tiles(rows);
    for (int tile = first_tile; tile < first_tile + n_tiles; tile += 2)
        multiply_columns(args, tile, row, end, rows);
}

void linear_amx(const struct linear_args *args, int first_tile, int n_tiles) {
    if (args->x.dtype != DTYPE_BF16 || args->weight->n_in % TILE_DEPTH != 0) {
        linear_avx512bf16(args, first_tile, n_tiles);
        return;
    }
    int rest = args->x.rows % BLOCK_ROWS, whole = args->x.rows - rest;
    multiply_rows(args, first_tile, n_tiles, 0, whole, BLOCK_ROWS);
    multiply_rows(args, first_tile, n_tiles, whole, args->x.rows, rest);
    _tile_release();
}
