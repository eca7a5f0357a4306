/* server/pictures/found_pictures.h: what became of the pictures that a search found for a prompt:
 * the model reads them as pictures, or why it reads their captions alone. */
#pragma once

#include "config/base/base.h"

struct found_picture {
    const char *document; /* the id of the picture's, which the hits hold */
    char *problem;        /* owned: why it does not stand in the prompt; NULL: it does */
};

/* Of one search, the most similar first; each document once. Zeroed: none were found, or the model
 * reads no pictures.
 */
struct found_pictures {
    struct found_picture *list; /* [n] */
    int n;
};

void found_pictures_free(struct found_pictures *pictures);
/* NULL: the document is none of them. */
const struct found_picture *found_pictures_find(const struct found_pictures *pictures,
                                                const char *document);
