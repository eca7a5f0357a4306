/* retro/run/tower/tile_order.h: the rows of a picture that came as tiles, in the order in which
 * LLaVA-NeXT's decoder reads them: the whole picture first, then the tiles put together line by
 * line, without the lines and columns that only fill them up, and the newline's row behind each
 * line (transformers' pack_image_features and unpad_image). */
#pragma once

#include "retro/run/tower/tower.h"

/* How a picture was cut. Tile 0 is the whole; 1 + row columns + column are its parts. */
struct picture_cut {
    int tiles, height, width;            /* height and width of a tile */
    int rows, columns;                   /* of the tiles behind the first; 0: there are none */
    int original_height, original_width; /* of the picture as it came */
};

/* Pixels of the picture while it is read: as it came, or as the tower has it, whichever are more. A
 * tower of one size makes many of a picture of a single one. */
static inline int64_t picture_cut_pixels(const struct picture_cut *cut) {
    int64_t original = (int64_t)cut->original_height * cut->original_width,
            made = (int64_t)cut->tiles * cut->height * cut->width;
    return original > made ? original : made;
}
/* Whether the model reads pictures so. */
bool model_arranges(const struct model *model);
/* Rows that the decoder reads of the picture: of models that do not arrange, those of all tiles. */
int tile_order_count(const struct model *model, const struct picture_cut *cut);
/* to [tile_order_count, d] from the tiles' rows [tiles, rows of a tile, d], d columns of
 * TOWER_PROJECTED. Waits for the device. */
enum status tile_order_rows(float *to, const float *from, const struct model *model,
                            const struct picture_cut *cut, struct error *e);
