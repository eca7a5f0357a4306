/* retro/model/places.h: every weight of a model, one after another: where it is kept, what shape it has, which share of
 * it a rank keeps. Loading, releasing and writing a model are visits to all places. */
#pragma once

#include "retro/model/model_private.h"

enum place_form {
    PLACE_MATRIX, /* struct weight, packed */
    PLACE_GAMMA,  /* float *, of a norm */
    PLACE_VECTOR, /* float * */
    PLACE_TABLE   /* struct tensor of f32 */
};

/* The rows of a place are blocks, each split over ranks: Q, K, V; K, V; gate, up; or all rows as one. */
struct share {
    int blocks[3], n_blocks;
    struct portion mine[3]; /* of each block: this rank's; all of it when rows are not split */
    int whole_rows, whole_cols;
    int rows, cols, first_col; /* this rank's */
};
/* Where this rank keeps row i of the whole place, -1 when another does. */
int share_row(const struct share *s, int i);

struct place {
    char name[200];     /* of the tensor that fills it, or of the first of several */
    const char *prefix; /* of a layer's tensors in a checkpoint, NULL outside layers */
    const char *outer;  /* outside layers: the tensor's name in a checkpoint */
    enum slot slot;     /* within a layer */
    enum place_form form;
    void *at;
    bool encoder;   /* in the neighbour encoder */
    bool elsewhere; /* on another stage: checked, not kept */
    struct share share;
};

/* Calls visit for every place the model has, in one fixed order, until one fails. Layer specs must be set. */
typedef enum status place_visitor(void *context, const struct place *p, struct error *e);
enum status model_visit(struct model *m, place_visitor *visit, void *context, struct error *e);
