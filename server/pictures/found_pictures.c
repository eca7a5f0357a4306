/* server/pictures/found_pictures.c: see found_pictures.h. */
#include "server/pictures/found_pictures.h"

#include <stdlib.h>
#include <string.h>

void found_pictures_free(struct found_pictures *p) {
    for (int i = 0; i < p->n; i++) free(p->list[i].problem);
    free(p->list);
    *p = (struct found_pictures){0};
}

const struct found_picture *found_pictures_find(const struct found_pictures *p, const char *document) {
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->list[i].document, document) == 0) return &p->list[i];
    return NULL;
}
