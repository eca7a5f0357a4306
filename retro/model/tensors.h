/* retro/model/tensors.h: every weight of a model, one place after another: where it is kept, its
 * shape, the share of a rank, and the rows of the family's table that name its tensors. Loading,
 * releasing and writing a model are visits to all places. */
#pragma once

#include "retro/model/model_private.h"

enum place_form {
    PLACE_MATRIX,  /* struct weight, packed */
    PLACE_GAMMA,   /* float *, of a norm */
    PLACE_VECTOR,  /* float * */
    PLACE_TABLE,   /* struct tensor of f32 */
    PLACE_RELATIVE /* struct tensor of f32 [local H, 2 max_distance + 1], stored as [buckets, H] */
};

/* The rows of a place are blocks, each split over ranks: Q, K, V; K, V; gate, up; or all rows as
 * one (struct layer). */
enum { SHARE_BLOCKS = 5 };
struct share {
    int blocks[SHARE_BLOCKS], n_blocks;
    struct portion mine[SHARE_BLOCKS]; /* of each block: this rank's; all of it when rows are not
                                          split */
    int units; /* heads that rows in order of heads are of: key/value heads */
    int head;  /* rows of one query head */
    int whole_rows, whole_cols;
    int rows, cols, first_col; /* this rank's */
};
/* The row at which this rank keeps row i of the whole place, -1 when another rank keeps it. */
int share_row(const struct share *share, int i);

enum { TENSOR_NAME = 200 };

struct place {
    char name[TENSOR_NAME]; /* of its first tensor in the family's own spelling: the place's name in
                               model.packed */
    const char *prefix;     /* of a layer's tensors in a checkpoint, "" outside layers */
    const char *const
        *roots; /* [PART_ROOTS] outside layers, spellings of what stands before all names */
    const struct tensor_rows *rows;
    int expert; /* of a place that each expert has, each head, or each projector of the deepstack,
                   else 0 */
    int row;    /* the first of its rows; later rows with the same place are its other parts */
    bool bias;  /* the bias of a projection or norm: '*' in a name stands for "bias" */
    enum place_form form;
    void *at;
    enum stack_id stack; /* whose dims its shape comes from */
    bool outer;          /* outside layers */
    bool elsewhere;      /* on another stage: checked, not kept */
    struct share share;
};

/* Calls visit for every place the model has, in one fixed order, until one fails. Layer specs must
 * be set. */
typedef enum status place_visitor(void *context, const struct place *p, struct error *e);
enum status model_visit(struct model *model, place_visitor *visit, void *context, struct error *e);

/* Rows and columns as this rank keeps them: its share, but for a relative table, which is spread
 * over distances. */
void place_kept(const struct model *model, const struct place *place, int *rows, int *cols);

/* A router or the gate of a shared expert: small, and a change of it sends rows elsewhere. */
bool place_routes(const struct place *place);

/* Fixes how the checkpoint spells layers and which optional biases it has. Without the weights,
 * layers have the family's own spelling and no optional biases. Before the first visit. */
void model_resolve(struct model *model, const struct weights *weights);

/* A matrix of an expert that rows choose. */
bool place_is_expert(const struct place *place);

/* The name of spelling j of row i of the place, NULL when there is no such spelling. */
const char *place_spelling(const struct place *place, int i, int j, char name[TENSOR_NAME]);
