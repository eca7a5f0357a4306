/* retrieval/milvus/milvus_search.c: the nearest chunks in Milvus. A search names chunks and the
 * content of their documents; the documents are then taken from memory, or read. A document that
 * has gone between the two is left out, and more is asked for. */
#include <stdlib.h>
#include <string.h>

#include "retrieval/milvus/labels.h"
#include "retrieval/milvus/milvus_private.h"

/* Queries of one request. */
enum { SEARCH_QUERIES = 256 };

/* One answer and its documents. */
struct found_chunks {
    struct answer_hits hits;
    const struct text_span *ids, *contents, *keys;
    const int64_t *chunks, *counts;
    const struct answer_column *vectors; /* NULL: they were not asked for */
    struct milvus_wanted *wanted;        /* [n_wanted] */
    int n_wanted;
    int *document; /* [hits.rows.n] the number of its document among the wanted */
};

static void found_free(struct found_chunks *chunks) {
    for (int i = 0; i < chunks->n_wanted; i++) milvus_document_release(chunks->wanted[i].found);
    free(chunks->wanted);
    free(chunks->document);
    answer_hits_free(&chunks->hits);
}

/* Asking. */

static void put_parameter(struct buffer *out, const char *key, const char *value) {
    size_t pair = wire_begin(out, 9);
    wire_put_string(out, 1, key);
    wire_put_string(out, 2, value);
    wire_end(out, pair);
}

static void put_number_parameter(struct buffer *out, const char *key, const char *format,
                                 int value) {
    struct buffer text = {0};
    buffer_append_string(&text, "");
    buffer_printf(&text, "%s%d%s", format, value, format[0] ? "}" : "");
    put_parameter(out, key, text.data);
    buffer_free(&text);
}

/* PlaceholderGroup of one value "$0": a vector for each query. */
static void put_vectors(struct buffer *out, const struct nearest_query *query, int dim) {
    enum { FLOAT_VECTOR = 101 };
    size_t row = (size_t)dim * sizeof(float);
    size_t group = wire_begin(out, 6), value = wire_begin(out, 1);
    wire_put_string(out, 1, "$0");
    wire_put_int(out, 2, FLOAT_VECTOR);
    for (int i = 0; i < query->n; i++)
        wire_put_item(out, 3,
                      (struct text_span){(const char *)query->vectors + (size_t)i * row, row});
    wire_end(out, value);
    wire_end(out, group);
}

static void express_scope(struct buffer *out, const struct nearest_query *query) {
    if (query->filter == NULL && query->n_excluded == 0) return;
    labels_express(out, query->filter);
    buffer_append_string(out, " && ");
    labels_express_without(out, query->excluded, query->n_excluded);
}

static void write_search(struct milvus_collection *milvus, const struct nearest_query *query,
                         struct buffer *out) {
    static const char *const columns[] = {COLUMN_KEY, COLUMN_DOCUMENT, COLUMN_CONTENT, COLUMN_CHUNK,
                                          COLUMN_CHUNKS};
    /* HNSW visits at least as many as are asked for; 64 are what hundred thousand chunks need for a
     * recall of 0.99. */
    enum { LEAST_VISITED = 64 };
    struct buffer scope = {0};
    express_scope(&scope, query);
    wire_put_string(out, 3, milvus->address.collection);
    if (scope.size > 0) wire_put_string(out, 5, scope.data);
    put_vectors(out, query, milvus->info.dim);
    wire_put_int(out, 7, 1);
    for (size_t i = 0; i < ARRAY_COUNT(columns); i++) wire_put_string(out, 8, columns[i]);
    if (query->rereads) wire_put_string(out, 8, COLUMN_VECTOR);
    put_parameter(out, "anns_field", COLUMN_VECTOR);
    put_parameter(out, "metric_type", "IP");
    put_parameter(out, "round_decimal", "-1");
    put_number_parameter(out, "topk", "", query->k);
    put_number_parameter(out, "params", "{\"ef\": ", max_int(query->k, LEAST_VISITED));
    milvus_put_consistency(milvus, out, 11, 14);
    wire_put_int(out, 12, query->n);
    buffer_free(&scope);
}

