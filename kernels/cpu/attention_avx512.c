/* kernels/cpu/attention_avx512.c: the attention kernels for avx512; see attention_vector.h. */
#include "kernels/cpu/simd_avx512.h"

#include "kernels/cpu/attention_vector.h"
#include "kernels/cpu/variants.h"

void attention_avx512(const struct attention_block *block) { attention_vector(block); }
void load_keys_avx512(float *to, struct tensor from, int head_dim) { load_keys_vector(to, from, head_dim); }
void load_values_avx512(float *to, struct tensor from, int head_dim) { load_values_vector(to, from, head_dim); }
