/* retro/run/cache/prefix_file.c: see prefix_file.h. */
#include "retro/run/cache/prefix_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/base/hash.h"

static const char mark[8] = "RETROPF1";
enum { ALIGNMENT = 64, MOST_IDS = 1 << 24 };
static const uint64_t MOST_IMAGE = (uint64_t)1 << 48;

struct prefix_head {
    char mark[8];
    uint64_t identity, n_ids, image_bytes;
};

/* Where the image begins. */
static size_t image_offset(uint64_t n_ids) {
    size_t end = sizeof(struct prefix_head) + (size_t)n_ids * sizeof(int32_t);
    return (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

enum status prefix_file_parse(struct prefix_file *file, struct text_span bytes, const char *name,
                              struct error *e) {
    struct prefix_head head;
    uint64_t checksum;
    size_t most = bytes.size < sizeof checksum ? 0 : bytes.size - sizeof checksum;
    if (most < sizeof head || memcmp(bytes.text, mark, sizeof mark) != 0)
        return error_set(e, STATUS_CORRUPT, "%s: no file of a prefix's rows", name);
    memcpy(&head, bytes.text, sizeof head);
    if (head.n_ids < 1 || head.n_ids > MOST_IDS || head.image_bytes > MOST_IMAGE)
        return error_set(e, STATUS_CORRUPT, "%s: %llu ids and %llu bytes of rows", name,
                         (unsigned long long)head.n_ids, (unsigned long long)head.image_bytes);
    uint64_t size = image_offset(head.n_ids) + head.image_bytes;
    if (size != most)
        return error_set(e, STATUS_CORRUPT, "%s: %zu bytes, expected %llu", name, bytes.size,
                         (unsigned long long)(size + sizeof checksum));
    memcpy(&checksum, bytes.text + most, sizeof checksum);
    if (hash_bytes(bytes.text, most, 0) != checksum)
        return error_set(e, STATUS_CORRUPT, "%s: its checksum does not fit", name);
    *file = (struct prefix_file){
        .identity = head.identity,
        .ids = (const int32_t *)(const void *)(bytes.text + sizeof head),
        .n = (int)head.n_ids,
        .image = {bytes.text + image_offset(head.n_ids), (size_t)head.image_bytes},
    };
    return STATUS_OK;
}

static void print_file(const struct prefix_file *file, struct buffer *out) {
    struct prefix_head head = {.identity = file->identity,
                               .n_ids = (uint64_t)file->n,
                               .image_bytes = (uint64_t)file->image.size};
    static const char zeros[ALIGNMENT];
    memcpy(head.mark, mark, sizeof mark);
    buffer_append(out, &head, sizeof head);
    buffer_append(out, file->ids, (size_t)file->n * sizeof *file->ids);
    buffer_append(out, zeros, image_offset(head.n_ids) - out->size);
    buffer_append(out, file->image.text, file->image.size);
    uint64_t checksum = hash_bytes(out->data, out->size, 0);
    buffer_append(out, &checksum, sizeof checksum);
}

static enum status write_all(int fd, const struct buffer *buffer, const char *path,
                             struct error *e) {
    for (size_t done = 0; done < buffer->size;) {
        ssize_t n = write(fd, buffer->data + done, buffer->size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_errno(e, "%s: write", path);
        done += (size_t)n;
    }
    return fsync(fd) == 0 ? STATUS_OK : error_errno(e, "%s: fsync", path);
}

static enum status write_new(const struct buffer *buffer, const char *path, struct error *e) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return error_errno(e, "%s: create", path);
    enum status status = write_all(fd, buffer, path, e);
    close(fd);
    return status;
}

enum status prefix_file_write(const struct prefix_file *file, const char *path, struct error *e) {
    struct buffer bytes = {0}, temporary = {0};
    print_file(file, &bytes);
    buffer_printf(&temporary, "%s.tmp", path);
    enum status status = write_new(&bytes, temporary.data, e);
    if (status == STATUS_OK && rename(temporary.data, path) != 0)
        status = error_errno(e, "%s: rename", path);
    if (status) unlink(temporary.data);
    buffer_free(&bytes);
    buffer_free(&temporary);
    return status;
}
