/* kernels/cpu/delta_generic.c: the rules of layers whose heads keep a matrix in portable C: the
 * reference of delta_vector.h. */
#include "kernels/cpu/variants.h"

/* The values that the row writes: of a delta net less those that the state has already. */
static void make_write(const struct delta_rows *rows, int t, const float *k, const float *v,
                       float *write) {
    const float decay = rows->decay[(int64_t)t * rows->heads],
                strength = rows->strength[(int64_t)t * rows->heads];
    int columns = rows->value_dim;
    for (int c = 0; c < columns; c++) write[c] = 0;
    for (int i = 0; i < rows->key_dim && rows->rule == DELTA_CORRECTS; i++) {
        const float *s = rows->state + (int64_t)i * columns;
        for (int c = 0; c < columns; c++) write[c] += k[i] * s[c];
    }
    for (int c = 0; c < columns; c++) write[c] = (v[c] - write[c] * decay) * strength;
}

static void delta_row(const struct delta_rows *rows, int t) {
    const float *q = rows->q + t * rows->apart, *k = rows->k + t * rows->apart,
                *v = rows->v + t * rows->v_apart;
    const float decay = rows->decay[(int64_t)t * rows->heads];
    float *y = rows->y + t * rows->y_apart, write[DELTA_MAX_HEAD];
    int columns = rows->value_dim;
    make_write(rows, t, k, v, write);
    for (int c = 0; c < columns; c++) y[c] = 0;
    for (int i = 0; i < rows->key_dim; i++) {
        float *s = rows->state + (int64_t)i * columns;
        for (int c = 0; c < columns; c++) {
            s[c] = s[c] * decay + k[i] * write[c];
            y[c] += q[i] * s[c];
        }
    }
    for (int c = 0; c < columns && rows->rule == DELTA_ADDS; c++) y[c] += rows->skip * v[c];
}

static inline void delta_vector(const struct delta_rows *rows) {
    for (int t = 0; t < rows->rows; t++) delta_row(rows, t);
}

DELTA_KERNELS(KERNEL_FUNCTION, generic)