static enum status read_columns(struct milvus_collection *milvus, struct found_chunks *chunks,
                                bool with_vectors, struct error *e) {
    const struct answer_rows *rows = &chunks->hits.rows;
    if (answer_texts(rows, COLUMN_KEY, &chunks->keys, e) ||
        answer_texts(rows, COLUMN_DOCUMENT, &chunks->ids, e) ||
        answer_texts(rows, COLUMN_CONTENT, &chunks->contents, e) ||
        answer_numbers(rows, COLUMN_CHUNK, &chunks->chunks, e) ||
        answer_numbers(rows, COLUMN_CHUNKS, &chunks->counts, e))
        return e->status;
    for (int i = 0; i < rows->n_columns; i++)
        if (with_vectors && rows->columns[i].vectors.size > 0) chunks->vectors = &rows->columns[i];
    if (with_vectors && rows->n > 0 &&
        (chunks->vectors == NULL || chunks->vectors->dim != milvus->info.dim))
        return error_set(e, STATUS_CORRUPT, "Milvus answers with other vectors than it was given");
    for (int i = 0; i < rows->n; i++)
        if (chunks->ids[i].size < 1 || chunks->ids[i].size > 512 ||
            chunks->contents[i].size != 32 || chunks->counts[i] < 1 ||
            chunks->counts[i] > 1 << 26 || chunks->chunks[i] < 0 ||
            chunks->chunks[i] >= chunks->counts[i])
            return error_set(e, STATUS_CORRUPT, "Milvus answers with a chunk that no document has");
    return milvus_check_keys(chunks->keys, rows->n, e);
}

/* The number of the document of row i, which is added where it is new. Rows that tell different
 * numbers of chunks are of different documents: row i's chunk is below its own. */
static int number_document(struct found_chunks *chunks, int i) {
    for (int j = 0; j < chunks->n_wanted; j++)
        if (chunks->wanted[j].n_chunks == chunks->counts[i] &&
            memcmp(chunks->wanted[j].content, chunks->contents[i].text, 32) == 0 &&
            span_equals(chunks->wanted[j].id, chunks->ids[i]))
            return j;
    struct milvus_wanted *wanted = &chunks->wanted[chunks->n_wanted];
    *wanted = (struct milvus_wanted){.id = chunks->ids[i], .n_chunks = (int)chunks->counts[i]};
    memcpy(wanted->content, chunks->contents[i].text, 32);
    chunks->n_wanted++;
    return chunks->n_wanted - 1;
}

static enum status search_rows(struct milvus_collection *milvus, const struct nearest_query *query,
                               struct found_chunks *chunks, struct buffer *reply, struct error *e) {
    struct milvus_message message = {.method = "Search"};
    write_search(milvus, query, &message.body);
    if (milvus_ask(milvus, &message, reply, e)) return e->status;
    if (answer_hits_read(&chunks->hits, (struct text_span){reply->data, reply->size}, query->n,
                         e) ||
        read_columns(milvus, chunks, query->rereads, e))
        return e->status;
    int n = chunks->hits.rows.n;
    chunks->wanted = xcalloc((size_t)n + 1, sizeof *chunks->wanted);
    chunks->document = xcalloc((size_t)n + 1, sizeof *chunks->document);
    for (int i = 0; i < n; i++) chunks->document[i] = number_document(chunks, i);
    return milvus_fetch(milvus, chunks->wanted, chunks->n_wanted, e);
}

/* Taking. */

/* Rows by similarity; equal ones by their keys, so that an answer does not depend on how Milvus
 * ordered them. */
struct ranked_row {
    float score;
    const char *key;
    int row;
};

static int compare_ranked(const void *a, const void *b) {
    const struct ranked_row *row = a, *ranked_row = b;
    if (row->score != ranked_row->score) return row->score > ranked_row->score ? -1 : 1;
    return memcmp(row->key, ranked_row->key, MILVUS_KEY_SIZE - 1);
}

/* The lists that a piece of a search adds to. */
struct search_sink {
    struct milvus_pin *pin;
    int first_document; /* of the answer, in the pin */
    int64_t *ids;       /* [n, k] of the answer's queries */
    float *similarities;
};

