/* kernels/cpu/variants.h: the functions that exist once per instruction set; variants.c and
 * the variants_*.c of a machine put them into tables. Products are named one by one, all others
 * come from the lists of cpu.h. */
#pragma once

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/cpu.h"

/* A variant's name and the kernels that it has of a set. */
#define KERNEL_COLUMN(set, result, name, parameters, arguments, inner) .name = name##_##set,
#define KERNELS_OF(variant, set) COMMON_KERNELS(KERNEL_COLUMN, set).name = #variant

/* The functions of a file that is compiled for a set. */
#define KERNEL_FUNCTION(set, result, name, parameters, arguments, inner) \
    result name##_##set parameters { return inner arguments; }

#define KERNEL_PROTOTYPE(set, result, name, parameters, arguments, inner) \
    result name##_##set parameters;
COMMON_KERNELS(KERNEL_PROTOTYPE, generic)
COMMON_KERNELS(KERNEL_PROTOTYPE, avx2)
COMMON_KERNELS(KERNEL_PROTOTYPE, avx512)
COMMON_KERNELS(KERNEL_PROTOTYPE, neon)

#define PRODUCT_PROTOTYPES(set) \
    void linear_##set(const struct linear_args *a, int first_tile, int n_tiles); \
    void blocks_##set(const struct block_product *p, int first_tile, int n_tiles); \
    void supers_##set(const struct block_product *p, int first_tile, int n_tiles); \
    void quantise_##set(struct input_block *to, int step, const float *from, int blocks, \
                        enum dtype weights); \
    void quantise_supers_##set(struct super_input *to, int step, const float *from, int supers, \
                               enum dtype weights);
/* Not every set has every product: variants_x86.c and variants_arm.c say which set's it takes. */
PRODUCT_PROTOTYPES(generic)
PRODUCT_PROTOTYPES(avx2)
PRODUCT_PROTOTYPES(avxvnni)
PRODUCT_PROTOTYPES(avx512)
PRODUCT_PROTOTYPES(avx512vnni)
PRODUCT_PROTOTYPES(avx512bf16)
PRODUCT_PROTOTYPES(amx)
PRODUCT_PROTOTYPES(neon)
PRODUCT_PROTOTYPES(dotprod)
PRODUCT_PROTOTYPES(bf16)

void panel_avx512(const struct panel_product *product, int panel);
void panels_avx512(const struct panel_product *product, int first_tile, int n_tiles);
void panel_neon(const struct panel_product *product, int panel);
void panels_neon(const struct panel_product *product, int first_tile, int n_tiles);
void attention_avx512bf16(const struct attention_range *range);
void attention_bf16(const struct attention_range *range);
void round_avx512bf16(uint16_t *to, const float *from, int n);

void pair_neon(const struct pair_product *product, int pair);
void pairs_dotprod(const struct pair_product *product, int first_tile, int n_tiles);
void super_pairs_dotprod(const struct pair_product *product, int first_tile, int n_tiles);
void pairs_i8mm(const struct pair_product *product, int first_tile, int n_tiles);
void super_pairs_i8mm(const struct pair_product *product, int first_tile, int n_tiles);
void pair_bf16(const struct pair_product *product, int pair);
void pairs_bf16(const struct pair_product *product, int first_tile, int n_tiles);
void round_bf16(uint16_t *to, const float *from, int n);
