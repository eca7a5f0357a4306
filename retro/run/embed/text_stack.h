/* retro/run/embed/text_stack.h: texts through a stack of layers, and one row of numbers for each:
 * the part that embedders (encoder.h) and cross-encoders (scorer.h) share. Texts are packed without
 * padding: each is a span of rows, so no work is spent on pad tokens and the result of a text does
 * not depend on the others of its pass. */
#pragma once

#include "retro/model/layer.h"
#include "retro/run/embed/encoder.h"
#include "retro/run/embed/pooling.h"
#include "retro/text/tokenizer.h"

struct text_stack {
    struct encoder_folder folder; /* read by the owner of this struct before text_stack_load */
    struct backend *backend;      /* borrowed */
    struct comm *comm;
    struct model *model;
    const struct stack *stack; /* BERT's, or a decoder's */
    struct tokenizer *tokenizer;
    struct scratch scratch;
    struct pooling *pooling;
    int max_rows;
    /* The pass that is laid out. Rows [starts[i], starts[i + 1]) are text i's. */
    int n_texts, n_rows, longest;      /* rows of the longest text */
    int32_t *ids, *positions, *starts; /* host: [max_rows], [max_rows], [max_rows + 1] */
    struct attention_span *spans;      /* [max_rows] */
    struct state_span *state_spans;    /* the same */
};

/* Opens the model of the folder on one rank. */
enum status text_stack_load(struct text_stack *stack, const struct model_options *options,
                            struct error *e);
/* Opens the tokenizer; STATUS_INVALID where it has more ids than the model. */
enum status text_stack_open_tokenizer(struct text_stack *stack, struct error *e);
/* Makes room for passes of max_rows rows. Reads the folder's modules behind pooling. */
enum status text_stack_open_rows(struct text_stack *stack, int max_rows, struct error *e);
/* Measures a loaded one with passes of max_rows rows. */
enum status text_stack_measure(struct encoder_bytes *out, const struct text_stack *stack,
                               int max_rows, struct error *e);
void text_stack_close(struct text_stack *stack); /* of a zeroed one: nothing */

/* Positions that a text can have; 0: no limit. */
int text_stack_positions(const struct text_stack *stack);

/* Empties the pass, where a call before ended with an error. */
void text_stack_begin(struct text_stack *stack);
/* Whether one more text of so many rows fits into the pass: there is room, and the texts there turn
 * by the same rotary table (dims.rope_long_after). */
bool text_stack_fits(const struct text_stack *stack, int rows);
/* The position of a text's next token, where *position is the next free one: the model may count
 * only tokens other than padding, and then padding's name in a text stands at the padding's place.
 */
int text_stack_place(const struct text_stack *stack, int32_t id, int *position);
void text_stack_add_row(struct text_stack *stack, int32_t id, int position);
void text_stack_end_text(struct text_stack *stack); /* of the rows since the one before */

/* Puts the embeddings of the rows' ids and positions into text_stack_input. */
void text_stack_embed(const struct text_stack *stack);
/* f32 [n_rows, hidden] on the device: the caller puts embeddings there, and then calls
 * text_stack_forward. */
struct tensor text_stack_input(const struct text_stack *stack);
/* The rows behind the last layer and its norm; the pass is empty afterwards. They stay until the
 * next pass is begun. */
struct pooling_rows text_stack_forward(struct text_stack *stack);
