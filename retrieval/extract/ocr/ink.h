/* retrieval/extract/ocr/ink.h: what the ink of a page is made of: parts that hang together, most of
 * them letters; the angle of their lines; and rules. Places are pixels from the left top. */
#pragma once

#include "config/base/buffer.h"
#include "retrieval/extract/ocr/grey.h"

struct ink_box {
    int left, top, right, bottom; /* right and bottom are the first pixels behind it */
};
static inline int ink_width(const struct ink_box *box) { return box->right - box->left; }
static inline int ink_height(const struct ink_box *box) { return box->bottom - box->top; }

/* Appends struct ink_box: one for each part of ink, which is darker than the threshold; pixels that
 * touch by a corner belong together. At most `most` parts: false when there are more. */
bool ink_find_parts(const struct grey *picture, int threshold, size_t most, struct buffer *parts);
/* The height of most letters, about that of an x: 0 where nothing looks like letters. */
float ink_letter(const struct buffer *parts, const struct grey *picture);
/* Whether a part is of the size of a letter. */
bool ink_is_letter(const struct ink_box *part, float letter);

/* How the lines of letters lie. */
struct ink_lines {
    int quarters;   /* quarter turns clockwise that make them upright, as far as their feet tell */
    float degrees;  /* then so many degrees clockwise make them level */
    float sureness; /* of the four sides, how much the best is ahead of the next but one: from 1 */
};
struct ink_lines ink_find_lines(const struct buffer *parts, float letter);

/* Appends struct ink_box: straight rules, across and down, of a page that is level. */
void ink_find_rules(const struct grey *picture, int threshold, float letter, struct buffer *rules);
/* Paints boxes white. */
void ink_erase(struct grey *picture, const struct ink_box *boxes, size_t n);
