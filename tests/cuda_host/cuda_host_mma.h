/* tests/cuda_host/cuda_host_mma.h: what kernels/cuda/mma.cuh calls on the emulated device.
 * Fragments lie in lanes as they do on a GPU: a lane knows its own registers and gets others'
 * through the exchange of the warp. */
#pragma once

#include <cuda_runtime.h>

/* c += a b; `wide` is the lane's registers of A and B in f32: a[0] .. a[3], then b0, b1, low halves
 * first. */
void cuda_host_mma(float c[4], const float wide[12], int line);
void cuda_host_load_matrices(unsigned r[4], const void *row, bool transposed, int line);

/* Between the two the destination holds NaN: as late as a GPU may copy, for those who read too
 * early, and as soon as it may, for those who still read what was there. */
void cuda_host_copy_begin(void *shared, const void *global, int bytes, int line);
void cuda_host_copies_wait();
