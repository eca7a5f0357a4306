/* retrieval/milvus/remote_change.c: what changes documents in Milvus, and what looks at all of them. See remote.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/milvus/labels.h"
#include "retrieval/milvus/remote_private.h"
#include "retrieval/store/document_image.h"

/* Rows of one request, and bytes of it at about which it is sent. */
enum { PUT_ROWS = 1000, PUT_BYTES = 4 << 20 };

static void note_written(struct remote *r, const struct buffer *reply) {
    struct text_span rest = {reply->data, reply->size};
    struct wire_field field;
    enum { TIMESTAMP = 9 };
    while (wire_next(&rest, &field) == WIRE_FIELD) {
        if (field.number != TIMESTAMP || field.kind != WIRE_INT) continue;
        long long now = field.value, before = atomic_load(&r->written);
        while (now > before && !atomic_compare_exchange_weak(&r->written, &before, now)) continue;
    }
}

static enum status call_change(struct remote *r, struct remote_message *m, struct error *e) {
    struct buffer reply = {0};
    enum status status = remote_call(r, m, &reply, e);
    if (status == STATUS_OK) note_written(r, &reply);
    buffer_free(&reply);
    return status;
}

/* Whether all rows of a document are there and of one content. */
static enum status ask_whole(struct remote *r, const char *id, const char *content, int n_chunks, bool *whole,
                             struct error *e) {
    static const char *const columns[] = {COLUMN_CONTENT};
    enum status status = STATUS_OK;
    *whole = true;
    for (int first = 0; first < n_chunks && *whole && status == STATUS_OK; first += REMOTE_PAGE) {
        struct buffer expression = {0}, reply = {0};
        struct answer_rows rows;
        const struct text_span *contents;
        int n = min_int(REMOTE_PAGE, n_chunks - first);
        remote_express_keys(&expression, id, first, n);
        struct remote_query q = {.expression = expression.data, .columns = columns, .n_columns = 1};
        status = remote_query(r, &q, &reply, &rows, e);
        if (status == STATUS_OK) status = answer_texts(&rows, COLUMN_CONTENT, &contents, e);
        *whole = status == STATUS_OK && rows.n == n;
        for (int i = 0; i < n && *whole; i++)
            *whole = contents[i].size == 32 && memcmp(contents[i].text, content, 32) == 0;
        answer_rows_free(&rows);
        buffer_free(&expression);
        buffer_free(&reply);
    }
    return status;
}

enum status remote_has(struct remote *r, const struct collection_document *d, bool *has, struct error *e) {
    struct remote_head head;
    char content[33];
    *has = false;
    if (remote_find_head(r, d->id, &head, e)) return e->status;
    remote_content(d, content);
    bool same = head.n_chunks > 0 && strcmp(head.content, content) == 0;
    enum status status = same ? ask_whole(r, d->id, content, head.n_chunks, has, e) : STATUS_OK;
    remote_head_free(&head);
    return status;
}

/* Deletes rows by their keys, some at a time: what every version of Milvus can. */
static enum status delete_rows(struct remote *r, const struct text_span *keys, int n, struct error *e) {
    enum status status = STATUS_OK;
    for (int first = 0; first < n && status == STATUS_OK; first += REMOTE_PAGE) {
        struct remote_message m = {.method = "Delete"};
        struct buffer expression = {0};
        for (int i = first; i < min_int(n, first + REMOTE_PAGE); i++)
            buffer_printf(&expression, "%s\"%.*s\"", i == first ? COLUMN_KEY " in [" : ", ", (int)keys[i].size,
                          keys[i].text);
        buffer_append_string(&expression, "]");
        wire_put_string(&m.body, 3, r->address.collection);
        wire_put_string(&m.body, 5, expression.data);
        status = call_change(r, &m, e);
        buffer_free(&expression);
    }
    return status;
}

/* A key is 40 hexadecimal digits; anything else is no key of ours. */
static bool are_keys(const struct text_span *keys, int n) {
    for (int i = 0; i < n; i++)
        if (keys[i].size != REMOTE_KEY_SIZE - 1 || strspn(keys[i].text, "0123456789abcdef") < keys[i].size)
            return false;
    return true;
}

/* Deletes all rows of a document from chunk `first` on, also those that a broken-off change has left. */
static enum status delete_from(struct remote *r, const char *id, int first, struct error *e) {
    static const char *const columns[] = {COLUMN_KEY};
    struct buffer expression = {0}, reply = {0};
    struct answer_rows rows;
    const struct text_span *keys;
    char key[REMOTE_KEY_SIZE];
    remote_key(id, 0, key);
    buffer_printf(&expression, COLUMN_KEY " like \"%.32s%%\" && " COLUMN_CHUNK " >= %d", key, first);
    struct remote_query q = {.expression = expression.data, .columns = columns, .n_columns = 1};
    enum status status = remote_query(r, &q, &reply, &rows, e);
    if (status == STATUS_OK) status = answer_texts(&rows, COLUMN_KEY, &keys, e);
    if (status == STATUS_OK && !are_keys(keys, rows.n))
        status = error_set(e, STATUS_CORRUPT, "Milvus answers with keys that are none of ours");
    if (status == STATUS_OK) status = delete_rows(r, keys, rows.n, e);
    answer_rows_free(&rows);
    buffer_free(&expression);
    buffer_free(&reply);
    return status;
}

