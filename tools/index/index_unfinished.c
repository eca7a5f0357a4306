/* tools/index/index_unfinished.c: see index_unfinished.h. The file is a head and records of one
 * size, little endian. */
#include "tools/index/index_unfinished.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "config/base/line.h"
#include "config/base/text.h"

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

static size_t vector_size(const struct unfinished *unfinished) {
    return (size_t)unfinished->dim * sizeof(float);
}
static size_t record_size(const struct unfinished *unfinished) {
    return sizeof(struct unfinished_record) + vector_size(unfinished);
}

static struct unfinished_record make_record(const struct unfinished *unfinished,
                                            struct text_span text, const void *vector) {
    return (struct unfinished_record){.a = hash_bytes(text.text, text.size, 0),
                                      .b = hash_bytes(text.text, text.size, 1),
                                      .size = text.size,
                                      .checksum = hash_bytes(vector, vector_size(unfinished), 0)};
}

static const uint8_t *record_at(const struct unfinished *unfinished, int64_t number) {
    return unfinished->kept.data + sizeof(struct unfinished_head) +
           (size_t)number * record_size(unfinished);
}

/* Reads what is there up to the first record that is not whole; returns the bytes up to it, 0: it
 * is no such file. */
static size_t read_records(struct unfinished *unfinished, uint64_t maker) {
    struct unfinished_head head = make_head(maker, unfinished->dim);
    struct unfinished_record record;
    if (unfinished->kept.size < sizeof head ||
        memcmp(unfinished->kept.data, &head, sizeof head) != 0)
        return 0;
    int64_t n = (int64_t)((unfinished->kept.size - sizeof head) / record_size(unfinished));
    for (unfinished->n_kept = 0; unfinished->n_kept < n; unfinished->n_kept++) {
        const uint8_t *bytes = record_at(unfinished, unfinished->n_kept);
        memcpy(&record, bytes, sizeof record);
        if (record.checksum != hash_bytes(bytes + sizeof record, vector_size(unfinished), 0)) break;
        if (key_set_add(&unfinished->places, record.a, record.b))
            *key_set_number(&unfinished->places, record.a, record.b) = unfinished->n_kept + 1;
    }
    return sizeof head + (size_t)unfinished->n_kept * record_size(unfinished);
}

