/* tools/convert/formats/planes.c: a matrix as the tensors of a file: its values, and where it is
 * quantised their scales and minima. See convert.h. */
#include <math.h>

#include "tools/convert/formats/planes.h"

const char *const plane_suffixes[MATRIX_PLANES] = {"", ".scale", ".minimum"};

int planes_of(enum dtype dtype) {
    if (dtype == DTYPE_INT4) return 3;
    return dtype == DTYPE_INT8 || dtype == DTYPE_MXFP4 ? 2 : 1;
}

enum stored_dtype plane_dtype(enum dtype dtype, int plane) {
    if (plane > 0) return dtype == DTYPE_MXFP4 ? STORED_U8 : STORED_F16;
    switch (dtype) {
        case DTYPE_F32: return STORED_F32;
        case DTYPE_F16: return STORED_F16;
        case DTYPE_BF16: return STORED_BF16;
        case DTYPE_INT8: return STORED_I8;
        case DTYPE_INT4:
        case DTYPE_MXFP4: return STORED_U8;
        default: break; /* in no file */
    }
    return STORED_F32;
}

size_t plane_element_bytes(enum dtype dtype, int plane) {
    if (dtype == DTYPE_MXFP4) return 1;
    return plane > 0 ? sizeof(uint16_t) : dtype_quantised(dtype) ? 1 : dtype_bytes(dtype);
}

int64_t plane_cols(int64_t cols, enum dtype dtype, int plane) {
    if (plane > 0) return cols / QUANTISE_BLOCK;
    return dtype_two_a_byte(dtype) ? cols / 2 : cols;
}

struct quantised_row planes_row(void *const planes[MATRIX_PLANES], enum dtype dtype, int cols,
                                int64_t i) {
    return quantised_row_at((struct quantised_row){planes[0], planes[1], planes[2]}, dtype, cols,
                            i);
}

bool planes_write_floats(void *to, enum dtype dtype, const float *w, float *back, int cols) {
    dtype_convert(to, dtype, w, DTYPE_F32, (size_t)cols);
    dtype_convert(back, DTYPE_F32, to, dtype, (size_t)cols);
    bool finite = true;
    for (int j = 0; j < cols; j++) finite = finite && isfinite(back[j]);
    return finite;
}
