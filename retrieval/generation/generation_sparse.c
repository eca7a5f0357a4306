/* retrieval/generation/generation_sparse.c: the file of sparse weights of a new generation. Weights
 * lie in it already, and the ends of its chunks wait in a file. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "retrieval/generation/generation_private.h"
#include "retrieval/sparse/sparse_index.h"

struct sparse_file {
    const char *path;
    int fd;
};

static enum status append(void *context, const void *bytes, size_t size, struct error *e) {
    const struct sparse_file *file = context;
    return size > 0 ? disk_write(file->fd, file->path, bytes, size, e) : STATUS_OK;
}

static enum status write_behind(const char *path, const struct sparse_forward *forward,
                                struct error *e) {
    struct sparse_file file = {path, open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW)};
    if (file.fd < 0) return error_errno(e, "%s: open", path);
    enum status status = sparse_index_write(forward, SPARSE_PIECE, append, &file, e);
    if (status == STATUS_OK) status = disk_sync_open(file.fd, path, e);
    close(file.fd);
    return status;
}

enum status sparse_write(const char *folder, int64_t n_chunks, struct error *e) {
    char *path = disk_path(folder, generation_file_name(GENERATION_FILE_SPARSE, NULL));
    char *waiting = disk_path(folder, SPARSE_WAITING);
    struct file_map weights = {0}, ends = {0};
    enum status status = file_map_open(&weights, path, e);
    if (status == STATUS_OK) status = file_map_open(&ends, waiting, e);
    const struct sparse_forward forward = {(const struct sparse_weight *)(const void *)weights.data,
                                           (const uint64_t *)(const void *)ends.data, n_chunks};
    if (status == STATUS_OK &&
        (ends.size != (size_t)n_chunks * sizeof *forward.ends ||
         weights.size != forward.ends[n_chunks - 1] * sizeof *forward.weights))
        status = error_set(e, STATUS_IO, "%s: %zu bytes, not the ones written", path, weights.size);
    if (status == STATUS_OK) status = write_behind(path, &forward, e);
    file_map_close(&weights);
    file_map_close(&ends);
    if (status == STATUS_OK) status = disk_remove(waiting, e);
    free(path);
    free(waiting);
    return status;
}
