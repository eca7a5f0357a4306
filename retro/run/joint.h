/* retro/run/joint.h: texts and pictures as vectors of one space: the last row of a text and the pooled row of a
 * picture, each through its own matrix (CLIP, Radford et al. 2021, figure 3). */
#pragma once

#include "retro/model/model_private.h"
#include "retro/run/pooling.h"
#include "retro/run/tower.h"

struct joint;

/* For passes of at most so many texts or pictures; m has a joint space and is borrowed. */
enum status joint_measure(size_t *bytes, const struct model *m, int most, struct error *e);
enum status joint_open(struct joint **out, const struct model *m, int most, struct error *e);
void joint_close(struct joint *j); /* NULL: nothing */

/* Vectors [n, dimensions], host: unit length, cut to the first `dimensions` numbers before; zeros for a text without
 * rows. The rows are those behind the last norm. */
enum status joint_texts(struct joint *j, const struct pooling_rows *rows, int dimensions, float *vectors,
                        struct error *e);
/* The same of any number of pictures. STATUS_INVALID for a size that the tower does not read. */
enum status joint_pictures(struct joint *j, const struct tower_picture *pictures, int n, int dimensions, float *vectors,
                           struct error *e);
