/* kernels/cpu/attention_avx2.c: the attention kernels for avx2; see attention_vector.h. */
#include "kernels/cpu/simd_avx2.h"

#include "kernels/cpu/attention_vector.h"
#include "kernels/cpu/variants.h"

void attention_avx2(const struct attention_block *block) { attention_vector(block); }
void load_keys_avx2(float *to, struct tensor from, int head_dim) { load_keys_vector(to, from, head_dim); }
void load_values_avx2(float *to, struct tensor from, int head_dim) { load_values_vector(to, from, head_dim); }
