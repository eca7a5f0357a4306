/* kernels/cpu/arm/attention_neon.c: the attention kernels for NEON; see attention_vector.h. */
#include "kernels/cpu/arm/attention_fours.h"

#include "kernels/cpu/attention_vector.h"
#include "kernels/cpu/variants.h"

ATTENTION_KERNELS(KERNEL_FUNCTION, neon)
MERGE_KERNELS(KERNEL_FUNCTION, neon)
