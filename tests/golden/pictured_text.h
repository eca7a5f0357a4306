/* tests/golden/pictured_text.h: a golden model that reads pictures, and texts with two of them, for
 * tests that read such texts in every cut and compare the bits of logits. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "retro/run/session/session.h"
#include "retro/run/tower/picture_rows.h"
#include "tests/folder.h"

enum { HIDDEN = 32, VOCAB = 64, WORDS = 140, PICTURES = 2, MORE = 20, DRAWN = 3 };
/* Ids behind the lines of a picture, of models that have them. */
enum { LINE_END = 51, PICTURE_END = 52 };
/* Rows of a picture, and columns of such a row: those of a word, and of a deepstack of two. */
enum { MOST_PICTURE_ROWS = 18, MOST_COLUMNS = 3 * HIDDEN };

struct pictured_model {
    struct backend *backend;
    struct comm *comm;
    struct model *model;
    struct session_pool *pool;
    int columns; /* of a picture's row */
};

/* Two sessions of `most` rows. */
static inline void pictured_open(struct pictured_model *f, const char *folder, int most,
                                 int kept_blocks) {
    struct error e = {0};
    const struct backend_options options = {.threads = 2};
    const struct session_limits limits = {.max_sessions = 2,
                                          .max_tokens = most,
                                          .max_step_rows = 2 * most,
                                          .max_logit_rows = most,
                                          .max_given = 2 * most,
                                          .max_shares = 2,
                                          .kv_dtype = DTYPE_F32,
                                          .kept_blocks = kept_blocks,
                                          .kept_states = kept_blocks};
    if (backend_open(&f->backend, "cpu", &options, &e) || comm_open_single(&f->comm, &e) ||
        model_open(&f->model, folder, f->backend, f->comm, &(struct model_options){0}, &e) ||
        session_pool_open(&f->pool, f->model, &limits, &e))
        fail_msg("%s", e.text);
    f->columns = tower_columns(f->model, TOWER_PROJECTED);
    assert_in_range(f->columns, HIDDEN, MOST_COLUMNS);
}

static inline void pictured_close(struct pictured_model *f) {
    session_pool_close(f->pool);
    model_close(f->model);
    comm_close(f->comm);
    backend_close(f->backend);
}

/* Where the pictures of a text stand among its words, and their rows. */
struct picture_place {
    int at, rows;
    struct picture_grid grid; /* zeros: the model needs none */
};

/* A text of so many words, of which two are pictures; the second is made of `seed`. */
static inline void pictured_text_make(struct merged_text *out, const struct pictured_model *f,
                                      const struct picture_place places[PICTURES], int seed,
                                      int words) {
    struct merged_picture pictures[PICTURES];
    struct error e = {0};
    int32_t ids[WORDS + MORE];
    float rows[PICTURES][MOST_PICTURE_ROWS * MOST_COLUMNS];
    for (int i = 0; i < words; i++)
        ids[i] = i * 7 % 60 + (i * 7 % 60 == model_picture_id(f->model));
    for (int i = 0; i < PICTURES; i++) {
        int from = i == 1 ? seed : 1;
        ids[places[i].at] = model_picture_id(f->model);
        for (int j = 0; j < places[i].rows * f->columns; j++)
            rows[i][j] = (float)((from * 31 + j * 17) % 101) / 50 - 1;
        pictures[i] = (struct merged_picture){
            .rows = rows[i], .tiles = 1, .tile_rows = places[i].rows, .grid = places[i].grid};
        pictures[i].name.picture[0] = from;
    }
    const struct picture_text text = {ids, words, pictures, PICTURES, {LINE_END, PICTURE_END}};
    int lines = model_lines(f->model) ? places[0].grid.rows + places[1].grid.rows : 0;
    if (picture_rows_text(out, f->model, &text, &e)) fail_msg("%s", e.text);
    assert_int_equal(out->n, words - PICTURES + places[0].rows + places[1].rows + lines);
}

static inline int count_given(const int32_t *ids, int n) {
    int given = 0;
    for (int i = 0; i < n; i++) given += ids[i] < 0;
    return given;
}

/* The logits of the text's last row, and of rows that are drawn behind it. */
struct pictured_reading {
    float logits[DRAWN + 1][VOCAB];
    int reused;
};

static inline void take_logits(const struct pictured_model *f, struct tensor logits, float *to) {
    struct error e = {0};
    backend_download(f->backend, to, logits.data, (size_t)logits.rows * VOCAB * sizeof *to);
    assert_int_equal(backend_sync(f->backend, &e), STATUS_OK);
}

/* The n rows of a text from `at` on. */
static inline struct step_item make_item(const struct pictured_model *f, struct session *s,
                                         const struct merged_text *t, int at, int n) {
    bool given = count_given(t->ids + at, n) > 0;
    return (struct step_item){
        .session = s,
        .tokens = t->ids + at,
        .n_tokens = n,
        .names = t->names,
        .positions = t->positions ? t->positions + at * t->sections : NULL,
        .rows = given ? t->given + count_given(t->ids, at) * f->columns : NULL,
        .n_logits = at + n == t->n};
}

static inline void take_step(const struct pictured_model *f, const struct step_item *item,
                             struct tensor *logits) {
    struct error e = {0};
    if (session_step(f->pool, item, 1, logits, &e)) fail_msg("%s", e.text);
}

/* Reads what s has not, in steps of so many rows at most, and draws rows behind it. */
static inline void read_on(const struct pictured_model *f, struct session *s,
                           const struct merged_text *t, int rows, struct pictured_reading *out) {
    struct tensor logits;
    for (int at = session_length(s); at < t->n; at = session_length(s)) {
        int n = picture_rows_fit(f->model, t->ids + at, t->n - at, rows);
        struct step_item item = make_item(f, s, t, at, n);
        take_step(f, &item, &logits);
    }
    take_logits(f, logits, out->logits[0]);
    for (int i = 0; i < DRAWN; i++) {
        const int32_t id = 11 + i;
        struct step_item item = {
            .session = s, .tokens = &id, .n_tokens = 1, .names = t->names, .n_logits = 1};
        take_step(f, &item, &logits);
        take_logits(f, logits, out->logits[i + 1]);
    }
}

/* Takes over what is there of the text's first `most` rows, and reads the others. */
static inline void read_text(const struct pictured_model *f, const struct merged_text *t, int most,
                             int rows, struct pictured_reading *out) {
    struct session *s;
    struct error e = {0};
    if (session_open(&s, f->pool, (struct grid){0}, &e)) fail_msg("%s", e.text);
    const struct session_text text = {
        .ids = t->ids, .n = most, .positions = t->positions, .names = t->names};
    out->reused = session_reuse(s, &text);
    read_on(f, s, t, rows, out);
    session_close(s);
}
