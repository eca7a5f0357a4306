/* retro/run/tower/tower.h: pictures through a model's vision tower and projector: rows of a
 * decoder's width, or the tower's own. The layers are layer.c's; this file makes their input of
 * patches and positions (docs/spec/vision-model.md 1, 2) and joins them with the projector
 * (4, 5.4). */
#pragma once

#include "retro/model/model.h"

struct tower;

/* A picture, or one tile of it, as a processor has resized and normalised it. */
struct tower_picture {
    const float *pixels; /* host [3, height, width] */
    int height, width;
};

enum tower_end {
    TOWER_ROWS,      /* those of the tower's last layer, class tokens first; in the tower's order
                        (tower_layout.h) */
    TOWER_PROJECTED, /* what a decoder reads: columns in the place of a word, then those that are
                        added behind its first layers (tower_spec.deepstack) */
    TOWER_POOLED /* one row a picture, in the space that it shares with texts; not of unit length */
};

/* Whether the model has a tower: the functions below are for those that have. */
bool model_has_tower(const struct model *model);
/* How pictures become patches. */
struct tower_patch {
    int side, frames; /* pixels of a side; how often a picture is repeated in a patch */
    int joined;       /* patches along each side of what becomes one projected row */
    bool any_grid;    /* a picture may have any number of such rows, in any lines and columns */
};
struct tower_patch tower_patch_of(const struct model *model);
/* Whether the tower reads pictures of this size. STATUS_INVALID, STATUS_TOO_LARGE. */
enum status tower_check(const struct model *model, int height, int width, struct error *e);
/* Rows and columns that a picture becomes, of a size that tower_check allows. */
int tower_count(const struct model *model, enum tower_end end, int height, int width);
int tower_columns(const struct model *model, enum tower_end end);
/* Lines and columns of the grid that the projected rows of a picture's patches are, line by line.
 */
void tower_grid(const struct model *model, int height, int width, int *lines, int *columns);

/* The bytes that a tower takes beside its weights, those on the host, which are few, among them.
 * max_rows: of the tower, in one pass. */
enum status tower_measure(size_t *bytes, const struct model *model, int max_rows, struct error *e);
/* m is borrowed; it has a tower or a projector. */
enum status tower_open(struct tower **out, const struct model *model, int max_rows,
                       struct error *e);
void tower_close(struct tower *tower); /* NULL: nothing */

/* Writes the pictures' rows, one picture after another, to host memory [sum of tower_count,
 * tower_columns]. A row does not depend on the other pictures. STATUS_TOO_LARGE when one picture
 * has more than max_rows. On several ranks all of them run the same pictures, and all get the rows.
 */
enum status tower_run(struct tower *tower, const struct tower_picture *pictures, int n,
                      enum tower_end end, float *rows, struct error *e);

/* The same in parts, between which the device can do other work. Begins one pass over the first of
 * the pictures, as many as max_rows allow: *taken. Their pixels are not needed any more when it
 * returns. A pass that was begun before and has not ended is forgotten. */
enum status tower_begin(struct tower *tower, const struct tower_picture *pictures, int n,
                        enum tower_end end, int *taken, struct error *e);
/* Computes the next layer of the pass and waits for it. With the last one it writes the pass's
 * rows, and *done is true.
 */
enum status tower_advance(struct tower *tower, float *rows, bool *done, struct error *e);
/* Rows [n, projector.in] through the projector alone; n is at most max_rows, or as many as these
 * become where the tower joins 2 x 2 rows. */
enum status tower_project(struct tower *tower, const float *in, int n, float *rows,
                          struct error *e);
