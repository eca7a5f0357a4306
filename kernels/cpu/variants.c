/* kernels/cpu/variants.c: the kernels in portable C, and the list of all variants of this build. */
#include "kernels/cpu/variants.h"

const struct cpu_kernels cpu_kernels_generic = {
    .linear = linear_generic,
    .quantise = quantise_generic,
    .blocks = blocks_generic,
    .quantise_supers = quantise_supers_generic,
    .supers = supers_generic,
    KERNELS_OF(generic, generic),
};

const struct cpu_kernels *const cpu_variants[] = {
#if CPU_X86
    &cpu_kernels_amx,        &cpu_kernels_avx512bf16,
    &cpu_kernels_avx512vnni, &cpu_kernels_avx512,
    &cpu_kernels_avxvnni,    &cpu_kernels_avx2,
#endif
#if CPU_ARM
    &cpu_kernels_bf16,       &cpu_kernels_i8mm,
    &cpu_kernels_dotprod,    &cpu_kernels_neon,
#endif
    &cpu_kernels_generic,    NULL,
};

const char *const cpu_variant_names[] = {
    "generic", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16",
    "amx",     "neon", "dotprod", "i8mm",   "bf16",       NULL,
};
