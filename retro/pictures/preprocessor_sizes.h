/* retro/pictures/preprocessor_sizes.h: the sizes that processors choose by a picture's own. */
#pragma once

#include "retro/pictures/preprocessor.h"

/* The size that a picture is resized to. STATUS_INVALID where a processor takes no picture so
 * narrow. */
enum status resized_size(struct picture_size *out, const struct preprocessor *preprocessor,
                         struct picture_size given, struct error *e);
/* PREPROCESSOR_LLAVA_NEXT: the grid that wastes the fewest pixels on the picture, in pixels. */
struct picture_size grid_choose(const struct preprocessor *preprocessor, struct picture_size given);
/* PREPROCESSOR_TILES: the grid whose shape is nearest to the picture's, in tiles. */
struct picture_size tiles_choose(const struct preprocessor *preprocessor,
                                 struct picture_size given);
