/* retrieval/generation/generation_writer.h: files of a new generation that grow at their ends. */
#pragma once

#include "config/base/buffer.h"

/* An append-only file with a buffer, whose writes go through disk_write. */
struct generation_writer {
    char *path;
    int fd; /* -1: it is closed */
    struct buffer pending;
};
/* A new file `name` of the folder. */
enum status generation_writer_open(struct generation_writer *writer, const char *folder,
                                   const char *name, struct error *e);
/* Writes what the buffer holds. */
enum status generation_writer_flush(struct generation_writer *writer, struct error *e);
enum status generation_writer_append(struct generation_writer *writer, const void *bytes,
                                     size_t size, struct error *e);
/* Bytes that the buffer holds are lost. */
void generation_writer_close(struct generation_writer *writer);
