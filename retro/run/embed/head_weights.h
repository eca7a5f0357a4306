/* retro/run/embed/head_weights.h: tensors of the small modules behind an embedder's rows, as floats
 * on the host. */
#pragma once

#include "retro/weights/weights.h"

/* Whether a tensor stores F32, F16 or BF16. */
bool head_stores_floats(const struct stored_tensor *stored);
/* Whether it stores these, or is a matrix of GGUF's blocks. */
bool head_stores_rows(const struct stored_tensor *stored);
/* Row `row` of `cols` numbers of such a matrix. */
void head_copy_row(float *out, const struct stored_tensor *stored, int row, int cols);
/* Numbers [first, first + n) of a tensor that stores floats. */
void head_copy_floats(float *out, const struct stored_tensor *stored, size_t first, size_t n);
/* The numbers of a float tensor of this shape, or of a matrix of GGUF's blocks, which the caller
 * frees; cols 0: a vector. STATUS_INVALID: it is missing, or has another shape or type. */
enum status head_read_floats(const struct weights *weights, const char *name, int rows, int cols,
                             float **out, struct error *e);
