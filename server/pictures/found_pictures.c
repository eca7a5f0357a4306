/* server/pictures/found_pictures.c: see found_pictures.h. */
#include "server/pictures/found_pictures.h"

#include <stdlib.h>
#include <string.h>

void found_pictures_free(struct found_pictures *pictures) {
    for (int i = 0; i < pictures->n; i++) free(pictures->list[i].problem);
    free(pictures->list);
    *pictures = (struct found_pictures){0};
}

const struct found_picture *found_pictures_find(const struct found_pictures *pictures,
                                                const char *document) {
    for (int i = 0; i < pictures->n; i++)
        if (strcmp(pictures->list[i].document, document) == 0) return &pictures->list[i];
    return NULL;
}
