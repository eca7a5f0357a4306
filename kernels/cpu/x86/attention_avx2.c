/* kernels/cpu/x86/attention_avx2.c: the attention kernels for avx2; see attention_vector.h. */
#include "kernels/cpu/x86/simd_avx2.h"

#include "kernels/cpu/attention_vector.h"
#include "kernels/cpu/variants.h"

ATTENTION_KERNELS(KERNEL_FUNCTION, avx2)
MERGE_KERNELS(KERNEL_FUNCTION, avx2)
