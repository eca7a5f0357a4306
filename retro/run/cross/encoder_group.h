/* retro/run/cross/encoder_group.h: texts that the model's encoder reads at once, packed row after
 * row without padding. Each is a span of its own, so its rows do not depend on the other texts of
 * the group. Every row has a place in the cross cache, where its keys and values are kept. */
#pragma once

#include "retro/model/layer.h"

struct encoder_group {
    const struct model *model;
    const struct stack *encoder;
    struct scratch scratch;
    int max_rows;
    size_t bytes; /* of scratch */
    int n_rows, n_spans;
    /* Host arrays [max_rows]. */
    int32_t *ids, *positions, *slot_row_of;
    struct attention_span *spans;
};

/* Fills in what there will be and allocates nothing. */
enum status encoder_group_measure(struct encoder_group *group, const struct model *model,
                                  int max_rows, struct error *e);
/* After encoder_group_measure. */
enum status encoder_group_open(struct encoder_group *group, struct error *e);
void encoder_group_close(struct encoder_group *group); /* after encoder_group_measure or on zeros */

void encoder_group_clear(struct encoder_group *group);
/* Adds a text of n ids; n_rows + n may not exceed max_rows. Row i goes to row slot_row + i of the
 * cross cache. */
void encoder_group_add(struct encoder_group *group, const int32_t *ids, int n, int slot_row);
/* The group's rows, with nothing in them yet. */
struct tensor encoder_group_rows(const struct encoder_group *group);
/* The same rows = the encoder's output, before its final norm. `cross` as in struct pass; NULL
 * where no layer has cross attention. */
struct tensor encoder_group_run(const struct encoder_group *group, cross_function *cross,
                                void *context);
