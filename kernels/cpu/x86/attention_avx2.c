/* kernels/cpu/x86/attention_avx2.c: the attention kernels for avx2; see attention_vector.h. */
#include "kernels/cpu/x86/simd_avx2.h"

#include "kernels/cpu/attention_vector.h"
#include "kernels/cpu/variants.h"

void attention_avx2(const struct attention_range *range) { attention_vector(range); }
void merge_avx2(const struct attention_sums *to, const struct attention_sums *from, int row, int padded) {
    merge_vector(to, from, row, padded);
}
