/* retrieval/milvus/milvus_look.c: what looks at documents in Milvus: one, all of them, how many
 * there are. See remote.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/milvus/labels.h"
#include "retrieval/milvus/milvus_private.h"

/* Pins. */

static void pin_close(struct snapshot *snapshot) {
    struct milvus_pin *pin = (struct milvus_pin *)snapshot;
    for (int i = 0; i < pin->n_documents; i++) milvus_document_release(pin->documents[i]);
    free(pin->documents);
    free(pin->chunks);
    free(pin->vectors);
    free(pin);
}

static struct chunk pin_chunk(const struct snapshot *snapshot, int64_t id) {
    const struct milvus_pin *pin = (const struct milvus_pin *)snapshot;
    CHECK(id >= 0 && id < pin->n_chunks);
    const struct pinned_chunk *place = &pin->chunks[id];
    return document_chunk(&pin->documents[place->document]->document, place->chunk,
                          place->document);
}

/* Chunks of a document whose vectors are wanted. */
struct vector_range {
    const struct milvus_document *document;
    int first, n;
    float *vectors; /* [n, dim] */
    bool *taken;    /* [n] */
    int n_taken;
};

/* Vectors of rows into their places. */
static enum status take_vectors(struct vector_range *range, const struct answer_rows *rows, int dim,
                                struct error *e) {
    const struct text_span *contents;
    const int64_t *numbers;
    size_t row = (size_t)dim * sizeof(float);
    if (answer_texts(rows, COLUMN_CONTENT, &contents, e) ||
        answer_numbers(rows, COLUMN_CHUNK, &numbers, e))
        return e->status;
    const struct answer_column *column = NULL;
    for (int i = 0; i < rows->n_columns; i++)
        if (rows->columns[i].vectors.size > 0) column = &rows->columns[i];
    if (rows->n > 0 && (column == NULL || column->dim != dim))
        return error_set(e, STATUS_CORRUPT, "Milvus answers with other vectors than it was given");
    for (int i = 0; i < rows->n; i++) {
        int64_t at = numbers[i] - range->first;
        if (at < 0 || at >= range->n || contents[i].size != 32 ||
            memcmp(contents[i].text, range->document->content, 32) != 0)
            continue;
        if (range->taken[at])
            return error_set(e, STATUS_CORRUPT,
                             "Milvus answers with chunk %" PRId64 " of document %.200s twice",
                             numbers[i], range->document->document.id);
        memcpy((char *)range->vectors + (size_t)at * row, column->vectors.text + (size_t)i * row,
               row);
        range->taken[at] = true;
        range->n_taken++;
    }
    return STATUS_OK;
}

static enum status ask_vectors(struct milvus_collection *milvus, struct vector_range *range,
                               enum milvus_sight sight, struct error *e) {
    static const char *const columns[] = {COLUMN_CONTENT, COLUMN_CHUNK, COLUMN_VECTOR};
    enum status status = STATUS_OK;
    range->n_taken = 0;
    memset(range->taken, 0, (size_t)range->n * sizeof *range->taken);
    for (int at = 0; at < range->n && status == STATUS_OK; at += MILVUS_PAGE) {
        struct buffer expression = {0}, reply = {0};
        struct answer_rows rows;
        milvus_express_keys(&expression, range->document->document.id, range->first + at,
                            min_int(MILVUS_PAGE, range->n - at));
        struct milvus_query query = {.expression = expression.data,
                                     .columns = columns,
                                     .n_columns = ARRAY_COUNT(columns),
                                     .sight = sight};
        status = milvus_query(milvus, &query, &reply, &rows, e);
        if (status == STATUS_OK) status = take_vectors(range, &rows, milvus->info.dim, e);
        answer_rows_free(&rows);
        buffer_free(&expression);
        buffer_free(&reply);
    }
    return status;
}

