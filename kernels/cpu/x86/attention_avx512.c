/* kernels/cpu/x86/attention_avx512.c: the attention kernels for avx512; see attention_vector.h. */
#include "kernels/cpu/x86/simd_avx512.h"

#include "kernels/cpu/attention_vector.h"
#include "kernels/cpu/variants.h"

ATTENTION_KERNELS(KERNEL_FUNCTION, avx512)
MERGE_KERNELS(KERNEL_FUNCTION, avx512)
