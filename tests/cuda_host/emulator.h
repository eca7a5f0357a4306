/* tests/cuda_host/emulator.h: what tests ask of the emulated device beyond the CUDA runtime. */
#pragma once

#ifdef __cplusplus
#include <cstdint>
#include <functional>
extern "C" {
#else
#include <stdint.h>
#endif

/* The order of blocks and threads from here on. 0: in rising order; anything else: a permutation, a
 * new one at every turn of the scheduler. */
void cuda_host_seed(uint64_t seed);
/* A failed launch stays failed, as on a GPU, until this is called. */
void cuda_host_reset(void);
/* How often cudaStreamQuery will say that the device is not ready. */
void cuda_host_lag(uint64_t times);
/* How many kernels ran since the program started. */
uint64_t cuda_host_launches(void);

#ifdef __cplusplus
}
/* Runs `work` on the device after everything queued before it: how the host GEMM takes cuBLAS's
 * place. */
void cuda_host_enqueue(std::function<void()> work);
#endif