static enum status put_rows(struct remote *r, const struct remote_rows *rows, int first, int n, struct error *e) {
    struct remote_message m = {.method = "Upsert"};
    wire_put_string(&m.body, 3, r->address.collection);
    if (remote_rows_write(&m.body, rows, first, n, e)) {
        buffer_free(&m.body);
        return e->status;
    }
    return call_change(r, &m, e);
}

/* The first chunk comes last: it tells of the document, and until it is there the one before does. */
static enum status put_all_rows(struct remote *r, const struct remote_rows *rows, struct error *e) {
    size_t row_bytes = (size_t)rows->dim * sizeof(float) + 2048 + rows->document->text.size / (size_t)rows->n_chunks;
    int most = max_int(1, min_int(PUT_ROWS, (int)((size_t)PUT_BYTES / row_bytes)));
    enum status status = STATUS_OK;
    for (int end = rows->n_chunks; end > 0 && status == STATUS_OK; end -= min_int(end, most)) {
        int n = min_int(end, most);
        status = put_rows(r, rows, end - n, n, e);
    }
    return status;
}

/* Whether the filter allows a document of that id, path and metadata. */
static enum status ask_allowed(const struct filter *filter, const char *id, const char *path, const char *metadata,
                               bool *allowed, struct error *e) {
    struct buffer facts = {0};
    enum status status = facts_append(&facts, metadata, e);
    *allowed =
        status == STATUS_OK && filter_allows(filter, &(struct filter_subject){id, path, {facts.data, facts.size}});
    buffer_free(&facts);
    return status;
}

static enum status refuse(enum change_effect *effect, struct error *e) {
    *effect = CHANGE_REFUSED;
    return error_set(e, STATUS_INVALID, "the filter does not allow this document, or the one that it would replace");
}

/* Whether the client may put it: the new one and the one that is there. */
static enum status check_allowed(const struct filter *filter, const struct collection_document *d,
                                 const struct remote_head *head, enum change_effect *effect, struct error *e) {
    bool allowed = true;
    if (filter == NULL) return STATUS_OK;
    enum status status = ask_allowed(filter, d->id, d->path, d->metadata, &allowed, e);
    if (status == STATUS_OK && allowed && head->n_chunks > 0)
        status = ask_allowed(filter, d->id, head->path, head->metadata, &allowed, e);
    if (status) return status;
    return allowed ? STATUS_OK : refuse(effect, e);
}

/* A document as every collection refuses it. */
static enum status check_document(const struct remote *r, const struct collection_document *d, const float *vectors,
                                  struct error *e) {
    struct buffer image = {0};
    enum status status = document_image_write(&image, d, vectors, &r->info, e);
    buffer_free(&image);
    return status;
}

static enum status put_document(struct remote *r, const struct collection_document *d, const float *vectors,
                                struct remote_head *head, enum change_effect *effect, struct error *e) {
    char content[33];
    int n_chunks = collection_count_chunks(d->n, r->info.chunk_length);
    bool whole = false;
    remote_content(d, content);
    bool same = head->n_chunks == n_chunks && strcmp(head->content, content) == 0;
    if (same && ask_whole(r, d->id, content, n_chunks, &whole, e)) return e->status;
    if (whole) return STATUS_OK;
    struct remote_rows rows = {.document = d,
                               .vectors = vectors,
                               .content = content,
                               .n_chunks = n_chunks,
                               .chunk_length = r->info.chunk_length,
                               .dim = r->info.dim};
    enum status status = put_all_rows(r, &rows, e);
    if (status == STATUS_OK) status = delete_from(r, d->id, n_chunks, e);
    if (status == STATUS_OK) *effect = head->n_chunks > 0 ? CHANGE_REPLACED : CHANGE_ADDED;
    return status;
}

enum status remote_put(struct remote *r, const struct filter *filter, const struct collection_document *d,
                       const float *vectors, enum change_effect *effect, struct error *e) {
    struct remote_head head;
    *effect = CHANGE_NOTHING;
    if (check_document(r, d, vectors, e) || remote_find_head(r, d->id, &head, e)) return e->status;
    enum status status = check_allowed(filter, d, &head, effect, e);
    if (status == STATUS_OK) status = put_document(r, d, vectors, &head, effect, e);
    remote_head_free(&head);
    return status;
}

