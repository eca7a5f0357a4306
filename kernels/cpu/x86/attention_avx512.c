/* kernels/cpu/x86/attention_avx512.c: the attention kernels for avx512; see attention_vector.h. */
#include "kernels/cpu/x86/simd_avx512.h"

#include "kernels/cpu/attention_vector.h"
#include "kernels/cpu/variants.h"

void attention_avx512(const struct attention_range *range) { attention_vector(range); }
void merge_avx512(const struct attention_sums *to, const struct attention_sums *from, int row, int padded) {
    merge_vector(to, from, row, padded);
}
