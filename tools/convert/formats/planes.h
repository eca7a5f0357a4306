/* tools/convert/formats/planes.h: the tensors of a file that a quantised matrix is. */
#pragma once

#include "kernels/quantise.h"
#include "retro/weights/weights.h"

/* A matrix is up to three tensors of a file: X, X.scale, X.minimum. */
enum { MATRIX_PLANES = 3 };
extern const char *const plane_suffixes[MATRIX_PLANES];
int planes_of(enum dtype dtype);
enum stored_dtype plane_dtype(enum dtype dtype, int plane);
size_t plane_element_bytes(enum dtype dtype, int plane);
int64_t plane_cols(int64_t cols, enum dtype dtype, int plane); /* elements of a row */
/* Row i of planes of a quantised type. */
struct quantised_row planes_row(void *const planes[MATRIX_PLANES], enum dtype dtype, int cols,
                                int64_t i);
/* Writes a row [cols] of floats as another type of floats, and reads it back; false: a number does
 * not fit. */
bool planes_write_floats(void *to, enum dtype dtype, const float *w, float *back, int cols);
