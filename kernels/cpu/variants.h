/* kernels/cpu/variants.h: the functions that exist once per instruction set; variants.c and variants_x86.c put them
 * into tables. */
#pragma once

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/cpu.h"

/* Kernels that have no better form in an extension (VNNI, BF16) than in the set it extends. */
#define KERNELS_OF(set) \
    .attention = attention_##set, .merge = merge_##set, .activate = activate_##set, .exp = exp_##set, \
    .softcap = softcap_##set, .norm = norm_##set, .square = square_##set, .add = add_##set, .scale = scale_##set, \
    .halve = halve_##set, .keys = keys_##set, .top = top_##set, .weights = weights_##set

void linear_generic(const struct linear_args *a, int first_tile, int n_tiles);
void linear_avx2(const struct linear_args *a, int first_tile, int n_tiles);
void linear_avx512(const struct linear_args *a, int first_tile, int n_tiles);
void linear_avx512bf16(const struct linear_args *a, int first_tile, int n_tiles);
void linear_amx(const struct linear_args *a, int first_tile, int n_tiles);

void panel_avx512(const struct panel_product *p, int panel);
void panels_avx512(const struct panel_product *p, int first_tile, int n_tiles);

void round_avx512bf16(uint16_t *to, const float *from, int n);

void blocks_generic(const struct block_product *p, int first_tile, int n_tiles);
void blocks_avx2(const struct block_product *p, int first_tile, int n_tiles);
void blocks_avxvnni(const struct block_product *p, int first_tile, int n_tiles);
void blocks_avx512(const struct block_product *p, int first_tile, int n_tiles);
void blocks_avx512vnni(const struct block_product *p, int first_tile, int n_tiles);

void quantise_generic(struct input_block *to, int step, const float *from, int blocks, enum dtype weights);
void quantise_avx2(struct input_block *to, int step, const float *from, int blocks, enum dtype weights);

void supers_generic(const struct block_product *p, int first_tile, int n_tiles);
void supers_avx2(const struct block_product *p, int first_tile, int n_tiles);
void supers_avxvnni(const struct block_product *p, int first_tile, int n_tiles);
void supers_avx512(const struct block_product *p, int first_tile, int n_tiles);
void supers_avx512vnni(const struct block_product *p, int first_tile, int n_tiles);

void quantise_supers_generic(struct super_input *to, int step, const float *from, int supers, enum dtype weights);
void quantise_supers_avx2(struct super_input *to, int step, const float *from, int supers, enum dtype weights);

void attention_generic(const struct attention_range *range);
void attention_avx2(const struct attention_range *range);
void attention_avx512(const struct attention_range *range);

void merge_generic(const struct attention_sums *to, const struct attention_sums *from, int row, int padded);
void merge_avx2(const struct attention_sums *to, const struct attention_sums *from, int row, int padded);
void merge_avx512(const struct attention_sums *to, const struct attention_sums *from, int row, int padded);

void activate_generic(float *y, const float *x, int n, enum activation activation);
void activate_avx2(float *y, const float *x, int n, enum activation activation);
void activate_avx512(float *y, const float *x, int n, enum activation activation);

void softcap_generic(float *x, int n, float cap);
void softcap_avx2(float *x, int n, float cap);
void softcap_avx512(float *x, int n, float cap);

void exp_generic(float *y, const float *x, int n);
void exp_avx2(float *y, const float *x, int n);
void exp_avx512(float *y, const float *x, int n);

void weights_generic(uint64_t *w, const float *logits, int n, double largest, double temperature);
void weights_avx2(uint64_t *w, const float *logits, int n, double largest, double temperature);
void weights_avx512(uint64_t *w, const float *logits, int n, double largest, double temperature);

void keys_generic(uint32_t *keys, const float *logits, int n);
uint32_t top_generic(const float *logits, int n);
void keys_avx2(uint32_t *keys, const float *logits, int n);
uint32_t top_avx2(const float *logits, int n);
void keys_avx512(uint32_t *keys, const float *logits, int n);
uint32_t top_avx512(const float *logits, int n);

void norm_generic(const struct norm_args *a, int row);
void norm_avx2(const struct norm_args *a, int row);
void norm_avx512(const struct norm_args *a, int row);

void square_generic(const struct square_rows_args *a, int row);
void square_avx2(const struct square_rows_args *a, int row);
void square_avx512(const struct square_rows_args *a, int row);

void add_generic(const struct add_args *a, int row);
void add_avx2(const struct add_args *a, int row);
void add_avx512(const struct add_args *a, int row);

void scale_generic(float *y, const float *x, int n, float scale);
void scale_avx2(float *y, const float *x, int n, float scale);
void scale_avx512(float *y, const float *x, int n, float scale);

void halve_generic(uint16_t *to, const float *from, int n);
void halve_avx2(uint16_t *to, const float *from, int n);
void halve_avx512(uint16_t *to, const float *from, int n);
