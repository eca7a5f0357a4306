/* retrieval/generation/generation_vectors.c: the indexes of a new generation, of its chunks and of
 * its pictures, made of vectors that wait in files. For exact search such a file becomes the index,
 * and beside an index that compresses it stays. */
#include <inttypes.h>
#include <stdlib.h>

#include "retrieval/generation/generation_private.h"

/* Vectors that wait in a file for their index. */
struct waiting_vectors {
    const struct collection_info *info;
    const char *name;
    enum generation_file index;
    const char *factory;
    int64_t n;
    int dim;
};

static enum status build_faiss(const struct waiting_vectors *vectors, const char *source,
                               const char *target, struct error *e) {
    struct file_map map;
    enum status status = file_map_open(&map, source, e);
    if (status) return status;
    if (map.size != (size_t)vectors->n * (size_t)vectors->dim * sizeof(float))
        status = error_set(e, STATUS_IO, "%s: %zu bytes, not the ones written", source, map.size);
    else
        status = index_build_faiss(target, vectors->factory, (const float *)(const void *)map.data,
                                   vectors->n, vectors->dim, e);
    file_map_close(&map);
    return status;
}

/* The vectors of a build with FAISS are needed no more, unless its index compresses them, as that
 * of chunks may. */
static enum status settle_vectors(const char *folder, const struct waiting_vectors *vectors,
                                  const char *source, struct error *e) {
    if (index_is_lossless(vectors->factory)) return disk_remove(source, e);
    char *target =
        disk_path(folder, generation_file_name(GENERATION_FILE_ORIGINALS, vectors->info));
    enum status status = disk_rename(source, target, e);
    if (status == STATUS_OK) status = disk_sync(target, e);
    free(target);
    return status;
}

static enum status build_index(const char *folder, const struct waiting_vectors *vectors,
                               struct error *e) {
    char *source = disk_path(folder, vectors->name);
    char *target = disk_path(folder, generation_file_name(vectors->index, vectors->info));
    bool exact = generation_is_exact(vectors->factory);
    enum status status =
        exact ? disk_rename(source, target, e) : build_faiss(vectors, source, target, e);
    if (status == STATUS_OK && !exact) status = settle_vectors(folder, vectors, source, e);
    if (status == STATUS_OK) status = disk_sync(target, e);
    free(source);
    free(target);
    return status;
}

static enum status choose_indexes(struct collection_info *info, const char *asked,
                                  struct error *e) {
    struct picture_space *pictures = &info->pictures;
    char factory[INDEX_FACTORY_SIZE] = "";
    if (index_resolve(factory, asked, info->n_chunks, info->dim, e)) return e->status;
    info->index_factory = xstrdup(factory);
    if (pictures->embedder == NULL) return STATUS_OK;
    factory[0] = '\0';
    /* Where exact search was asked for, by its name, it is what is wanted of pictures too. */
    const char *of_pictures = generation_is_exact(info->index_factory) ? INDEX_EXACT : NULL;
    if (pictures->n > 0 && index_resolve(factory, of_pictures, pictures->n, pictures->dim, e))
        return e->status;
    pictures->index_factory = xstrdup(factory);
    return STATUS_OK;
}

enum status vectors_build(const char *folder, struct collection_info *info, const char *asked,
                          struct error *e) {
    if (choose_indexes(info, asked, e)) return e->status;
    const struct waiting_vectors vectors = {.info = info,
                                            .name = VECTORS_WAITING,
                                            .index = GENERATION_FILE_VECTORS,
                                            .factory = info->index_factory,
                                            .n = info->n_chunks,
                                            .dim = info->dim};
    const struct waiting_vectors pictures = {.info = info,
                                             .name = PICTURES_WAITING,
                                             .index = GENERATION_FILE_PICTURES,
                                             .factory = info->pictures.index_factory,
                                             .n = info->pictures.n,
                                             .dim = info->pictures.dim};
    if (build_index(folder, &vectors, e)) return e->status;
    return pictures.n > 0 ? build_index(folder, &pictures, e) : STATUS_OK;
}
