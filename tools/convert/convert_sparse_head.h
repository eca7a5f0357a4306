/* tools/convert/convert_sparse_head.h: the head of bge-m3's sparse weights, which is published as a
 * file of torch.save beside the model. */
#pragma once

#include "config/base/base.h"

/* Makes folder/sparse_linear.safetensors of folder/sparse_linear.pt, in the types that it has.
 * STATUS_INVALID: a tensor is missing or has another shape than Linear(hidden, 1)'s, or the file is
 * there already. */
enum status sparse_head_convert(const char *folder, struct error *e);
