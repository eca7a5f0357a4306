/* kernels/cpu/variants.c: the table of kernels of each instruction set. */
#include "kernels/cpu/variants.h"

/* What has no better form in an extension (VNNI, BF16) than in the set it extends. */
#define KERNELS_OF(set) \
    .attention = attention_##set, .merge = merge_##set, .activate = activate_##set, .exp = exp_##set, \
    .norm = norm_##set, .add = add_##set, .scale = scale_##set, .keys = keys_##set, .weights = weights_##set

const struct cpu_kernels cpu_kernels_generic = {
    .name = "generic",
    .linear = linear_generic,
    .quantise = quantise_generic,
    .blocks = blocks_generic,
    KERNELS_OF(generic),
};

const struct cpu_kernels cpu_kernels_avx2 = {
    .name = "avx2",
    .linear = linear_avx2,
    .quantise = quantise_avx2,
    .blocks = blocks_avx2,
    KERNELS_OF(avx2),
};

const struct cpu_kernels cpu_kernels_avxvnni = {
    .name = "avxvnni",
    .linear = linear_avx2,
    .quantise = quantise_avx2,
    .blocks = blocks_avxvnni,
    KERNELS_OF(avx2),
};

const struct cpu_kernels cpu_kernels_avx512 = {
    .name = "avx512",
    .linear = linear_avx512,
    .quantise = quantise_avx2,
    .blocks = blocks_avx512,
    KERNELS_OF(avx512),
};

const struct cpu_kernels cpu_kernels_avx512vnni = {
    .name = "avx512vnni",
    .linear = linear_avx512,
    .quantise = quantise_avx2,
    .blocks = blocks_avx512vnni,
    KERNELS_OF(avx512),
};

const struct cpu_kernels cpu_kernels_avx512bf16 = {
    .name = "avx512bf16",
    .round = round_avx512bf16,
    .linear = linear_avx512bf16,
    .quantise = quantise_avx2,
    .blocks = blocks_avx512vnni,
    KERNELS_OF(avx512),
};
