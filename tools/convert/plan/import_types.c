/* tools/convert/plan/import_types.c: matrices become another type while they are imported (--to): rows are quantised as
 * they are joined, so no folder in the checkpoint's own type is written. */
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/convert/plan/import.h"

static enum dtype dtype_of(enum stored_dtype t) {
    return t == STORED_BF16 ? DTYPE_BF16 : t == STORED_F16 ? DTYPE_F16 : DTYPE_F32;
}

/* Matrices are what two axes of weights are; tables of positions and token types are small, and computed with as f32.
 */
static enum tensor_role role_of(const struct import_target *t) {
    static const char *const tables[] = {"embedding.position_embeddings.", "embedding.tokentype_embeddings.",
                                         "_relative_pos_emb."};
    for (size_t i = 0; i < ARRAY_COUNT(tables); i++)
        if (strstr(t->name, tables[i])) return TENSOR_OTHER;
    if (t->n_dims != 2) return TENSOR_OTHER;
    if (strcmp(t->name, "embedding.word_embeddings.weight") == 0) return TENSOR_WORD;
    return strstr(t->name, "output_layer.weight") ? TENSOR_OUTPUT : TENSOR_LINEAR;
}

static enum status check_keep(const struct import_plan *p, const struct convert_options *o, struct error *e) {
    for (int k = 0; k < o->n_keep; k++) {
        bool found = false;
        for (int i = 0; i < p->n && !found; i++) found = fnmatch(o->keep[k], p->targets[i].name, 0) == 0;
        if (!found) return error_set(e, STATUS_INVALID, "--keep %s: no tensor has such a name", o->keep[k]);
    }
    return STATUS_OK;
}

enum status import_choose_types(struct import_plan *p, const struct import_options *o, struct error *e) {
    for (int i = 0; i < p->n; i++) {
        struct import_target *t = &p->targets[i];
        t->type = t->to = dtype_of(t->from->dtype);
        if (o->types == NULL || p->pictures) continue;
        enum tensor_role role = role_of(t);
        bool stays = role == TENSOR_OTHER || conversion_keeps(o->types, t->name) ||
                     (dtype_quantised(o->types->dtype) && t->shape[1] % QUANTISE_BLOCK != 0);
        if (!stays) t->to = conversion_choose(role, o->types->dtype);
    }
    return o->types && !p->pictures ? check_keep(p, o->types, e) : STATUS_OK;
}

/* One row, whose values are read back; false: a number is not finite, or does not fit. */
static bool convert_row(const struct import_rows *r, const struct import_target *t, const char *row, int64_t i,
                        float *values) {
    int cols = (int)t->shape[1];
    float *back = values + cols;
    dtype_convert(values, DTYPE_F32, row, t->type, (size_t)cols);
    if (!dtype_quantised(t->to))
        return planes_write_floats(r->planes[0] + (size_t)i * (size_t)cols * dtype_bytes(t->to), t->to, values, back,
                                   cols);
    void *planes[MATRIX_PLANES] = {r->planes[0], r->planes[1], r->planes[2]};
    struct quantised_row to = planes_row(planes, t->to, cols, i);
    if (!quantise_row(t->to, to, values, NULL, cols)) return false;
    dequantise_row(back, t->to, to, cols);
    return true;
}

enum status import_convert_rows(struct import_rows *r, const struct import_target *t, const char *rows, int64_t first,
                                int64_t n, struct error *e) {
    size_t cols = (size_t)t->shape[1], row_bytes = cols * dtype_bytes(t->type);
    int64_t bad = -1;
#pragma omp parallel
    {
        struct deviation d = {0};
        float *values = xmalloc(2 * cols * sizeof *values);
#pragma omp for
        for (int64_t i = 0; i < n; i++) {
            if (convert_row(r, t, rows + (size_t)i * row_bytes, i, values)) {
                deviation_add(&d, values, values + cols, (int)cols);
            } else {
#pragma omp critical
                bad = first + i;
            }
        }
#pragma omp critical
        {
            r->deviation.squared += d.squared;
            r->deviation.total += d.total;
            r->deviation.largest = fmax(r->deviation.largest, d.largest);
        }
        free(values);
    }
    if (bad < 0) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "tensor %s: row %lld holds a number that is not finite or does not fit %s",
                     t->name, (long long)bad, dtype_name(t->to));
}
