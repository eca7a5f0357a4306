/* retro/run/tower/tower_layout.h: packed pictures laid out on the host: patches, the positions of
 * their rows, and the rows that the projector reads. */
#pragma once

#include "retro/model/model_private.h"
#include "retro/run/tower/tower.h"

/* A position between four entries of the table, and a projector's row of 2 x 2 rows, have four
 * corners. */
enum { TOWER_CORNERS = 4 };

struct tower_corner {
    int32_t *rows;  /* of the position table */
    float *weights; /* NULL of a table that is not resized */
};

/* Arrays are as long as the tower's rows allow. Rows of patches are in the order of lines. In a
 * tower that joins 2 x 2 of them in any picture (tower_spec.oblong) those four are neighbours, and
 * the rows of a window are, too. */
struct tower_layout {
    float mean[3], deviation[3]; /* of pixels, where the model conditions them; else 0 and 1 */
    float *patches; /* [n_patches, tower_patch_columns] in the order channel, frame, y, x, or y, x,
                       channel (tower_spec.by_pixel); lines */
    int n_pictures, n_windows, n_patches, n_rows, n_kept;
    struct attention_span *spans;   /* [n_pictures] */
    struct attention_span *windows; /* [n_windows] of towers with windows */
    int32_t *row_of;                /* [patches of a picture] the row of a patch, to work in */
    int32_t *places; /* [n_rows, 2] line and column of a row's patch, for rotary towers */
    int32_t *first;  /* [n_pictures] its first row */
    int32_t *patch_of, *class_of; /* [n_rows] which patch or class token a row is, -1: none */
    bool resized;                 /* some picture's positions lie between those of the table */
    struct tower_corner corners[TOWER_CORNERS]; /* [n_rows] */
    int32_t
        *kept[TOWER_CORNERS]; /* [n_kept] the rows that the projector reads; without shuffle one */
    /* Of towers that average squares of rows. */
    int most_means;
    int32_t *averaged; /* [rows of a square, most_means] the rows that mean i is of, i < n_kept */
    int32_t *no_rows;  /* [most_means] -1 each */
    /* Of towers that standardize these means. */
    int32_t *first_row; /* [most_means] 0 each */
    float *minus;       /* [most_means] -1 each */
};

/* Columns of a patch: 3 P P for each frame. */
int tower_patch_columns(const struct model *model);
/* The bytes that tower_layout_open takes of the host for a row. */
size_t tower_layout_row_bytes(const struct model *model);
/* Reads the conditioning of pixels from the device. */
enum status tower_layout_open(struct tower_layout *layout, const struct model *model, int max_rows,
                              struct error *e);
void tower_layout_close(struct tower_layout *layout); /* of a zeroed one: nothing */
/* Pictures of sizes that tower_check allows. */
void tower_layout_fill(struct tower_layout *layout, const struct model *model,
                       const struct tower_picture *pictures, int n);
