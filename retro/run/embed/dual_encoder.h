/* retro/run/embed/dual_encoder.h: texts and pictures as vectors of one space: the last row of a
 * text and the pooled row of a picture, each through its own matrix (CLIP, Radford et al. 2021,
 * figure 3). */
#pragma once

#include "retro/model/model_private.h"
#include "retro/run/embed/pooling.h"
#include "retro/run/tower/tower.h"

struct dual_encoder;

/* For passes of at most so many texts or pictures; m has a joint space and is borrowed. */
enum status dual_encoder_measure(size_t *bytes, const struct model *model, int most,
                                 struct error *e);
enum status dual_encoder_open(struct dual_encoder **out, const struct model *model, int most,
                              struct error *e);
void dual_encoder_close(struct dual_encoder *encoder); /* NULL: nothing */

/* Vectors [n, dimensions], host: unit length, cut to the first `dimensions` numbers before; zeros
 * for a text without rows. The rows are those behind the last norm. */
enum status dual_encoder_texts(struct dual_encoder *encoder, const struct pooling_rows *rows,
                               int dimensions, float *vectors, struct error *e);
/* The same of any number of pictures. STATUS_INVALID for a size that the tower does not read. */
enum status dual_encoder_pictures(struct dual_encoder *encoder,
                                  const struct tower_picture *pictures, int n, int dimensions,
                                  float *vectors, struct error *e);
