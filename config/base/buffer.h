/* config/base/buffer.h: a growing byte string, always NUL-terminated when not empty;
 * zero-initialise, free when done.
 */
#pragma once

#include "config/base/base.h"

struct buffer {
    char *data;
    size_t size; /* bytes in use, without the terminating NUL */
    size_t capacity;
};

/* Borrowed bytes; not NUL-terminated. */
struct text_span {
    const char *text;
    size_t size;
};

void buffer_append(struct buffer *buffer, const void *bytes, size_t n); /* n 0: bytes may be NULL */
void buffer_append_string(struct buffer *buffer, const char *s);
void buffer_printf(struct buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void buffer_clear(struct buffer *buffer); /* keeps the memory */
void buffer_free(struct buffer *buffer);

/* Reads a whole regular file of at most `limit` bytes into *buffer (cleared first); of an empty one
 * buffer->data is "". */
enum status file_read(const char *path, size_t limit, struct buffer *buffer, struct error *e);

/* A read-only memory map of a whole file; size 0 maps to data == NULL. */
struct file_map {
    const uint8_t *data;
    size_t size;
};
enum status file_map_open(struct file_map *map, const char *path, struct error *e);
void file_map_close(struct file_map *map);

/* The last name of a path: "docs" of "/usr/share/docs/", the real folder's name of "." and "..".
 * The caller frees it.
 */
char *path_name(const char *path);
