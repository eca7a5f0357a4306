/* retro/model/model_options.c: the types that a configuration asks for, and the type of keys and
 * values against the model and its device. */
#include <string.h>

#include "retro/model/model_private.h"

struct model_options model_options_of(int dtype, int cache_dtype) {
    static const enum dtype dtypes[] = {[MODEL_DTYPE_F32] = DTYPE_F32,
                                        [MODEL_DTYPE_F16] = DTYPE_F16,
                                        [MODEL_DTYPE_BF16] = DTYPE_BF16,
                                        [MODEL_DTYPE_FP8] = DTYPE_FP8,
                                        [MODEL_DTYPE_INT8] = DTYPE_INT8};
    struct model_options options = {.convert = dtype != MODEL_DTYPE_AUTO,
                                    .cache_given = cache_dtype != MODEL_DTYPE_AUTO};
    if (options.convert) options.dtype = dtypes[dtype];
    if (options.cache_given) options.cache_dtype = dtypes[cache_dtype];
    return options;
}

bool model_cache_narrows(const struct model *model) {
    return strcmp(model->backend->ops->name, "cpu") == 0 &&
           model->stacks[STACK_DECODER].dims.latent.rank == 0;
}

enum status model_check_cache(const struct model *model, const struct model_options *options,
                              struct error *e) {
    const char *device = model->backend->ops->name;
    bool narrow = options->cache_given && options->cache_dtype == DTYPE_INT8;
    if (!narrow || model_cache_narrows(model)) return STATUS_OK;
    if (strcmp(device, "cpu") != 0)
        return error_set(e, STATUS_UNSUPPORTED,
                         "model.cache_dtype int8 is for the device \"cpu\": the kernels of %s read "
                         "keys and values of 16 bits; set it to auto",
                         device);
    return error_set(e, STATUS_UNSUPPORTED,
                     "model.cache_dtype int8: a %s model has latent attention, which keeps one row "
                     "of %d numbers for all heads; set it to auto",
                     model->info.family, model->stacks[STACK_DECODER].dims.head_dim);
}
