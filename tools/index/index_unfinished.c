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

/* Before the numbers of its vector, and its sparse weights. */
struct unfinished_record {
    uint64_t a, b;            /* of the chunk's text */
    uint32_t size, n_weights; /* bytes of it; sparse weights */
    uint64_t checksum;        /* of the vector and the weights */
};

static struct unfinished_head make_head(uint64_t maker, int dim) {
    struct unfinished_head head = {.magic = "RETROUNF", .maker = maker, .dim = (uint64_t)dim};
    return head;
}

static size_t vector_size(const struct unfinished *unfinished) {
    return (size_t)unfinished->dim * sizeof(float);
}

/* Bytes behind the record. */
static size_t payload_size(const struct unfinished *unfinished,
                           const struct unfinished_record *record) {
    return vector_size(unfinished) + record->n_weights * sizeof(struct sparse_weight);
}

/* Reads what is there up to the first record that is not whole; returns the bytes up to it, 0: it
 * is no such file. */
static size_t read_records(struct unfinished *unfinished, uint64_t maker) {
    struct unfinished_head head = make_head(maker, unfinished->dim);
    struct unfinished_record record;
    size_t at = sizeof head, size = unfinished->kept.size;
    if (size < sizeof head || memcmp(unfinished->kept.data, &head, sizeof head) != 0) return 0;
    for (; size - at >= sizeof record; unfinished->n_kept++) {
        const uint8_t *bytes = unfinished->kept.data + at;
        memcpy(&record, bytes, sizeof record);
        size_t payload = payload_size(unfinished, &record);
        if (size - at - sizeof record < payload ||
            record.checksum != hash_bytes(bytes + sizeof record, payload, 0))
            break;
        if (key_set_add(&unfinished->places, record.a, record.b))
            *key_set_number(&unfinished->places, record.a, record.b) = (int64_t)at;
        at += sizeof record + payload;
    }
    return at;
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
    unfinished->end = whole > 0 ? (int64_t)whole : (int64_t)sizeof head;
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

/* The record at a place, of an earlier build or of this one, with what stands behind it. */
static bool read_record(struct unfinished *unfinished, int64_t place) {
    struct unfinished_record record;
    buffer_clear(&unfinished->record);
    if (pread(unfinished->fd, &record, sizeof record, (off_t)place) != (ssize_t)sizeof record)
        return false;
    size_t size = sizeof record + payload_size(unfinished, &record);
    if ((uint64_t)place + size > (uint64_t)unfinished->end) return false;
    char *bytes = xmalloc(size);
    bool whole = pread(unfinished->fd, bytes, size, (off_t)place) == (ssize_t)size;
    if (whole) buffer_append(&unfinished->record, bytes, size);
    free(bytes);
    return whole;
}

bool unfinished_find(struct unfinished *unfinished, struct text_span text, float *vector,
                     struct sparse_rows *sparse) {
    uint64_t a = hash_bytes(text.text, text.size, 0), b = hash_bytes(text.text, text.size, 1);
    const int64_t *place = key_set_number(&unfinished->places, a, b);
    struct unfinished_record record;
    if (place == NULL || !read_record(unfinished, *place)) return false;
    memcpy(&record, unfinished->record.data, sizeof record);
    const char *kept = unfinished->record.data + sizeof record;
    if (record.size != text.size ||
        record.checksum != hash_bytes(kept, payload_size(unfinished, &record), 0))
        return false;
    memcpy(vector, kept, vector_size(unfinished));
    const void *weights = kept + vector_size(unfinished);
    sparse_rows_add(sparse, (struct sparse_row){weights, record.n_weights});
    return true;
}

void unfinished_keep(struct unfinished *unfinished, struct text_span text, const float *vector,
                     struct sparse_row row) {
    struct unfinished_record record = {.a = hash_bytes(text.text, text.size, 0),
                                       .b = hash_bytes(text.text, text.size, 1),
                                       .size = (uint32_t)text.size,
                                       .n_weights = (uint32_t)row.n};
    struct buffer *bytes = &unfinished->record;
    struct error e;
    if (unfinished->path == NULL || unfinished->fd < 0 || text.size > UINT32_MAX) return;
    buffer_clear(bytes);
    buffer_append(bytes, &record, sizeof record);
    buffer_append(bytes, vector, vector_size(unfinished));
    buffer_append(bytes, row.list, (size_t)row.n * sizeof *row.list);
    record.checksum = hash_bytes(bytes->data + sizeof record, bytes->size - sizeof record, 0);
    memcpy(bytes->data, &record, sizeof record);
    if (write_bytes(unfinished, bytes->data, bytes->size, &e) == STATUS_OK) {
        unfinished->n_written++;
        key_set_add(&unfinished->places, record.a, record.b);
        *key_set_number(&unfinished->places, record.a, record.b) = unfinished->end;
        unfinished->end += (int64_t)bytes->size;
        return;
    }
    line_print(stderr, "note: %s; a build that is interrupted from here on begins again here",
               e.text);
    close(unfinished->fd);
    unfinished->fd = -1;
}

/* A batch on its way. */
struct embedding_batch {
    const struct text_batch *all;
    struct text_span *missing; /* [n_missing] the texts that are to be embedded */
    int *places;               /* [n] of a text that is, among these */
    int n_missing;
    struct sparse_rows kept, made; /* of the texts that are there; of the missing ones */
};

/* Sorts out the texts whose vectors are there or are made with an earlier one. */
static void find_missing(struct unfinished *unfinished, struct embedding_batch *batch) {
    const struct text_batch *all = batch->all;
    for (int i = 0; i < all->n; i++) {
        float *vector = all->vectors + (size_t)i * (size_t)unfinished->dim;
        int place = 0;
        all->origins[i] = VECTOR_KEPT;
        if (unfinished_find(unfinished, all->texts[i], vector, &batch->kept)) continue;
        while (place < batch->n_missing && !span_equals(batch->missing[place], all->texts[i]))
            place++;
        batch->places[i] = place;
        all->origins[i] = place < batch->n_missing ? VECTOR_EQUAL : VECTOR_MADE;
        if (all->origins[i] == VECTOR_EQUAL) continue;
        batch->missing[place] = all->texts[i];
        batch->n_missing++;
    }
}

/* The missing ones, into `made` [n_missing, dim]. */
static enum status embed_missing(struct unfinished *unfinished, const struct embedder *embedder,
                                 struct embedding_batch *batch, float *made, struct error *e) {
    struct embed_request request = {.texts = batch->missing,
                                    .n = batch->n_missing,
                                    .role = EMBED_DOCUMENT,
                                    .vectors = made,
                                    .sparse = embedder->sparse ? &batch->made : NULL};
    if (batch->n_missing > 0 && embedder_embed(embedder, &request, e)) return e->status;
    for (int i = 0; i < batch->n_missing; i++) {
        if (!embedder->sparse) sparse_rows_add(&batch->made, (struct sparse_row){0});
        unfinished_keep(unfinished, batch->missing[i], made + (size_t)i * (size_t)unfinished->dim,
                        sparse_rows_row(&batch->made, i));
    }
    return STATUS_OK;
}

/* All in the order of the texts. */
static void gather_batch(const struct unfinished *unfinished, const struct embedding_batch *batch,
                         const float *made) {
    const struct text_batch *all = batch->all;
    size_t dim = (size_t)unfinished->dim;
    int n_kept = 0;
    for (int i = 0; i < all->n; i++) {
        bool kept = all->origins[i] == VECTOR_KEPT;
        sparse_rows_add(all->sparse, kept ? sparse_rows_row(&batch->kept, n_kept)
                                          : sparse_rows_row(&batch->made, batch->places[i]));
        n_kept += kept;
        if (!kept)
            memcpy(all->vectors + (size_t)i * dim, made + (size_t)batch->places[i] * dim,
                   dim * sizeof *made);
    }
}

enum status unfinished_embed(struct unfinished *unfinished, const struct embedder *embedder,
                             const struct text_batch *all, struct error *e) {
    size_t dim = (size_t)unfinished->dim, n = (size_t)all->n;
    struct embedding_batch batch = {.all = all,
                                    .missing = xcalloc(n + 1, sizeof *batch.missing),
                                    .places = xcalloc(n + 1, sizeof *batch.places)};
    find_missing(unfinished, &batch);
    float *made = xmalloc(((size_t)batch.n_missing * dim + 1) * sizeof *made);
    enum status status = embed_missing(unfinished, embedder, &batch, made, e);
    if (status == STATUS_OK) gather_batch(unfinished, &batch, made);
    sparse_rows_free(&batch.kept);
    sparse_rows_free(&batch.made);
    free(batch.missing);
    free(batch.places);
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