enum status remote_delete(struct remote *r, const struct filter *filter, const char *id, struct error *e) {
    struct remote_head head;
    bool allowed = true;
    if (remote_find_head(r, id, &head, e)) return e->status;
    enum status status = STATUS_OK;
    if (head.n_chunks > 0 && filter) status = ask_allowed(filter, id, head.path, head.metadata, &allowed, e);
    bool there = head.n_chunks > 0 && allowed;
    remote_head_free(&head);
    if (status == STATUS_OK && !there) return error_set(e, STATUS_NOT_FOUND, "no document has the id %.200s", id);
    return status ? status : delete_from(r, id, 0, e);
}

/* Looking. */

enum status remote_find(struct remote *r, const struct filter *filter, const char *id, struct remote_document **out,
                        struct error *e) {
    struct remote_head head;
    *out = NULL;
    if (remote_find_head(r, id, &head, e)) return e->status;
    struct remote_wanted wanted = {.id = {id, strlen(id)}, .n_chunks = head.n_chunks};
    memcpy(wanted.content, head.content, sizeof wanted.content);
    remote_head_free(&head);
    if (wanted.n_chunks > 0 && remote_fetch(r, &wanted, 1, e)) return e->status;
    if (wanted.found) {
        struct stored_document stored = remote_document_stored(wanted.found);
        if (document_is_allowed(filter, &stored)) {
            *out = wanted.found;
            return STATUS_OK;
        }
    }
    remote_document_release(wanted.found);
    return error_set(e, STATUS_NOT_FOUND, "no document has the id %.200s", id);
}

/* Vectors of rows into their places. */
static enum status take_vectors(const struct remote *r, const struct remote_document *d, const struct answer_rows *rows,
                                float *vectors, int *n_taken, struct error *e) {
    const struct text_span *contents;
    const int64_t *numbers;
    size_t row = (size_t)r->info.dim * sizeof(float);
    if (answer_texts(rows, COLUMN_CONTENT, &contents, e) || answer_numbers(rows, COLUMN_CHUNK, &numbers, e))
        return e->status;
    const struct answer_column *column = NULL;
    for (int i = 0; i < rows->n_columns; i++)
        if (rows->columns[i].vectors.size > 0) column = &rows->columns[i];
    if (rows->n > 0 && (column == NULL || column->dim != r->info.dim))
        return error_set(e, STATUS_CORRUPT, "Milvus answers with other vectors than it was given");
    for (int i = 0; i < rows->n; i++) {
        if (numbers[i] < 0 || numbers[i] >= d->n_chunks || contents[i].size != 32 ||
            memcmp(contents[i].text, d->content, 32) != 0)
            continue;
        memcpy((char *)vectors + (size_t)numbers[i] * row, column->vectors.text + (size_t)i * row, row);
        (*n_taken)++;
    }
    return STATUS_OK;
}

enum status remote_vectors(struct remote *r, const struct remote_document *d, float *vectors, struct error *e) {
    static const char *const columns[] = {COLUMN_CONTENT, COLUMN_CHUNK, COLUMN_VECTOR};
    enum status status = STATUS_OK;
    int n_taken = 0;
    for (int first = 0; first < d->n_chunks && status == STATUS_OK; first += REMOTE_PAGE) {
        struct buffer expression = {0}, reply = {0};
        struct answer_rows rows;
        remote_express_keys(&expression, d->document.id, first, min_int(REMOTE_PAGE, d->n_chunks - first));
        struct remote_query q = {.expression = expression.data, .columns = columns, .n_columns = ARRAY_COUNT(columns)};
        status = remote_query(r, &q, &reply, &rows, e);
        if (status == STATUS_OK) status = take_vectors(r, d, &rows, vectors, &n_taken, e);
        answer_rows_free(&rows);
        buffer_free(&expression);
        buffer_free(&reply);
    }
    if (status || n_taken == d->n_chunks) return status;
    return error_set(e, STATUS_NOT_FOUND, "document %.200s has gone or changed meanwhile", d->document.id);
}

/* Walking: heads, a page after another, in the order of their keys. */

enum { WALK_PAGE = 1000 };

struct head_walk {
    const struct filter *filter;
    view_taker *take;
    void *context;
    char last[REMOTE_KEY_SIZE]; /* the key of the latest */
};

