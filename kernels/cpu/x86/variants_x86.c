/* kernels/cpu/x86/variants_x86.c: the tables of x86's instruction sets, and which of them this
 * processor has. Builds for other machines, and with CPU=generic, leave this file and the kernels
 * it names out. */
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/variants.h"

/* F16C came before AVX2 in every processor; clang 14 does not know its name here. */
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

/* Bit 4 of EAX, leaf 7, subleaf 1, which compilers older than the instruction cannot name. */
static bool has_avxvnni(void) {
    unsigned a, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static bool has_avx512vnni(void) { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
static bool has_avx512bf16(void) {
    return has_avx512vnni() && __builtin_cpu_supports("avx512bf16");
}

/* Bits 22 and 24 of EDX, leaf 7. Linux gives a process the registers of tiles when it asks for them
 * (Linux 5.16, arch/x86/xstate.html): their 8 KiB are part of what every switch of its threads then
 * keeps. */
static bool has_amx(void) {
    enum {
        ASK_FOR_STATE = 0x1023,
        TILE_DATA = 18
    }; /* ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA of Linux */
    unsigned a, b, c, d;
    bool has = has_avx512bf16() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1) &&
               (d >> 24 & 1);
    return has && syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA) == 0;
}

/* A set's products: of matrices in floats, and of quantised blocks; all quantise inputs as AVX2
 * does. */
#define PRODUCTS_OF(floats, quants) \
    .linear = linear_##floats, .quantise = quantise_avx2, .blocks = blocks_##quants, \
    .quantise_supers = quantise_supers_avx2, .supers = supers_##quants
/* Of registers of 512 bits. */
#define WIDE_PANELS .panel_rows = 14, .panel = panel_avx512, .panels = panels_avx512

const struct cpu_kernels cpu_kernels_avx2 = {
    .supported = has_avx2,
    PRODUCTS_OF(avx2, avx2),
    KERNELS_OF(avx2, avx2),
};

const struct cpu_kernels cpu_kernels_avxvnni = {
    .supported = has_avxvnni,
    PRODUCTS_OF(avx2, avxvnni),
    KERNELS_OF(avxvnni, avx2),
};

const struct cpu_kernels cpu_kernels_avx512 = {
    .supported = has_avx512,
    PRODUCTS_OF(avx512, avx512),
    WIDE_PANELS,
    KERNELS_OF(avx512, avx512),
};

const struct cpu_kernels cpu_kernels_avx512vnni = {
    .supported = has_avx512vnni,
    PRODUCTS_OF(avx512, avx512vnni),
    WIDE_PANELS,
    KERNELS_OF(avx512vnni, avx512),
};

const struct cpu_kernels cpu_kernels_avx512bf16 = {
    .supported = has_avx512bf16,
    .round = round_avx512bf16,
    PRODUCTS_OF(avx512bf16, avx512vnni),
    WIDE_PANELS,
    .attention_rounds = true,
    .attention = attention_avx512bf16,
    KERNELS_BESIDE_ATTENTION(KERNEL_COLUMN, avx512).name = "avx512bf16",
};

const struct cpu_kernels cpu_kernels_amx = {
    .supported = has_amx,
    .round = round_avx512bf16,
    PRODUCTS_OF(amx, avx512vnni),
    WIDE_PANELS,
    KERNELS_OF(amx, avx512),
};
