/* retrieval/generation/generation_words.c: the file of words of a new generation. */
#include <stdlib.h>
#include <unistd.h>

#include "retrieval/generation/generation_private.h"

struct words_file {
    const char *path;
    int fd;
};

static enum status append_words(void *context, const void *bytes, size_t size, struct error *e) {
    const struct words_file *file = context;
    return disk_write(file->fd, file->path, bytes, size, e);
}

enum status words_write(const char *folder, struct words_writer *writer, struct error *e) {
    char *path = disk_path(folder, generation_file_name(GENERATION_FILE_WORDS, NULL));
    struct words_file file = {.path = path};
    enum status status = disk_create(&file.fd, path, e);
    if (status == STATUS_OK) {
        status = words_writer_end(writer, append_words, &file, e);
        if (status == STATUS_OK) status = disk_sync_open(file.fd, path, e);
        close(file.fd);
    }
    free(path);
    return status;
}
