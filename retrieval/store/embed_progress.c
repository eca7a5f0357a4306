/* retrieval/store/embed_progress.c: see embed_progress.h. */
#include "retrieval/store/embed_progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "retrieval/generation/generation_private.h"
#include "retrieval/store/store_embed.h"

enum { PROGRESS_BYTES = 64 };

static char *progress_path(const char *dir, const char *end) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/%s/progress%s", dir, EMBEDDING_FOLDER, end);
    return path.data;
}

void embed_progress_write(const char *dir, const struct embed_progress *progress) {
    char *path = progress_path(dir, ""), *written = progress_path(dir, ".tmp");
    FILE *file = fopen(written, "we");
    bool whole = file != NULL;
    if (file) whole = fprintf(file, "%" PRId64 " %" PRId64 "\n", progress->done, progress->all) > 0;
    if (file) whole = fclose(file) == 0 && whole;
    if (whole) rename(written, path);
    free(path);
    free(written);
}

bool embed_progress_read(const char *dir, struct embed_progress *out) {
    struct buffer text = {0};
    struct error e;
    char *path = progress_path(dir, "");
    bool read = file_read(path, PROGRESS_BYTES, &text, &e) == STATUS_OK &&
                sscanf(text.data, "%" SCNd64 " %" SCNd64, &out->done, &out->all) == 2 &&
                out->done >= 0 && out->done <= out->all;
    buffer_free(&text);
    free(path);
    return read;
}
