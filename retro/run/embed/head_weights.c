/* retro/run/embed/head_weights.c: see head_weights.h. */
#include "retro/run/embed/head_weights.h"

#include <stdlib.h>

#include "kernels/tensor.h"
#include "retro/weights/gguf_blocks.h"

bool head_stores_floats(const struct stored_tensor *stored) {
    return stored->dtype == STORED_F32 || stored->dtype == STORED_F16 ||
           stored->dtype == STORED_BF16;
}

bool head_stores_rows(const struct stored_tensor *stored) {
    return head_stores_floats(stored) || (stored->dtype == STORED_BLOCKS && stored->n_dims == 2);
}

void head_copy_floats(float *out, const struct stored_tensor *stored, size_t first, size_t n) {
    const float *floats = stored->data;
    const uint16_t *halves = stored->data;
    for (size_t i = 0; i < n; i++)
        out[i] = stored->dtype == STORED_F32   ? floats[first + i]
                 : stored->dtype == STORED_F16 ? f16_to_f32(halves[first + i])
                                               : bf16_to_f32(halves[first + i]);
}

void head_copy_row(float *out, const struct stored_tensor *stored, int row, int cols) {
    if (stored->dtype == STORED_BLOCKS) {
        size_t bytes = block_row_bytes(stored->form, cols);
        blocks_widen(out, stored->form, (const uint8_t *)stored->data + (size_t)row * bytes, cols);
    } else {
        head_copy_floats(out, stored, (size_t)row * (size_t)cols, (size_t)cols);
    }
}

enum status head_read_floats(const struct weights *weights, const char *name, int rows, int cols,
                             float **out, struct error *e) {
    const struct stored_tensor *stored = weights_find(weights, name);
    char shape[120];
    if (stored == NULL) return error_set(e, STATUS_INVALID, "tensor %s is missing", name);
    bool fits = stored->n_dims == (cols ? 2 : 1) && stored->shape[0] == rows &&
                (cols == 0 || stored->shape[1] == cols);
    if (!fits || !head_stores_rows(stored))
        return error_set(e, STATUS_INVALID,
                         "tensor %s is %s %s, the model makes it F32, F16 or BF16 [%d, %d]", name,
                         stored_dtype_name(stored->dtype),
                         stored_shape_text(stored, shape, sizeof shape), rows, cols);
    size_t n = (size_t)rows * (size_t)max_int(cols, 1);
    *out = xmalloc(n * sizeof **out);
    if (cols == 0) head_copy_floats(*out, stored, 0, n);
    for (int i = 0; i < rows && cols > 0; i++)
        head_copy_row(*out + (size_t)i * (size_t)cols, stored, i, cols);
    return STATUS_OK;
}
