/* tools/eval/parity_cases.h: reference cases as generators write them beside a model:
 * cases.safetensors and generation.safetensors. The layouts are those of tests/golden:
 *
 *     retro/  NAME.tokens [b, n], .neighbors [b, l, k, r], .logits [b, n, V];
 *             NAME.prompt [P], .neighbors [l, k, r], .tokens [G], .logits [G, V]
 *     t5/     NAME.encoder_tokens [b, Se], .decoder_tokens [b, Sd], .encoder_lengths,
 * .decoder_lengths [b], .logits [b, Sd, V]; NAME.encoder_tokens [Se], .prompt [P], .tokens [G],
 * .logits [G, V] hf/     NAME.input_ids [b, n], .attention_mask [b, n], .decoder_input_ids [b, Sd]
 * (T5), .logits [b, n, V]; generate.prompt [P] (T5: of the encoder), .tokens [G], .logits [G, V]
 *     vision/ parity_pictures.h
 *
 * Ids, masks and lengths are i32, of decoders alone also i64; logits are f32. The cases are
 * whatever the files hold, of any dimensions. */
#pragma once

#include "retro/run/session/session.h"
#include "retro/run/tower/picture_rows.h"
#include "retro/run/tower/tower.h"
#include "retro/weights/weights.h"

/* The pictures of a case; pointers are the file's, but for the list. */
struct parity_pictures {
    struct tower_picture *list; /* owned [n_tiles] */
    int n_tiles;
    const int32_t *tiles; /* [n] of each picture; NULL: one each */
    int n;
    bool expanded; /* the texts have an id for each row of a picture */
};

/* One case: b sequences of up to n ids, or one prompt and its greedy continuation. Pointers are the
 * file's, but for those that are owned. */
struct parity_case {
    char name[100];
    int b, n, vocab;
    int32_t *tokens; /* owned [b, n]; of a generation: prompt and generated ids, without the last */
    int *lengths;    /* owned [b], 1 .. n */
    int first_row;   /* of logits: 0; of a generation P - 1 */
    const float *logits;   /* [b, n - first_row, V] */
    const int32_t *greedy; /* [n - first_row] expected ids of a generation, or NULL */
    /* Retro */
    int l, k, r;
    const int32_t *neighbors; /* [b, l, k, r] */
    struct grid grid;
    /* Models with an encoder */
    int max_source;
    const int32_t *sources; /* [b, max_source] */
    int *source_lengths;    /* owned [b] */
    /* Models that see: first the texts, then the rows that they become */
    struct parity_pictures pictures;
    int text_length;
    struct merged_text *merged; /* owned [b] */
    int32_t *positions;         /* owned [b, n, sections], or NULL */
    int sections;               /* positions of a row */
    int32_t *narrowed[3];       /* owned: what the file holds as i64 */
    int n_narrowed;
};

void parity_case_free(struct parity_case *test);

/* A mask [b, n] of ones, then zeros, as lengths, which the caller frees; all of them `n` where
 * `stored` is NULL. STATUS_INVALID where it is no such mask. */
enum status parity_case_mask(struct parity_case *test, const struct stored_tensor *stored, int n,
                             int **out, struct error *e);

/* The case NAME of one file for a model of this shape. STATUS_INVALID names the tensor that is
 * missing or misshapen. */
enum status parity_case_read(struct parity_case *test, const char *name,
                             const struct weights *weights, const struct model *model,
                             struct error *e);

/* Calls visit for the name of each case of a file in order, until one fails. A file that is absent
 * has no cases. */
typedef enum status parity_visitor(void *context, const struct weights *w, const char *name,
                                   struct error *e);
enum status parity_cases_visit(const char *path, parity_visitor *visit, void *context,
                               struct error *e);
