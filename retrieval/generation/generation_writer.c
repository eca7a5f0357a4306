/* retrieval/generation/generation_writer.c: see generation_writer.h. */
#include "retrieval/generation/generation_writer.h"

#include <stdlib.h>
#include <unistd.h>

#include "retrieval/generation/generation_private.h"

enum { WRITER_BUFFER = 1 << 20 };

enum status generation_writer_open(struct generation_writer *writer, const char *folder,
                                   const char *name, struct error *e) {
    writer->path = disk_path(folder, name);
    return disk_create(&writer->fd, writer->path, e);
}

enum status generation_writer_flush(struct generation_writer *writer, struct error *e) {
    if (writer->pending.size == 0) return STATUS_OK;
    enum status status =
        disk_write(writer->fd, writer->path, writer->pending.data, writer->pending.size, e);
    buffer_clear(&writer->pending);
    return status;
}

enum status generation_writer_append(struct generation_writer *writer, const void *bytes,
                                     size_t size, struct error *e) {
    buffer_append(&writer->pending, bytes, size);
    return writer->pending.size >= WRITER_BUFFER ? generation_writer_flush(writer, e) : STATUS_OK;
}

void generation_writer_close(struct generation_writer *writer) {
    if (writer->fd >= 0) close(writer->fd);
    writer->fd = -1;
    free(writer->path);
    writer->path = NULL;
    buffer_free(&writer->pending);
}
