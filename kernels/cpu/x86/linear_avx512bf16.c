/* kernels/cpu/x86/linear_avx512bf16.c: linear for bf16 weights on vdpbf16ps, which multiplies pairs
 * of bf16 and adds both products to an f32. linear.c has rounded the activations to bf16; other
 * weights go to the avx512 kernels.
 *
 * Element (i, j) is one chain over the pairs of K in rising order, from zero, then + bias, for
 * every number of rows. A kernel keeps R rows x T tiles of sums in registers and streams the
 * weights past them once, as linear_vector.h does; the instruction takes an even and an odd k at
 * once, so one chain does where that one needs two. */
#include "kernels/cpu/x86/simd_avx512.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/variants.h"

/* Up to STREAM_ROWS rows take the two tiles of a stream, which passes once: with the one chain of a
 * single tile a row would wait for the instruction, at 45 GB/s of weights, and twelve rows multiply
 * as fast as memory brings what they need. More rows are cut into blocks, and take four tiles while
 * those are in cache: fewer loads for each product. */
enum { STREAM_TILES = 2, STREAM_ROWS = 12, DOT_TILES = 4, DOT_SUMS = STREAM_ROWS * STREAM_TILES };

/* Where one kernel instance works: rows of x and y from `row`, tiles of the weight from `tile`,
 * which is even unless it is alone. `ahead` bytes behind each of the tiles numbered [fetch,
 * fetch_end) are fetched: the blocks of rows share them out. */
struct tile_place {
    const struct linear_args *a;
    int row, tile, fetch, fetch_end;
    size_t ahead;
};

ALWAYS_INLINE void store_sum(const struct tile_place *place, int r, int t, __m512 sum) {
    const struct linear_args *args = place->a;
    int column = (place->tile + t) * TILE_COLUMNS;
    __mmask16 mask = vec_mask(min_int(TILE_COLUMNS, args->weight->n_out - column));
    if (args->bias != NULL)
        sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, args->bias + column));
    _mm512_mask_storeu_ps(row_f32(args->y, place->row + r) + column, mask, sum);
}

ALWAYS_INLINE void tile_kernel(const struct tile_place *place, const int rows, const int tiles) {
    const struct tensor x = place->a->x;
    const size_t pairs = packed_depth(DTYPE_BF16, place->a->weight->n_in) / 2,
                 pair_stride = (size_t)x.stride / 2;
    /* A pair of bf16 is one 32-bit lane. */
    const int32_t *values = row_of(x, place->row);
    const char *weights = place->a->weight->data;
    weights += packed_tile_start(DTYPE_BF16, place->a->weight->n_in, place->tile);
    __m512 sums[DOT_SUMS];
    __m512bh w[DOT_TILES];
    UNROLLED
    for (int i = 0; i < rows * tiles; i++) sums[i] = _mm512_setzero_ps();
    for (size_t k = 0; k < pairs; k++) {
        UNROLLED
        for (int t = 0; t < tiles; t++) {
            const char *at = weights + packed_tile_start(DTYPE_BF16, place->a->weight->n_in, t) +
                             k * packed_step(DTYPE_BF16);
            /* Past the matrix this does nothing. */
            if (tiles == STREAM_TILES || (t >= place->fetch && t < place->fetch_end))
                _mm_prefetch(at + place->ahead, _MM_HINT_T1);
            w[t] = (__m512bh)_mm512_loadu_si512(at);
        }
        UNROLLED
        for (int r = 0; r < rows; r++) {
            __m512bh pair = (__m512bh)_mm512_set1_epi32(values[(size_t)r * pair_stride + k]);
            UNROLLED
            for (int t = 0; t < tiles; t++)
                sums[r * tiles + t] = _mm512_dpbf16_ps(sums[r * tiles + t], w[t], pair);
        }
    }
    UNROLLED
    for (int r = 0; r < rows; r++) {
        UNROLLED
        for (int t = 0; t < tiles; t++) store_sum(place, r, t, sums[r * tiles + t]);
    }
}

/* As many rows as the registers hold with `tiles` tiles; more are not even compiled. */
ALWAYS_INLINE void kernel_rows(const struct tile_place *place, int rows, const int tiles) {
    switch (rows) {
        case 1: tile_kernel(place, 1, tiles); break;
        case 2: tile_kernel(place, 2, tiles); break;
        case 3: tile_kernel(place, 3, tiles); break;
        case 4: tile_kernel(place, 4, tiles); break;
        case 5: tile_kernel(place, 5, tiles); break;
        case 6: tile_kernel(place, 6, tiles); break;
    }
    if (tiles > STREAM_TILES) return;
    switch (rows) {
        case 7: tile_kernel(place, 7, tiles); break;
        case 8: tile_kernel(place, 8, tiles); break;
        case 9: tile_kernel(place, 9, tiles); break;
        case 10: tile_kernel(place, 10, tiles); break;
        case 11: tile_kernel(place, 11, tiles); break;
        case 12: tile_kernel(place, 12, tiles); break;
    }
}

/* `tiles` tiles: rows are cut into equal blocks that fit the registers, and the tiles stay in cache
 * while those pass.
 */
ALWAYS_INLINE void linear_tiles(const struct linear_args *args, int tile, const int tiles) {
    const int most = tiles == DOT_TILES ? DOT_SUMS / DOT_TILES : STREAM_ROWS;
    int rows = args->x.rows, blocks = (rows + most - 1) / most;
    size_t turn_bytes = (size_t)tiles * packed_tile_bytes(DTYPE_BF16, args->weight->n_in);
    for (int i = 0, row = 0; i < blocks; i++) {
        struct tile_place place = {.a = args,
                                   .row = row,
                                   .tile = tile,
                                   .fetch = tiles * i / blocks,
                                   .fetch_end = tiles * (i + 1) / blocks,
                                   .ahead = rows <= STREAM_ROWS ? FETCH_AHEAD : turn_bytes};
        int next = (int)((int64_t)rows * (i + 1) / blocks);
        kernel_rows(&place, next - row, tiles);
        row = next;
    }
}

static void linear_dot(const struct linear_args *args, int first_tile, int n_tiles) {
    int most = args->x.rows <= STREAM_ROWS ? STREAM_TILES : DOT_TILES, end = first_tile + n_tiles;
    for (int tile = first_tile, now; tile < end; tile += now) {
        now = tile + most <= end ? most : 1;
        if (now == DOT_TILES)
            linear_tiles(args, tile, DOT_TILES);
        else if (now == STREAM_TILES)
            linear_tiles(args, tile, STREAM_TILES);
        else
            linear_tiles(args, tile, 1);
    }
}

void linear_avx512bf16(const struct linear_args *args, int first_tile, int n_tiles) {
    if (args->x.dtype == DTYPE_BF16)
        linear_dot(args, first_tile, n_tiles);
    else
        linear_avx512(args, first_tile, n_tiles);
}

/* Numbers too small for a normal bf16 become zero, as vdpbf16ps takes them anyway. */
void round_avx512bf16(uint16_t *to, const float *from, int n) {
    int i = 0;
    for (; i + 32 <= n; i += 32)
        _mm512_storeu_si512(to + i, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + i + 16),
                                                                 _mm512_loadu_ps(from + i)));
    for (; i < n; i += 16) {
        __mmask16 mask = vec_mask(min_int(16, n - i));
        __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, from + i));
        _mm256_mask_storeu_epi16(to + i, mask, (__m256i)rounded);
    }
}
