/* retrieval/store/embed_progress.h: how far the second set of vectors of a collection is
 * (store_embed.h), in DIR/embedding/progress: two numbers on a line. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct embed_progress {
    int64_t done, all; /* chunks */
};

/* Puts it in the place of the one before. An obstacle is no failure: nobody is told then. */
void embed_progress_write(const char *dir, const struct embed_progress *progress);
/* False where none goes on, or what is there cannot be read. */
bool embed_progress_read(const char *dir, struct embed_progress *out);
