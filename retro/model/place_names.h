/* retro/model/place_names.h: the names that other kinds of files have for places: GGUF's, and those
 * of Megatron before Megatron-Core. A family's rows say what its own files call the same place, so
 * these are read either way. */
#pragma once

#include "retro/model/spec.h"

/* Without the layer's prefix and the ending ".weight" or ".bias". */
struct place_name {
    size_t place; /* as in struct tensor_row */
    enum part part;
    const char *name;
};

struct place_names {
    const struct place_name *rows;
    size_t n;
};

extern const struct place_names gguf_layer_names, gguf_outer_names;

/* The family's row for the place and part of such a name, with this ending (NULL: with any); NULL:
 * it has none. */
const struct tensor_row *place_names_row(const struct place_names *names,
                                         const struct tensor_rows *rows, struct text_span name,
                                         const char *ending);
/* The row of part `part` of a place, or that of all its parts; NULL: the family has none. */
const struct tensor_row *place_row_find(const struct tensor_rows *rows, size_t place,
                                        enum part part);
/* The name for a family's row; NULL: there is none. */
const char *place_names_find(const struct place_names *names, const struct tensor_row *row);
