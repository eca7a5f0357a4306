/* tools/convert/plan/import_types.c: matrices become another type while they are imported (--to):
 * rows are quantised as they are joined, so no folder in the checkpoint's own type is written. */
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/convert/plan/import.h"

static enum dtype dtype_of(enum stored_dtype dtype) {
    return dtype == STORED_BF16 ? DTYPE_BF16 : dtype == STORED_F16 ? DTYPE_F16 : DTYPE_F32;
}

/* Matrices are what two axes of weights are; tables of positions and token types are small, and
 * computed with as f32.
 */
static enum tensor_role role_of(const struct import_target *target) {
    static const char *const tables[] = {"embedding.position_embeddings.",
                                         "embedding.tokentype_embeddings.", "_relative_pos_emb."};
    for (size_t i = 0; i < ARRAY_COUNT(tables); i++)
        if (strstr(target->name, tables[i])) return TENSOR_OTHER;
    if (target->n_dims != 2) return TENSOR_OTHER;
    if (strcmp(target->name, "embedding.word_embeddings.weight") == 0) return TENSOR_WORD;
    return strstr(target->name, "output_layer.weight") ? TENSOR_OUTPUT : TENSOR_LINEAR;
}

static enum status check_keep(const struct import_plan *plan, const struct convert_options *options,
                              struct error *e) {
    for (int k = 0; k < options->n_keep; k++) {
        bool found = false;
        for (int i = 0; i < plan->n && !found; i++)
            found = fnmatch(options->keep[k], plan->targets[i].name, 0) == 0;
        if (!found)
            return error_set(e, STATUS_INVALID, "--keep %s: no tensor has such a name",
                             options->keep[k]);
    }
    return STATUS_OK;
}

enum status import_choose_types(struct import_plan *plan, const struct import_options *options,
                                struct error *e) {
    for (int i = 0; i < plan->n; i++) {
        struct import_target *target = &plan->targets[i];
        target->type = target->to = dtype_of(target->from->dtype);
        if (options->types == NULL || plan->pictures) continue;
        enum tensor_role role = role_of(target);
        bool stays =
            role == TENSOR_OTHER || conversion_keeps(options->types, target->name) ||
            (dtype_quantised(options->types->dtype) && target->shape[1] % QUANTISE_BLOCK != 0);
        if (!stays) target->to = conversion_choose(role, options->types->dtype);
    }
    return options->types && !plan->pictures ? check_keep(plan, options->types, e) : STATUS_OK;
}

/* One row, whose values are read back; false: a number is not finite, or does not fit. */
static bool convert_row(const struct import_rows *rows, const struct import_target *target,
                        const char *row, int64_t i, float *values) {
    int cols = (int)target->shape[1];
    float *back = values + cols;
    dtype_convert(values, DTYPE_F32, row, target->type, (size_t)cols);
    if (!dtype_quantised(target->to))
        return planes_write_floats(
            rows->planes[0] + (size_t)i * (size_t)cols * dtype_bytes(target->to), target->to,
            values, back, cols);
    void *planes[MATRIX_PLANES] = {rows->planes[0], rows->planes[1], rows->planes[2]};
    struct quantised_row to = planes_row(planes, target->to, cols, i);
    if (!quantise_row(target->to, to, values, NULL, cols)) return false;
    dequantise_row(back, target->to, to, cols);
    return true;
}

enum status import_convert_rows(struct import_rows *import_rows, const struct import_target *target,
                                const char *rows, int64_t first, int64_t n, struct error *e) {
    size_t cols = (size_t)target->shape[1], row_bytes = cols * dtype_bytes(target->type);
    int64_t bad = -1;
#pragma omp parallel
    {
        struct deviation d = {0};
        float *values = xmalloc(2 * cols * sizeof *values);
#pragma omp for
        for (int64_t i = 0; i < n; i++) {
            if (convert_row(import_rows, target, rows + (size_t)i * row_bytes, i, values)) {
                deviation_add(&d, values, values + cols, (int)cols);
            } else {
#pragma omp critical
                bad = first + i;
            }
        }
#pragma omp critical
        {
            import_rows->deviation.squared += d.squared;
            import_rows->deviation.total += d.total;
            import_rows->deviation.largest = fmax(import_rows->deviation.largest, d.largest);
        }
        free(values);
    }
    if (bad < 0) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "tensor %s: row %lld holds a number that is not finite or does not fit %s",
                     target->name, (long long)bad, dtype_name(target->to));
}
