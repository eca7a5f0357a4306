/* config/base/buffer.c: the growing byte string, whole-file reads and read-only maps. See buffer.h.
 */
#include "config/base/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void reserve(struct buffer *buffer, size_t more) {
    size_t need;
    CHECK(!add_overflows(buffer->size, more, &need) && need < SIZE_MAX / 2);
    if (need + 1 <= buffer->capacity) return;
    size_t capacity = buffer->capacity ? buffer->capacity : 64;
    while (capacity < need + 1) capacity *= 2;
    buffer->data = xrealloc(buffer->data, capacity);
    buffer->capacity = capacity;
}

void buffer_append(struct buffer *buffer, const void *bytes, size_t n) {
    reserve(buffer, n);
    if (n > 0) memcpy(buffer->data + buffer->size, bytes, n);
    buffer->size += n;
    buffer->data[buffer->size] = '\0';
}

void buffer_append_string(struct buffer *buffer, const char *s) {
    buffer_append(buffer, s, strlen(s));
}

void buffer_printf(struct buffer *buffer, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    CHECK(n >= 0);
    reserve(buffer, (size_t)n);
    vsnprintf(buffer->data + buffer->size, (size_t)n + 1, format, again);
    buffer->size += (size_t)n;
    va_end(again);
    va_end(args);
}

void buffer_clear(struct buffer *buffer) {
    buffer->size = 0;
    if (buffer->data) buffer->data[0] = '\0';
}

void buffer_free(struct buffer *buffer) {
    free(buffer->data);
    *buffer = (struct buffer){0};
}

/* Opens a regular file for reading and returns its size. Devices, pipes and folders are refused by
 * name. */
static enum status open_regular(const char *path, int *fd, size_t *size, struct error *e) {
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return error_errno(e, "%s", path);
    if (fstat(*fd, &st) != 0) {
        error_errno(e, "%s", path);
    } else if (!S_ISREG(st.st_mode)) {
        error_set(e, STATUS_INVALID, "%s: not a regular file", path);
    } else {
        *size = (size_t)st.st_size;
        return STATUS_OK;
    }
    close(*fd);
    return e ? e->status : STATUS_IO;
}

static enum status read_all(int fd, const char *path, size_t limit, struct buffer *buffer,
                            struct error *e) {
    char block[1 << 16];
    for (;;) {
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_errno(e, "%s", path);
        if (n == 0) break;
        if (buffer->size + (size_t)n > limit)
            return error_set(e, STATUS_TOO_LARGE, "%s: more than the limit of %zu bytes", path,
                             limit);
        buffer_append(buffer, block, (size_t)n);
    }
    buffer_append(buffer, "", 0);
    return STATUS_OK;
}

enum status file_read(const char *path, size_t limit, struct buffer *buffer, struct error *e) {
    int fd;
    size_t size;
    buffer_clear(buffer);
    enum status status = open_regular(path, &fd, &size, e);
    if (status) return status;
    if (size > limit)
        status =
            error_set(e, STATUS_TOO_LARGE, "%s: %zu bytes, the limit is %zu", path, size, limit);
    else
        status = read_all(fd, path, limit, buffer, e);
    close(fd);
    return status;
}

enum status file_map_open(struct file_map *map, const char *path, struct error *e) {
    int fd;
    size_t size;
    *map = (struct file_map){0};
    enum status status = open_regular(path, &fd, &size, e);
    if (status) return status;
    if (size > 0) {
        void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            status = error_errno(e, "%s: map of %zu bytes", path, size);
        else
            *map = (struct file_map){p, size};
    }
    close(fd);
    return status;
}

void file_map_close(struct file_map *map) {
    if (map->data) munmap((void *)(uintptr_t)map->data, map->size);
    *map = (struct file_map){0};
}

char *path_name(const char *path) {
    char *copy = xstrdup(path), *real = NULL;
    size_t size = strlen(copy);
    while (size > 1 && copy[size - 1] == '/') size--;
    copy[size] = '\0';
    const char *slash = strrchr(copy, '/'), *name = slash ? slash + 1 : copy;
    if ((strcmp(name, ".") == 0 || strcmp(name, "..") == 0) &&
        (real = realpath(copy, NULL)) != NULL) {
        slash = strrchr(real, '/');
        name = slash + 1;
    }
    char *result = xstrdup(name);
    free(copy);
    free(real);
    return result;
}
