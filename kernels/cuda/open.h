/* kernels/cuda/open.h: the CUDA backend's entry points for kernels/backend.c, in C. */
#pragma once

#include "kernels/backend.h"

/* Opens device `ordinal` into *b. STATUS_UNSUPPORTED when there is none such; `o` has nothing for a GPU. */
enum status cuda_open(struct backend *b, const struct backend_options *o, int ordinal, struct error *e);
