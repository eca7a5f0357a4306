/* tests/scale/export.c: the texts, vectors and queries of a made collection as plain files, for
 * programs that are measured beside ours.
 *
 *     texts.txt, queries.txt      a chunk, or a query, a line
 *     vectors.f32, queries.f32    [n][SCALE_DIM] floats of this machine */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/base/memory.h"
#include "tests/scale/scale.h"

enum { EXPORTED_QUERIES = 500 };

/* Two files that grow together, by a text and its vector. */
struct export_files {
    FILE *texts, *vectors;
};

static FILE *file_create(const char *dir, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return fopen(path, "wb");
}

static void files_close(struct export_files *files, struct error *e) {
    FILE *both[] = {files->texts, files->vectors};
    for (size_t i = 0; i < ARRAY_COUNT(both); i++) {
        bool failed = both[i] == NULL || ferror(both[i]) != 0;
        if (both[i] != NULL && fclose(both[i]) != 0) failed = true;
        if (failed)
            error_set(e, STATUS_IO, "an exported file cannot be written: %s", strerror(errno));
    }
}

static void files_add(const struct export_files *files, const char *text, size_t size,
                      const float *vector) {
    if (files->texts == NULL || files->vectors == NULL) return;
    fwrite(text, 1, size, files->texts);
    fputc('\n', files->texts);
    fwrite(vector, sizeof *vector, SCALE_DIM, files->vectors);
}

static enum status export_chunks(const struct scale *scale, struct error *e) {
    struct export_files files = {.texts = file_create(scale->dir, "texts.txt"),
                                 .vectors = file_create(scale->dir, "vectors.f32")};
    struct scale_document *made = xcalloc(1, sizeof *made);
    for (int64_t number = 0; number < scale->n_chunks / SCALE_DOCUMENT_CHUNKS; number++) {
        scale_document_make(scale, made, number, 0);
        for (int i = 0; i < SCALE_DOCUMENT_CHUNKS; i++) {
            const struct chunk_range *chunk = &made->chunks[i];
            files_add(&files, made->text.data + chunk->start, chunk->end - chunk->start,
                      made->vectors + (size_t)i * SCALE_DIM);
        }
    }
    buffer_free(&made->text);
    free(made);
    files_close(&files, e);
    return e->status;
}

static enum status export_queries(const struct scale *scale, struct error *e) {
    struct export_files files = {.texts = file_create(scale->dir, "queries.txt"),
                                 .vectors = file_create(scale->dir, "queries.f32")};
    struct buffer text = {0};
    float vector[SCALE_DIM];
    for (int i = 0; i < EXPORTED_QUERIES; i++) {
        buffer_clear(&text);
        scale_query_make(scale, i, &text, vector);
        files_add(&files, text.data, text.size, vector);
    }
    buffer_free(&text);
    files_close(&files, e);
    return e->status;
}

enum status scale_export(struct scale *scale, struct error *e) {
    if (mkdir(scale->dir, 0777) != 0 && errno != EEXIST)
        return error_set(e, STATUS_IO, "%s: %s", scale->dir, strerror(errno));
    if (export_chunks(scale, e)) return e->status;
    return export_queries(scale, e);
}
