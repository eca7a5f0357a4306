/* kernels/cpu/arm/variants_arm.c: the tables of Arm's instruction sets, and which of them this
 * processor has. Builds for other machines, and with CPU=generic, leave this file and the kernels
 * it names out. */
#include <sys/auxv.h>

#include "kernels/cpu/variants.h"

/* Bits of AT_HWCAP and AT_HWCAP2 of Linux on arm64. */
enum { CAP_DOTPROD = 1 << 20, CAP2_I8MM = 1 << 13, CAP2_BF16 = 1 << 14 };

static bool has_dotprod(void) { return (getauxval(AT_HWCAP) & CAP_DOTPROD) != 0; }
static bool has_i8mm(void) { return has_dotprod() && (getauxval(AT_HWCAP2) & CAP2_I8MM) != 0; }
static bool has_bf16(void) { return has_i8mm() && (getauxval(AT_HWCAP2) & CAP2_BF16) != 0; }

/* A set's products; all quantise inputs, and multiply by f32 weights, as NEON does. */
#define PRODUCTS_OF(floats, quants) \
    .panel_rows = 12, .panel = panel_neon, .panels = panels_neon, .linear = linear_##floats, \
    .quantise = quantise_neon, .blocks = blocks_##quants, .quantise_supers = quantise_supers_neon, \
    .supers = supers_##quants

const struct cpu_kernels cpu_kernels_neon = {
    PRODUCTS_OF(neon, neon),
    KERNELS_OF(neon, neon),
};

const struct cpu_kernels cpu_kernels_dotprod = {
    .supported = has_dotprod,
    PRODUCTS_OF(neon, dotprod),
    .pair = pair_neon,
    .pairs = pairs_dotprod,
    KERNELS_OF(dotprod, neon),
};

const struct cpu_kernels cpu_kernels_i8mm = {
    .supported = has_i8mm,
    PRODUCTS_OF(neon, dotprod),
    .pair = pair_neon,
    .pairs = pairs_i8mm,
    KERNELS_OF(i8mm, neon),
};

const struct cpu_kernels cpu_kernels_bf16 = {
    .supported = has_bf16,
    PRODUCTS_OF(bf16, dotprod),
    .round = round_bf16,
    .pair = pair_bf16,
    .pairs = pairs_bf16,
    .attention_rounds = true,
    .attention = attention_bf16,
    KERNELS_BESIDE_ATTENTION(KERNEL_COLUMN, neon).name = "bf16",
};
