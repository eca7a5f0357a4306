/* server/host/prompt/picture_input.h: how a model gets pictures: its tower's sizes, and what its
 * folder says of making pixels of a file. */
#pragma once

#include "retro/pictures/preprocessor.h"
#include "retro/run/tower/picture_rows.h"
#include "retro/run/tower/tile_order.h"
#include "server/host/prompt/picture_lines.h"
#include "server/host/prompt/picture_words.h"

/* Constant after opening; threads may share it. */
struct picture_input {
    const struct model *model; /* borrowed; only its sizes are looked at */
    struct preprocessor preprocessor;
    int most_rows;              /* of a picture in the tower */
    struct picture_words words; /* owned; empty: the model has no chat template that tells them */
    struct picture_line_ids line_ids; /* of a model that reads pictures in lines */
};

/* Reads the folder of a model that sees (model_sees). A picture of any size is made small enough
 * for `most_rows` of the tower. The tokenizer is the model's. STATUS_NOT_FOUND: the folder does not
 * say how pictures are made ready, so that it is not known what the model should see.
 * STATUS_UNSUPPORTED: it makes what the tower does not read. */
enum status picture_input_open(struct picture_input *input, const struct model *model,
                               const struct tokenizer *tokenizer, const char *folder, int most_rows,
                               struct error *e);

void picture_input_close(struct picture_input *input);
/* The most rows of a picture that one step reads, since they see each other; 0: they do not. */
int picture_input_most_together(const struct picture_input *input);
/* The fewest rows that a picture takes. */
int picture_input_least_rows(const struct picture_input *input);

/* A picture as the tower takes it. */
struct picture_input_tiles {
    float *pixels; /* [tiles, 3, height, width] owned */
    struct picture_cut cut;
};
/* From the bytes of a file. Any thread may ask. STATUS_INVALID, STATUS_TOO_LARGE. */
enum status picture_input_read(struct picture_input_tiles *out, const struct picture_input *input,
                               struct text_span file, struct error *e);