/* The id of a row that may be found: its document is there, and it is no second one of its key. */
static int64_t take_row(const struct found_chunks *chunks, const struct ranked_row *ranked, int i,
                        struct search_sink *sink) {
    int row = ranked[i].row, document = chunks->document[row];
    bool again = i > 0 && memcmp(ranked[i].key, ranked[i - 1].key, MILVUS_KEY_SIZE - 1) == 0;
    if (again || chunks->wanted[document].found == NULL) return FOUND_GONE;
    struct milvus_pin *pin = sink->pin;
    int64_t id = milvus_pin_add(pin, sink->first_document + document, (int)chunks->chunks[row]);
    if (chunks->vectors == NULL) return id;
    size_t dim = (size_t)chunks->vectors->dim;
    pin->vectors = xrealloc(pin->vectors, (size_t)pin->capacity * dim * sizeof *pin->vectors);
    memcpy(pin->vectors + (size_t)id * dim,
           chunks->vectors->vectors.text + (size_t)row * dim * sizeof(float), dim * sizeof(float));
    return id;
}

/* The n rows of one query, from `first` on, to ids [k]. */
static void take_query(const struct found_chunks *chunks, int first, int n, int k,
                       struct search_sink *sink) {
    struct ranked_row *ranked = xcalloc((size_t)n + 1, sizeof *ranked);
    for (int i = 0; i < n; i++)
        ranked[i] = (struct ranked_row){answer_float(chunks->hits.scores, first + i),
                                        chunks->keys[first + i].text, first + i};
    qsort(ranked, (size_t)n, sizeof *ranked, compare_ranked);
    for (int i = 0; i < k; i++) {
        sink->ids[i] = i < n ? take_row(chunks, ranked, i, sink) : FOUND_NONE;
        sink->similarities[i] = i < n ? ranked[i].score : -2;
    }
    sink->ids += k;
    sink->similarities += k;
    free(ranked);
}

/* Puts the documents that were found, and that the filter allows, into the pin. */
static void pin_documents(const struct found_chunks *chunks, const struct filter *filter,
                          struct search_sink *sink) {
    struct milvus_pin *pin = sink->pin;
    sink->first_document = pin->n_documents;
    pin->n_documents += chunks->n_wanted;
    pin->documents =
        xrealloc(pin->documents, ((size_t)pin->n_documents + 1) * sizeof(struct milvus_document *));
    for (int i = 0; i < chunks->n_wanted; i++) {
        struct milvus_document **found = &chunks->wanted[i].found;
        struct stored_document stored =
            *found ? milvus_document_stored(*found) : (struct stored_document){0};
        if (*found && !document_is_allowed(filter, &stored)) {
            milvus_document_release(*found);
            *found = NULL;
        }
        pin->documents[sink->first_document + i] = *found ? milvus_document_hold(*found) : NULL;
    }
}

static enum status search_piece(struct milvus_collection *milvus, const struct nearest_query *query,
                                struct search_sink *sink, struct error *e) {
    struct found_chunks found = {0};
    struct buffer reply = {0};
    enum status status = search_rows(milvus, query, &found, &reply, e);
    if (status == STATUS_OK) pin_documents(&found, query->filter, sink);
    for (int i = 0, first = 0; i < query->n && status == STATUS_OK; i++) {
        take_query(&found, first, (int)found.hits.counts[i], query->k, sink);
        first += (int)found.hits.counts[i];
    }
    found_free(&found);
    buffer_free(&reply);
    return status;
}

enum status milvus_search(struct collection *collection, struct snapshot *snapshot,
                          const struct nearest_query *query, struct nearest_found *out,
                          struct error *e) {
    struct milvus_collection *milvus = milvus_of(collection);
    size_t n = (size_t)query->n * (size_t)query->k;
    (void)snapshot;
    out->ids = xmalloc(n * sizeof *out->ids);
    out->similarities = xmalloc(n * sizeof *out->similarities);
    struct search_sink sink = {
        .pin = milvus_pin_make(milvus, 0), .ids = out->ids, .similarities = out->similarities};
    enum status status = STATUS_OK;
    for (int first = 0; first < query->n && status == STATUS_OK; first += SEARCH_QUERIES) {
        struct nearest_query piece = *query;
        piece.vectors += (size_t)first * (size_t)milvus->info.dim;
        piece.n = min_int(SEARCH_QUERIES, query->n - first);
        status = search_piece(milvus, &piece, &sink, e);
    }
    if (status == STATUS_OK) out->snapshot = snapshot_hold(&sink.pin->base);
    snapshot_release(&sink.pin->base);
    return status;
}