static enum status write_bytes(struct unfinished *unfinished, const void *bytes, size_t size,
                               struct error *e) {
    for (size_t done = 0; done < size;) {
        ssize_t n = write(unfinished->fd, (const char *)bytes + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_errno(e, "%s: write", unfinished->path);
        done += (size_t)n;
    }
    return STATUS_OK;
}

/* Behind what is whole; a file of another embedder is emptied. */
static enum status continue_file(struct unfinished *unfinished, uint64_t maker, size_t whole,
                                 struct error *e) {
    struct unfinished_head head = make_head(maker, unfinished->dim);
    if (ftruncate(unfinished->fd, (off_t)whole) != 0)
        return error_errno(e, "%s: truncate", unfinished->path);
    if (lseek(unfinished->fd, 0, SEEK_END) < 0) return error_errno(e, "%s: seek", unfinished->path);
    return whole > 0 ? STATUS_OK : write_bytes(unfinished, &head, sizeof head, e);
}

uint64_t unfinished_maker(const struct embedder *embedder, const struct config *config) {
    struct buffer facts = {0};
    const char *prompt = embedder->prompts[EMBED_DOCUMENT];
    buffer_printf(&facts, "%016" PRIx64 " %d %d %s\n%s", embedder->hash, embedder->dim,
                  (int)config->retrieval.embedder_dtype, config->model.device,
                  prompt ? prompt : "");
    uint64_t hash = hash_bytes(facts.data, facts.size, 0);
    buffer_free(&facts);
    return hash;
}

/* The file of another program is left alone: without its path, nothing is removed at the end. */
static enum status lock_file(struct unfinished *unfinished, struct error *e) {
    if (flock(unfinished->fd, LOCK_EX | LOCK_NB) == 0) return STATUS_OK;
    enum status status =
        errno == EWOULDBLOCK
            ? error_set(e, STATUS_BUSY, "%s: another program embeds this collection",
                        unfinished->path)
            : error_errno(e, "%s: lock", unfinished->path);
    close(unfinished->fd);
    free(unfinished->path);
    unfinished->path = NULL;
    return status;
}

enum status unfinished_open(struct unfinished *unfinished, const char *dir, uint64_t maker, int dim,
                            struct error *e) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/unfinished.vectors", dir);
    unfinished->path = path.data;
    unfinished->dim = dim;
    unfinished->fd = open(unfinished->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (unfinished->fd < 0) return error_errno(e, "%s: create", unfinished->path);
    enum status status = lock_file(unfinished, e);
    if (status == STATUS_OK) status = file_map_open(&unfinished->kept, unfinished->path, e);
    if (status) return status;
    size_t whole = read_records(unfinished, maker);
    unfinished->emptied = whole == 0 && unfinished->kept.size > sizeof(struct unfinished_head);
    return continue_file(unfinished, maker, whole, e);
}

/* Of an earlier build or of this one. */
static bool read_record(struct unfinished *unfinished, int64_t number) {
    size_t size = record_size(unfinished);
    buffer_clear(&unfinished->record);
    if (number < unfinished->n_kept) {
        buffer_append(&unfinished->record, record_at(unfinished, number), size);
        return true;
    }
    char *bytes = xmalloc(size);
    off_t at = (off_t)(sizeof(struct unfinished_head) + (size_t)number * size);
    bool whole = pread(unfinished->fd, bytes, size, at) == (ssize_t)size;
    if (whole) buffer_append(&unfinished->record, bytes, size);
    free(bytes);
    return whole;
}

bool unfinished_find(struct unfinished *unfinished, struct text_span text, float *vector) {
    uint64_t a = hash_bytes(text.text, text.size, 0), b = hash_bytes(text.text, text.size, 1);
    const int64_t *place = key_set_number(&unfinished->places, a, b);
    struct unfinished_record record;
    if (place == NULL || !read_record(unfinished, *place - 1)) return false;
    memcpy(&record, unfinished->record.data, sizeof record);
    const char *kept = unfinished->record.data + sizeof record;
    if (record.size != text.size || record.checksum != hash_bytes(kept, vector_size(unfinished), 0))
        return false;
    memcpy(vector, kept, vector_size(unfinished));
    return true;
}

void unfinished_keep(struct unfinished *unfinished, struct text_span text, const float *vector) {
    struct unfinished_record record = make_record(unfinished, text, vector);
    struct error e;
    if (unfinished->path == NULL || unfinished->fd < 0) return;
    buffer_clear(&unfinished->record);
    buffer_append(&unfinished->record, &record, sizeof record);
    buffer_append(&unfinished->record, vector, vector_size(unfinished));
    if (write_bytes(unfinished, unfinished->record.data, unfinished->record.size, &e) ==
        STATUS_OK) {
        unfinished->n_written++;
        key_set_add(&unfinished->places, record.a, record.b);
        *key_set_number(&unfinished->places, record.a, record.b) =
            unfinished->n_kept + unfinished->n_written;
        return;
    }
    line_print(stderr, "note: %s; a build that is interrupted from here on begins again here",
               e.text);
    close(unfinished->fd);
    unfinished->fd = -1;
}

/* Sorts out the texts whose vectors are there or are made with an earlier one: returns how many are
 * to be embedded, in `missing`; places[i] is that of text i there. */
static int find_missing(struct unfinished *unfinished, const struct text_batch *batch,
                        float *vectors, enum vector_origin *origins, struct text_span *missing,
                        int *places) {
    int n = 0;
    for (int i = 0; i < batch->n; i++) {
        origins[i] = VECTOR_KEPT;
        if (unfinished_find(unfinished, batch->texts[i],
                            vectors + (size_t)i * (size_t)unfinished->dim))
            continue;
        for (places[i] = 0; places[i] < n && !span_equals(missing[places[i]], batch->texts[i]);)
            places[i]++;
        origins[i] = places[i] < n ? VECTOR_EQUAL : VECTOR_MADE;
        if (origins[i] == VECTOR_EQUAL) continue;
        missing[n] = batch->texts[i];
        n++;
    }
    return n;
}

enum status unfinished_embed(struct unfinished *unfinished, const struct embedder *embedder,
                             const struct text_batch *batch, float *vectors,
                             enum vector_origin *origins, struct error *e) {
    size_t dim = (size_t)unfinished->dim, n_texts = (size_t)batch->n;
    struct text_span *missing = xcalloc(n_texts + 1, sizeof *missing);
    int *places = xcalloc(n_texts + 1, sizeof *places);
    int n = find_missing(unfinished, batch, vectors, origins, missing, places);
    float *made = xmalloc(((size_t)n * dim + 1) * sizeof *made);
    struct embed_request request = {
        .texts = missing, .n = n, .role = EMBED_DOCUMENT, .vectors = made};
    enum status status = n > 0 ? embedder_embed(embedder, &request, e) : STATUS_OK;
    for (int i = 0; i < n && status == STATUS_OK; i++)
        unfinished_keep(unfinished, missing[i], made + (size_t)i * dim);
    for (int i = 0; i < batch->n && status == STATUS_OK; i++)
        if (origins[i] != VECTOR_KEPT)
            memcpy(vectors + (size_t)i * dim, made + (size_t)places[i] * dim, dim * sizeof *made);
    free(missing);
    free(places);
    free(made);
    return status;
}

void unfinished_remove(struct unfinished *unfinished) {
    if (unfinished->path) unlink(unfinished->path);
}

void unfinished_close(struct unfinished *unfinished) {
    if (unfinished->path && unfinished->n_kept + unfinished->n_written == 0)
        unlink(unfinished->path);
    if (unfinished->path && unfinished->fd >= 0) close(unfinished->fd);
    file_map_close(&unfinished->kept);
    key_set_free(&unfinished->places);
    buffer_free(&unfinished->record);
    free(unfinished->path);
}