/* STATUS_NOT_FOUND where the document has gone or changed meanwhile. */
static enum status pin_vectors(const struct snapshot *snapshot, int64_t first, int n,
                               float *vectors, struct error *e) {
    const struct milvus_pin *pin = (const struct milvus_pin *)snapshot;
    size_t dim = (size_t)snapshot->info->dim;
    CHECK(first >= 0 && n <= pin->n_chunks - first);
    if (pin->vectors) {
        memcpy(vectors, pin->vectors + (size_t)first * dim, (size_t)n * dim * sizeof *vectors);
        return STATUS_OK;
    }
    const struct pinned_chunk *place = &pin->chunks[first];
    struct vector_range range = {.document = pin->documents[place->document],
                                 .first = place->chunk,
                                 .n = n,
                                 .vectors = vectors,
                                 .taken = xcalloc((size_t)n + 1, sizeof *range.taken)};
    enum status status = ask_vectors(pin->collection, &range, MILVUS_ARRIVED, e);
    if (status == STATUS_OK && range.n_taken < n)
        status = ask_vectors(pin->collection, &range, MILVUS_ALL, e);
    free(range.taken);
    if (status || range.n_taken == n) return status;
    return error_set(e, STATUS_NOT_FOUND, "document %.200s has gone or changed meanwhile",
                     range.document->document.id);
}

struct milvus_pin *milvus_pin_make(struct milvus_collection *milvus, int n_documents) {
    static const struct snapshot_ops ops = {
        .close = pin_close, .chunk = pin_chunk, .vectors = pin_vectors};
    struct milvus_pin *pin = xcalloc(1, sizeof *pin);
    pin->base.ops = &ops;
    pin->base.info = &milvus->info;
    atomic_init(&pin->base.holders, 1);
    pin->collection = milvus;
    pin->documents = xcalloc((size_t)n_documents + 1, sizeof(struct milvus_document *));
    pin->n_documents = n_documents;
    return pin;
}

int64_t milvus_pin_add(struct milvus_pin *pin, int document, int chunk) {
    pin->chunks = xgrow(pin->chunks, pin->n_chunks, &pin->capacity, sizeof *pin->chunks);
    pin->chunks[pin->n_chunks] = (struct pinned_chunk){document, chunk};
    pin->n_chunks++;
    return pin->n_chunks - 1;
}

/* Finding. */

static void show_document(struct milvus_collection *milvus, struct milvus_document *document,
                          struct collection_found *out) {
    struct milvus_pin *pin = milvus_pin_make(milvus, 1);
    pin->documents[0] = document;
    for (int i = 0; i < document->document.n_chunks; i++) milvus_pin_add(pin, 0, i);
    *out = (struct collection_found){milvus_document_stored(document), &pin->base};
}

enum status milvus_find(struct collection *collection, const struct filter *filter, const char *id,
                        struct collection_found *out, struct error *e) {
    struct milvus_collection *milvus = milvus_of(collection);
    struct milvus_head head;
    if (milvus_find_head(milvus, id, &head, e)) return e->status;
    struct milvus_wanted wanted = {.id = {id, strlen(id)}, .n_chunks = head.n_chunks};
    memcpy(wanted.content, head.content, sizeof wanted.content);
    milvus_head_free(&head);
    if (wanted.n_chunks > 0 && milvus_fetch(milvus, &wanted, 1, e)) return e->status;
    if (wanted.found) {
        struct stored_document stored = milvus_document_stored(wanted.found);
        if (document_is_allowed(filter, &stored)) {
            show_document(milvus, wanted.found, out);
            return STATUS_OK;
        }
    }
    milvus_document_release(wanted.found);
    return error_set(e, STATUS_NOT_FOUND, "no document has the id %.200s", id);
}

/* Walking: heads, a page after another, in the order of their keys. */

enum { WALK_PAGE = 1000 };

struct head_walk {
    const struct collection_walk *asked;
    char last[MILVUS_KEY_SIZE]; /* the key of the latest */
    int page;                   /* rows that are asked for at once */
};

static enum status take_head(struct head_walk *walk, const struct answer_rows *rows, int i,
                             struct text_span id, struct error *e) {
    struct milvus_head head;
    struct buffer facts = {0};
    char *name = xstrndup(id.text, id.size);
    enum status status = milvus_head_read(&head, rows, i, e);
    if (status == STATUS_OK) status = facts_append(&facts, head.metadata, e);
    if (status == STATUS_OK) {
        struct stored_document stored = {.id = name,
                                         .path = head.path,
                                         .title = head.title,
                                         .metadata = head.metadata,
                                         .source = head.source,
                                         .file = head.file,
                                         .text_hash = head.text_hash,
                                         .text = {NULL, (size_t)head.bytes},
                                         .facts = {facts.data, facts.size},
                                         .first_chunk = -1,
                                         .n_chunks = head.n_chunks};
        const struct collection_walk *asked = walk->asked;
        if (document_is_allowed(asked->filter, &stored))
            status = asked->take(asked->context, &stored, e);
    }
    milvus_head_free(&head);
    buffer_free(&facts);
    free(name);
    return status;
}

