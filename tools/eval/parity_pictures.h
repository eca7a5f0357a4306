/* tools/eval/parity_pictures.h: reference cases of vision models, in the layouts of
 * tests/golden/vision:
 *
 *     towers       NAME.images [T, 3, H, W], .output [T, rows, d], .projected [all rows, d]
 *     projectors   NAME.input [n, in], .output [n, out]
 *     LLaVA        NAME.tokens [b, t], .images, .num_image_tiles [pictures], .lengths [b], .logits
 * [b, n, V]; NAME.prompt [P], .images, .num_image_tiles, .tokens [G], .logits [G, V] transformers
 * NAME.input_ids [b, n] with an id for each row of a picture, .pixel_values [T, 3, H, W], .logits;
 *                  NAME.pixel_values, .last_hidden_state [T, rows, d]
 *
 * Pictures of several sizes are NAME.picture_0, .picture_1, ... [3, H, W] in place of pixel_values.
 * Texts without pictures may have an .attention_mask [b, n] as those of models without a tower.
 * n of LLaVA's logits are the rows of the merged text, cut to the model's longest. */
#pragma once

#include "tools/eval/parity_cases.h"

/* Rows of the first `tiles` of the pictures together. */
int parity_pictures_rows(const struct parity_pictures *pictures, const struct model *model,
                         enum tower_end end, int tiles);

/* Reads a text case of a model that sees. Texts are merged later: test->n counts merged rows. */
enum status parity_pictures_read(struct parity_case *test, const char *name,
                                 const struct weights *weights, const struct model *model,
                                 struct error *e);
/* Makes the rows of the case's texts: test->merged. */
enum status parity_pictures_merge(struct parity_case *test, const struct model *model,
                                  struct session_pool *pool, struct error *e);

/* The largest difference of all cases of a tower or projector in a file, by calling `report` for
 * each. */
typedef void parity_tower_reporter(void *context, const char *name, float max_abs);
enum status parity_towers_run(const char *path, const struct model *model,
                              parity_tower_reporter *report, void *context, struct error *e);
