/* kernels/cpu/variants.c: the table of kernels of each instruction set. */
#include "kernels/cpu/variants.h"

const struct cpu_kernels cpu_kernels_generic = {
    .name = "generic",
    .linear = linear_generic,
    .quantise = quantise_generic,
    .blocks = blocks_generic,
    .attention = attention_generic,
    .merge = merge_generic,
    .activate = activate_generic,
    .exp = exp_generic,
    .norm = norm_generic,
    .add = add_generic,
    .scale = scale_generic,
    .keys = keys_generic,
    .weights = weights_generic,
};

const struct cpu_kernels cpu_kernels_avx2 = {
    .name = "avx2",
    .linear = linear_avx2,
    .quantise = quantise_avx2,
    .blocks = blocks_avx2,
    .attention = attention_avx2,
    .merge = merge_avx2,
    .activate = activate_avx2,
    .exp = exp_avx2,
    .norm = norm_avx2,
    .add = add_avx2,
    .scale = scale_avx2,
    .keys = keys_avx2,
    .weights = weights_avx2,
};

const struct cpu_kernels cpu_kernels_avxvnni = {
    .name = "avxvnni",
    .linear = linear_avx2,
    .quantise = quantise_avx2,
    .blocks = blocks_avxvnni,
    .attention = attention_avx2,
    .merge = merge_avx2,
    .activate = activate_avx2,
    .exp = exp_avx2,
    .norm = norm_avx2,
    .add = add_avx2,
    .scale = scale_avx2,
    .keys = keys_avx2,
    .weights = weights_avx2,
};

const struct cpu_kernels cpu_kernels_avx512 = {
    .name = "avx512",
    .linear = linear_avx512,
    .quantise = quantise_avx2,
    .blocks = blocks_avx512,
    .attention = attention_avx512,
    .merge = merge_avx512,
    .activate = activate_avx512,
    .exp = exp_avx512,
    .norm = norm_avx512,
    .add = add_avx512,
    .scale = scale_avx512,
    .keys = keys_avx512,
    .weights = weights_avx512,
};

const struct cpu_kernels cpu_kernels_avx512vnni = {
    .name = "avx512vnni",
    .linear = linear_avx512,
    .quantise = quantise_avx2,
    .blocks = blocks_avx512vnni,
    .attention = attention_avx512,
    .merge = merge_avx512,
    .activate = activate_avx512,
    .exp = exp_avx512,
    .norm = norm_avx512,
    .add = add_avx512,
    .scale = scale_avx512,
    .keys = keys_avx512,
    .weights = weights_avx512,
};

const struct cpu_kernels cpu_kernels_avx512bf16 = {
    .name = "avx512bf16",
    .round = round_avx512bf16,
    .linear = linear_avx512bf16,
    .quantise = quantise_avx2,
    .blocks = blocks_avx512vnni,
    .attention = attention_avx512,
    .merge = merge_avx512,
    .activate = activate_avx512,
    .exp = exp_avx512,
    .norm = norm_avx512,
    .add = add_avx512,
    .scale = scale_avx512,
    .keys = keys_avx512,
    .weights = weights_avx512,
};
