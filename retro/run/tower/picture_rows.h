/* retro/run/tower/picture_rows.h: a text with pictures becomes the rows of a session: ids, and in
 * each picture's place the rows that the tower made of it (docs/spec/vision-model.md 5.3). */
#pragma once

#include "retro/model/model.h"
#include "retro/run/cache/session_text.h"

/* Positions of a row with multimodal RoPE: time, row, column. */
enum { PLACE_SECTIONS = 3 };

/* The rows of a picture as they lie in it, line by line. */
struct picture_grid {
    int rows, columns;
};

/* A picture whose rows are known. */
struct merged_picture {
    const float *rows; /* [tiles, tile_rows, columns of TOWER_PROJECTED]; the thumbnail is the last
                          tile. NULL: only names are wanted */
    int tiles, tile_rows;
    struct row_name name;     /* of its first row */
    struct picture_grid grid; /* of models that place rows by it (picture_rows_place), or that read
                                 them in lines: rows times columns is tile_rows */
};

/* Ids behind the lines of a picture's rows, of a model that reads them so (model_lines). */
struct picture_line_ids {
    int32_t between, last; /* behind a line that another one follows, and behind the last one */
};

/* A text that has the picture's id once for each of its pictures. */
struct picture_text {
    const int32_t *ids;
    int n;
    const struct merged_picture *pictures; /* [n_pictures] */
    int n_pictures;
    struct picture_line_ids line_ids;
};

/* The rows of a text. */
struct merged_text {
    int32_t *ids; /* [n] -1 - i is given row i */
    /* [n, sections] as a step_item has them: in the table of learned positions, where a picture
     * counts once, or picture_rows_place's; NULL of other models. */
    int32_t *positions;
    int sections;
    struct row_name *names; /* [n_given] of the given rows */
    float *given;           /* [n_given, columns of TOWER_PROJECTED] NULL: only names are wanted */
    int n, n_given;
};

/* Whether the model reads texts with pictures. */
bool model_sees(const struct model *model);
/* The id that stands for a picture in a text; where it is one of the vocabulary, a text alone may
 * have it. */
int model_picture_id(const struct model *model);
/* Rows that a picture of so many tiles takes, its tags included, and not the ids of its lines. */
int picture_rows_count(const struct model *model, int tiles, int tile_rows);
/* Whether each line of a picture's rows has an id behind it. */
bool model_lines(const struct model *model);
/* Rows of every picture, where the decoder lets them see each other; 0: they see those before them.
 */
int picture_rows_together(const struct model *model);
/* Likewise the most rows of a picture of which the tower has `viewed` at most. */
int picture_rows_most(const struct model *model, int viewed);
/* How many rows of its picture the first of n ids begins, itself among them, of a model that has
 * them see each other: one step reads all of these. 0: the id is of no such row. */
int picture_rows_left(const struct model *model, const int32_t *ids, int n);
/* How many of the next n ids of a text a step of `most` rows reads so that it ends within no
 * picture whose rows see each other; 0 where such a picture comes first and is longer. */
int picture_rows_fit(const struct model *model, const int32_t *ids, int n, int most);
/* Whether rows have positions by the grids of pictures: multimodal RoPE. */
bool model_places(const struct model *model);
/* Writes the positions of a merged text's rows, [n, PLACE_SECTIONS]. An id has one number thrice,
 * and a picture's rows have the number that an id would have in the place of the picture, to which
 * their row and column in the grid are added. Behind a picture the numbers go on after the largest.
 * `grids` are of all pictures in the text, whose given rows come in order. */
void picture_rows_place(int32_t *positions, const int32_t *ids, int n,
                        const struct picture_grid *grids);
/* STATUS_INVALID where the text has other pictures than places, or where tiles have tags and there
 * are more tiles than tags. */
enum status picture_rows_text(struct merged_text *out, const struct model *model,
                              const struct picture_text *text, struct error *e);
void merged_text_free(struct merged_text *text);