static enum status take_head(struct head_walk *w, const struct answer_rows *rows, int i, struct text_span id,
                             struct error *e) {
    struct remote_head head;
    struct buffer facts = {0};
    char *name = xstrndup(id.text, id.size);
    enum status status = remote_head_read(&head, rows, i, e);
    if (status == STATUS_OK) status = facts_append(&facts, head.metadata, e);
    if (status == STATUS_OK) {
        struct stored_document stored = {.id = name,
                                         .path = head.path,
                                         .title = head.title,
                                         .metadata = head.metadata,
                                         .text = {NULL, (size_t)head.bytes},
                                         .facts = {facts.data, facts.size},
                                         .n_chunks = head.n_chunks};
        if (document_is_allowed(w->filter, &stored)) status = w->take(w->context, &stored, e);
    }
    remote_head_free(&head);
    buffer_free(&facts);
    free(name);
    return status;
}

struct sorted_row {
    const char *key;
    int row;
};

static int compare_rows(const void *a, const void *b) {
    const struct sorted_row *x = a, *y = b;
    return memcmp(x->key, y->key, REMOTE_KEY_SIZE - 1);
}

static enum status take_heads(struct head_walk *w, const struct answer_rows *rows, struct error *e) {
    const struct text_span *keys, *ids;
    if (answer_texts(rows, COLUMN_KEY, &keys, e) || answer_texts(rows, COLUMN_DOCUMENT, &ids, e)) return e->status;
    if (!are_keys(keys, rows->n)) return error_set(e, STATUS_CORRUPT, "Milvus answers with keys that are none of ours");
    struct sorted_row *order = xcalloc((size_t)rows->n + 1, sizeof *order);
    for (int i = 0; i < rows->n; i++) order[i] = (struct sorted_row){keys[i].text, i};
    qsort(order, (size_t)rows->n, sizeof *order, compare_rows);
    enum status status = STATUS_OK;
    for (int i = 0; i < rows->n && status == STATUS_OK; i++) {
        status = take_head(w, rows, order[i].row, ids[order[i].row], e);
        memcpy(w->last, order[i].key, REMOTE_KEY_SIZE - 1);
    }
    free(order);
    return status;
}

enum status remote_walk(struct remote *r, const struct filter *filter, const char *after, view_taker *take,
                        void *context, struct error *e) {
    static const char *const columns[] = {COLUMN_KEY, COLUMN_DOCUMENT, COLUMN_CONTENT, COLUMN_CHUNKS, COLUMN_HEAD};
    struct head_walk w = {.filter = filter, .take = take, .context = context};
    enum status status = STATUS_OK;
    bool more = true;
    if (after && after[0]) remote_key(after, 0, w.last);
    while (more && status == STATUS_OK) {
        struct buffer expression = {0}, reply = {0};
        struct answer_rows rows;
        buffer_printf(&expression, COLUMN_CHUNK " == 0 && " COLUMN_KEY " > \"%s\" && ", w.last);
        labels_express(&expression, filter);
        struct remote_query q = {
            .expression = expression.data, .columns = columns, .n_columns = ARRAY_COUNT(columns), .limit = WALK_PAGE};
        status = remote_query(r, &q, &reply, &rows, e);
        if (status == STATUS_OK) status = take_heads(&w, &rows, e);
        more = rows.n == WALK_PAGE;
        answer_rows_free(&rows);
        buffer_free(&expression);
        buffer_free(&reply);
    }
    return status;
}

/* Counting. */

static enum status count_rows(struct remote *r, const char *expression, int64_t *n, struct error *e) {
    static const char *const columns[] = {"count(*)"};
    struct buffer reply = {0};
    struct answer_rows rows;
    const int64_t *counts;
    struct remote_query q = {.expression = expression, .columns = columns, .n_columns = 1};
    enum status status = remote_query(r, &q, &reply, &rows, e);
    if (status == STATUS_OK) status = answer_numbers(&rows, columns[0], &counts, e);
    if (status == STATUS_OK && rows.n != 1)
        status = error_set(e, STATUS_CORRUPT, "Milvus answers a count with %d numbers", rows.n);
    *n = status ? 0 : counts[0];
    answer_rows_free(&rows);
    buffer_free(&reply);
    return status;
}

struct walk_counts {
    int64_t n_documents, n_chunks;
};

static enum status count_document(void *context, const struct stored_document *d, struct error *e) {
    struct walk_counts *counts = context;
    (void)e;
    counts->n_documents++;
    counts->n_chunks += d->n_chunks;
    return STATUS_OK;
}

enum status remote_count(struct remote *r, const struct filter *filter, int64_t *n_documents, int64_t *n_chunks,
                         struct error *e) {
    struct walk_counts counts = {0};
    enum status status;
    if (filter == NULL) {
        status = count_rows(r, COLUMN_CHUNK " >= 0", n_chunks, e);
        return status ? status : count_rows(r, COLUMN_CHUNK " == 0", n_documents, e);
    }
    status = remote_walk(r, filter, NULL, count_document, &counts, e);
    *n_documents = counts.n_documents;
    *n_chunks = counts.n_chunks;
    return status;
}
