/* tests/cuda_host/mma.cc: products and loads of matrices by the lanes of a warp; the layouts are in
 * kernels/cuda/mma.cuh. */
#include <cuda_host_mma.h>

/* The lane that holds k = 2t, 2t + 1 (and 8 more) of a row of A or a column of B, and where among
 * its registers. */
static inline unsigned holder(unsigned g, unsigned k) { return 4 * g + k % 8 / 2; }

void cuda_host_mma(float c[4], const float wide[12], int line) {
    typedef float registers[12];
    static_assert(sizeof(registers) == CUDA_HOST_LANE_BYTES, "what a lane brings");
    const registers *lanes =
        (const registers *)cuda_host_gather_bytes(0xffffffffu, wide, sizeof(registers), line);
    unsigned g = cuda_host_lane() / 4, t = cuda_host_lane() % 4;
    for (unsigned k = 0; k < 16; k++) {
        const float *a = &lanes[holder(g, k)][k / 8 * 4 + k % 2];
        float left = lanes[holder(2 * t, k)][8 + k / 8 * 2 + k % 2];
        float right = lanes[holder(2 * t + 1, k)][8 + k / 8 * 2 + k % 2];
        c[0] += a[0] * left;
        c[1] += a[0] * right;
        c[2] += a[2] * left;
        c[3] += a[2] * right;
    }
}

void cuda_host_load_matrices(unsigned r[4], const void *row, bool transposed, int line) {
    if ((uintptr_t)row % 16)
        cuda_host_break_rule("a row of a matrix at an unaligned address", line);
    const uint64_t *rows = cuda_host_gather(0xffffffffu, (uintptr_t)row, line);
    unsigned g = cuda_host_lane() / 4, t = cuda_host_lane() % 4;
    for (unsigned m = 0; m < 4; m++) {
        const uint16_t *first = (const uint16_t *)rows[8 * m + (transposed ? 2 * t : g)];
        const uint16_t *second = (const uint16_t *)rows[8 * m + (transposed ? 2 * t + 1 : g)];
        r[m] = transposed ? first[g] | (unsigned)second[g] << 16
                          : first[2 * t] | (unsigned)second[2 * t + 1] << 16;
    }
}
