/* kernels/cpu/arm/attention_neon.c: the attention kernels for NEON; see attention_vector.h. */
#include "kernels/cpu/arm/simd_neon.h"

#include "kernels/cpu/attention_vector.h"
#include "kernels/cpu/variants.h"

ATTENTION_KERNELS(KERNEL_FUNCTION, neon)
MERGE_KERNELS(KERNEL_FUNCTION, neon)
