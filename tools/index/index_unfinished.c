/* tools/index/index_unfinished.c: see index_unfinished.h. The file is a head and records of one size, little endian. */
#include "tools/index/index_unfinished.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "config/base/line.h"

struct unfinished_head {
    char magic[8];
    uint64_t maker;
    uint64_t dim;
    uint64_t zero;
};

/* Before the numbers of its vector. */
struct unfinished_record {
    uint64_t a, b;     /* of the chunk's text */
    uint64_t size;     /* bytes of it */
    uint64_t checksum; /* of the vector */
};

static struct unfinished_head make_head(uint64_t maker, int dim) {
    struct unfinished_head head = {.magic = "RETROUNF", .maker = maker, .dim = (uint64_t)dim};
    return head;
}

static size_t vector_size(const struct unfinished *u) { return (size_t)u->dim * sizeof(float); }
static size_t record_size(const struct unfinished *u) { return sizeof(struct unfinished_record) + vector_size(u); }

static struct unfinished_record make_record(const struct unfinished *u, struct text_span text, const void *vector) {
    return (struct unfinished_record){.a = hash_bytes(text.text, text.size, 0),
                                      .b = hash_bytes(text.text, text.size, 1),
                                      .size = text.size,
                                      .checksum = hash_bytes(vector, vector_size(u), 0)};
}

static const uint8_t *record_at(const struct unfinished *u, int64_t number) {
    return u->kept.data + sizeof(struct unfinished_head) + (size_t)number * record_size(u);
}

/* Reads what is there up to the first record that is not whole; returns the bytes up to it, 0: it is no such file. */
static size_t read_records(struct unfinished *u, uint64_t maker) {
    struct unfinished_head head = make_head(maker, u->dim);
    struct unfinished_record record;
    if (u->kept.size < sizeof head || memcmp(u->kept.data, &head, sizeof head) != 0) return 0;
    int64_t n = (int64_t)((u->kept.size - sizeof head) / record_size(u));
    for (u->n_kept = 0; u->n_kept < n; u->n_kept++) {
        const uint8_t *bytes = record_at(u, u->n_kept);
        memcpy(&record, bytes, sizeof record);
        if (record.checksum != hash_bytes(bytes + sizeof record, vector_size(u), 0)) break;
        if (key_set_add(&u->places, record.a, record.b))
            *key_set_number(&u->places, record.a, record.b) = u->n_kept + 1;
    }
    return sizeof head + (size_t)u->n_kept * record_size(u);
}

static enum status write_bytes(struct unfinished *u, const void *bytes, size_t size, struct error *e) {
    for (size_t done = 0; done < size;) {
        ssize_t n = write(u->fd, (const char *)bytes + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_errno(e, "%s: write", u->path);
        done += (size_t)n;
    }
    return STATUS_OK;
}

/* Behind what is whole; a file of another embedder is emptied. */
static enum status continue_file(struct unfinished *u, uint64_t maker, size_t whole, struct error *e) {
    struct unfinished_head head = make_head(maker, u->dim);
    if (ftruncate(u->fd, (off_t)whole) != 0) return error_errno(e, "%s: truncate", u->path);
    if (lseek(u->fd, 0, SEEK_END) < 0) return error_errno(e, "%s: seek", u->path);
    return whole > 0 ? STATUS_OK : write_bytes(u, &head, sizeof head, e);
}

enum status unfinished_open(struct unfinished *u, const char *dir, uint64_t maker, int dim, struct error *e) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/unfinished.vectors", dir);
    u->path = path.data;
    u->dim = dim;
    u->fd = open(u->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (u->fd < 0) return error_errno(e, "%s: create", u->path);
    enum status status = file_map_open(&u->kept, u->path, e);
    if (status == STATUS_OK) status = continue_file(u, maker, read_records(u, maker), e);
    return status;
}

/* Of an earlier build or of this one. */
static bool read_record(struct unfinished *u, int64_t number) {
    size_t size = record_size(u);
    buffer_clear(&u->record);
    if (number < u->n_kept) {
        buffer_append(&u->record, record_at(u, number), size);
        return true;
    }
    char *bytes = xmalloc(size);
    off_t at = (off_t)(sizeof(struct unfinished_head) + (size_t)number * size);
    bool whole = pread(u->fd, bytes, size, at) == (ssize_t)size;
    if (whole) buffer_append(&u->record, bytes, size);
    free(bytes);
    return whole;
}

bool unfinished_find(struct unfinished *u, struct text_span text, float *vector) {
    uint64_t a = hash_bytes(text.text, text.size, 0), b = hash_bytes(text.text, text.size, 1);
    const int64_t *place = key_set_number(&u->places, a, b);
    struct unfinished_record record;
    if (place == NULL || !read_record(u, *place - 1)) return false;
    memcpy(&record, u->record.data, sizeof record);
    const char *kept = u->record.data + sizeof record;
    if (record.size != text.size || record.checksum != hash_bytes(kept, vector_size(u), 0)) return false;
    memcpy(vector, kept, vector_size(u));
    return true;
}

void unfinished_keep(struct unfinished *u, struct text_span text, const float *vector) {
    struct unfinished_record record = make_record(u, text, vector);
    struct error e;
    if (u->path == NULL || u->fd < 0) return;
    buffer_clear(&u->record);
    buffer_append(&u->record, &record, sizeof record);
    buffer_append(&u->record, vector, vector_size(u));
    if (write_bytes(u, u->record.data, u->record.size, &e) == STATUS_OK) {
        u->n_written++;
        key_set_add(&u->places, record.a, record.b);
        *key_set_number(&u->places, record.a, record.b) = u->n_kept + u->n_written;
        return;
    }
    line_print(stderr, "note: %s; a build that is interrupted from here on begins again here", e.text);
    close(u->fd);
    u->fd = -1;
}

void unfinished_remove(struct unfinished *u) {
    if (u->path) unlink(u->path);
}

void unfinished_close(struct unfinished *u) {
    if (u->path && u->n_kept + u->n_written == 0) unlink(u->path);
    if (u->path && u->fd >= 0) close(u->fd);
    file_map_close(&u->kept);
    key_set_free(&u->places);
    buffer_free(&u->record);
    free(u->path);
}
