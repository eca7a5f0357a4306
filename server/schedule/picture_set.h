/* server/schedule/picture_set.h: the pictures of a request, ready for the model's tower, which all answers to the
 * request share. Their rows have names from the start (retro/run/merge.h); the rows themselves are computed by the
 * engine's thread, and only where none are kept of an earlier prompt. */
#pragma once

#include <stdatomic.h>

#include "retro/run/arrange.h"
#include "retro/run/merge.h"
#include "retro/run/session.h"
#include "retro/text/tokenizer.h"

struct set_picture {
    float *pixels; /* [tiles, 3, height, width] owned */
    struct picture_cut cut;
    uint64_t hash[2]; /* of the pixels and the cut */
};

struct picture_set {
    atomic_int references;
    struct set_picture *list; /* [n] */
    int n;
};

/* Empty, with one reference and room for so many. */
struct picture_set *picture_set_open(int room);
/* Adds a picture, whose pixels are the set's from here on. */
void picture_set_add(struct picture_set *p, float *pixels, const struct picture_cut *cut);
struct picture_set *picture_set_hold(struct picture_set *p); /* of NULL: NULL */
void picture_set_release(struct picture_set *p);             /* of NULL: nothing */

/* ids with the model's picture id once for each picture become ids with the names of rows. */
enum status picture_set_merge(const struct picture_set *p, const struct model *m, struct tokens *ids, struct error *e);
/* All rows that the pictures give, in the order of the text. */
int picture_set_rows(const struct picture_set *p, const struct model *m);
/* Computes the rows behind the first `skip`: of pictures that have none there it leaves `rows` as they are. On the
 * thread that owns the pool. rows [picture_set_rows, d]. */
enum status picture_set_view(const struct picture_set *p, const struct model *m, struct session_pool *pool, int skip,
                             float *rows, struct error *e);
