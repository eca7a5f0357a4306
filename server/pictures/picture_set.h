/* server/pictures/picture_set.h: the pictures of a request, ready for the model's tower, which all
 * answers to the request share. Their rows have names from the start
 * (retro/run/cache/session_text.h); the rows themselves are computed by the engine's thread, and
 * only where none are kept of an earlier prompt. */
#pragma once

#include <stdatomic.h>

#include "retro/run/session/session.h"
#include "retro/run/tower/picture_rows.h"
#include "retro/run/tower/tile_order.h"
#include "retro/text/tokenizer.h"

struct set_picture {
    float *pixels; /* [tiles, 3, height, width] owned, but in a set of others' pictures */
    struct picture_cut cut;
    struct row_name name;     /* of its first row */
    int rows;                 /* that the decoder reads */
    int taken;                /* rows of the text, those of ids behind its lines among them */
    struct picture_grid grid; /* of the given rows, where the model places them by it or reads them
                                 in lines */
};

struct picture_set {
    atomic_int references;
    const struct model *model; /* borrowed: it reads them */
    struct picture_line_ids line_ids;
    struct set_picture *list; /* [n] */
    struct row_name *names;   /* of all rows, in the order of the pictures */
    int n, n_rows;
    struct picture_set *lenders[2]; /* held: the pixels are theirs; NULL: they are the set's own */
};

/* Empty, with one reference and room for so many. */
struct picture_set *picture_set_open(const struct model *model, struct picture_line_ids line_ids,
                                     int room);
/* Adds a picture, whose pixels are the set's from here on. */
void picture_set_add(struct picture_set *set, float *pixels, const struct picture_cut *cut);
/* A set with the pictures of `around` and, behind the first n_before of these, the n of `within`
 * that `chosen` numbers. `around` may be NULL. */
struct picture_set *picture_set_join(struct picture_set *around, int n_before,
                                     struct picture_set *within, const int *chosen, int n);
struct picture_set *picture_set_hold(struct picture_set *set); /* of NULL: NULL */
void picture_set_release(struct picture_set *set);             /* of NULL: nothing */

/* ids with the model's picture id once for each picture become ids with given rows. */
enum status picture_set_merge(const struct picture_set *set, struct tokens *ids, struct error *e);

/* The positions of n rows that begin a merged text with the set's pictures, owned, as a step_item
 * has them; NULL: they are the rows' numbers. */
int32_t *picture_set_place(const struct picture_set *set, const int32_t *rows, int n);

/* The rows of a set as they are computed, part by part: on the thread that owns the pool. */
struct picture_pass {
    const struct picture_set *set;
    struct session_pool *pool;
    float *rows;     /* [n_rows, d] borrowed */
    int next, tile;  /* the picture that is computed, and its first tile that is not yet */
    int first, pass; /* the picture's first row; tiles of the pass that has begun, 0: none has */
    float *seen;     /* owned: the tiles' rows as the tower makes them */
};
/* Leaves rows before the first `skip` as they are. */
void picture_pass_begin(struct picture_pass *pass, const struct picture_set *set,
                        struct session_pool *pool, int skip, float *rows);
/* About a layer of the tower more. *done: all rows are there. */
enum status picture_pass_advance(struct picture_pass *pass, bool *done, struct error *e);
/* At the end, or before it. */
void picture_pass_end(struct picture_pass *pass);