struct sorted_row {
    const char *key;
    int row;
};

static int compare_rows(const void *a, const void *b) {
    const struct sorted_row *row = a, *sorted_row = b;
    return memcmp(row->key, sorted_row->key, MILVUS_KEY_SIZE - 1);
}

static enum status take_heads(struct head_walk *walk, const struct answer_rows *rows,
                              struct error *e) {
    const struct text_span *keys, *ids;
    if (answer_texts(rows, COLUMN_KEY, &keys, e) || answer_texts(rows, COLUMN_DOCUMENT, &ids, e))
        return e->status;
    if (milvus_check_keys(keys, rows->n, e)) return e->status;
    struct sorted_row *order = xcalloc((size_t)rows->n + 1, sizeof *order);
    for (int i = 0; i < rows->n; i++) order[i] = (struct sorted_row){keys[i].text, i};
    qsort(order, (size_t)rows->n, sizeof *order, compare_rows);
    enum status status = STATUS_OK;
    for (int i = 0; i < rows->n && status == STATUS_OK; i++) {
        status = take_head(walk, rows, order[i].row, ids[order[i].row], e);
        memcpy(walk->last, order[i].key, MILVUS_KEY_SIZE - 1);
    }
    free(order);
    return status;
}

static enum status take_page(struct milvus_collection *milvus, struct head_walk *walk, bool *more,
                             struct error *e) {
    static const char *const columns[] = {COLUMN_KEY, COLUMN_DOCUMENT, COLUMN_CONTENT,
                                          COLUMN_CHUNKS, COLUMN_HEAD};
    struct buffer expression = {0}, reply = {0};
    struct answer_rows rows;
    buffer_printf(&expression, COLUMN_CHUNK " == 0 && " COLUMN_KEY " > \"%s\" && ", walk->last);
    labels_express(&expression, walk->asked->filter);
    if (walk->asked->narrow) {
        buffer_append_string(&expression, " && ");
        labels_express(&expression, walk->asked->narrow);
    }
    struct milvus_query query = {.expression = expression.data,
                                 .columns = columns,
                                 .n_columns = ARRAY_COUNT(columns),
                                 .limit = walk->page};
    enum status status = milvus_query(milvus, &query, &reply, &rows, e);
    if (status == STATUS_OK) status = take_heads(walk, &rows, e);
    *more = rows.n == walk->page;
    answer_rows_free(&rows);
    buffer_free(&expression);
    buffer_free(&reply);
    return status;
}

/* Pages begin as large as is wanted, and become larger where filters leave little of them. */
enum status milvus_walk(struct collection *collection, const struct collection_walk *asked,
                        struct error *e) {
    struct head_walk walk = {.asked = asked, .page = WALK_PAGE};
    enum status status = STATUS_OK;
    bool more = true;
    if (asked->after && asked->after[0]) milvus_key(asked->after, 0, walk.last);
    if (asked->n_wanted > 0) walk.page = min_int(asked->n_wanted, WALK_PAGE);
    while (more && status == STATUS_OK) {
        status = take_page(milvus_of(collection), &walk, &more, e);
        walk.page = min_int(2 * walk.page, WALK_PAGE);
    }
    return status;
}

/* Counting. */

static enum status count_rows(struct milvus_collection *milvus, const char *expression, int64_t *n,
                              struct error *e) {
    static const char *const columns[] = {"count(*)"};
    struct buffer reply = {0};
    struct answer_rows rows;
    const int64_t *counts;
    struct milvus_query query = {.expression = expression, .columns = columns, .n_columns = 1};
    enum status status = milvus_query(milvus, &query, &reply, &rows, e);
    if (status == STATUS_OK) status = answer_numbers(&rows, columns[0], &counts, e);
    if (status == STATUS_OK && rows.n != 1)
        status = error_set(e, STATUS_CORRUPT, "Milvus answers a count with %d numbers", rows.n);
    *n = status ? 0 : counts[0];
    answer_rows_free(&rows);
    buffer_free(&reply);
    return status;
}

enum status milvus_count(struct collection *collection, int64_t *n_documents, int64_t *n_chunks,
                         struct error *e) {
    enum status status = count_rows(milvus_of(collection), COLUMN_CHUNK " >= 0", n_chunks, e);
    return status ? status
                  : count_rows(milvus_of(collection), COLUMN_CHUNK " == 0", n_documents, e);
}
