/* retrieval/milvus/milvus_search.c: the nearest chunks in Milvus. A search names chunks and the content of their
 * documents; the documents are then taken from memory, or read. A document that has gone between the two is left out,
 * and more is asked for. */
#include <stdlib.h>
#include <string.h>

#include "retrieval/milvus/labels.h"
#include "retrieval/milvus/milvus_private.h"

/* Queries of one request. */
enum { SEARCH_QUERIES = 256 };

/* The documents that hits point into. */
struct milvus_pin {
    struct snapshot base;
    struct milvus_document **documents; /* [n], held */
    int n;
};

static void pin_close(struct snapshot *s) {
    struct milvus_pin *pin = (struct milvus_pin *)(void *)s;
    for (int i = 0; i < pin->n; i++) milvus_document_release(pin->documents[i]);
    free(pin->documents);
    free(pin);
}

/* One answer and its documents. */
struct found_chunks {
    struct answer_hits hits;
    const struct text_span *ids, *contents, *keys;
    const int64_t *chunks, *counts;
    const struct answer_column *vectors; /* NULL: they were not asked for */
    struct milvus_wanted *wanted;        /* [n_wanted] */
    int n_wanted;
    int width;     /* rows that were asked for of each query */
    int *document; /* [hits.rows.n] the number of its document among the wanted */
};

static void found_free(struct found_chunks *f) {
    for (int i = 0; i < f->n_wanted; i++) milvus_document_release(f->wanted[i].found);
    free(f->wanted);
    free(f->document);
    answer_hits_free(&f->hits);
}

/* Asking. */

static void put_parameter(struct buffer *out, const char *key, const char *value) {
    size_t pair = wire_begin(out, 9);
    wire_put_string(out, 1, key);
    wire_put_string(out, 2, value);
    wire_end(out, pair);
}

static void put_number_parameter(struct buffer *out, const char *key, const char *format, int value) {
    struct buffer text = {0};
    buffer_append_string(&text, "");
    buffer_printf(&text, "%s%d%s", format, value, format[0] ? "}" : "");
    put_parameter(out, key, text.data);
    buffer_free(&text);
}

/* PlaceholderGroup of one value "$0": a vector for each query. */
static void put_vectors(struct buffer *out, const struct milvus_search *s, int dim) {
    enum { FLOAT_VECTOR = 101 };
    size_t row = (size_t)dim * sizeof(float);
    size_t group = wire_begin(out, 6), value = wire_begin(out, 1);
    wire_put_string(out, 1, "$0");
    wire_put_int(out, 2, FLOAT_VECTOR);
    for (int i = 0; i < s->n; i++)
        wire_put_item(out, 3, (struct text_span){(const char *)s->vectors + (size_t)i * row, row});
    wire_end(out, value);
    wire_end(out, group);
}

static void express_scope(struct buffer *out, const struct retriever_query *q) {
    if (q->filter == NULL && q->n_excluded == 0) return;
    labels_express(out, q->filter);
    buffer_append_string(out, " && ");
    labels_express_without(out, q->excluded, q->n_excluded);
}

static void write_search(struct milvus_collection *r, const struct milvus_search *s, int width, struct buffer *out) {
    static const char *const columns[] = {COLUMN_KEY, COLUMN_DOCUMENT, COLUMN_CONTENT, COLUMN_CHUNK, COLUMN_CHUNKS};
    /* HNSW visits at least as many as are asked for; 64 are what hundred thousand chunks need for a recall of 0.99. */
    enum { LEAST_VISITED = 64 };
    struct buffer scope = {0};
    express_scope(&scope, s->query);
    wire_put_string(out, 3, r->address.collection);
    if (scope.size > 0) wire_put_string(out, 5, scope.data);
    put_vectors(out, s, r->info.dim);
    wire_put_int(out, 7, 1);
    for (size_t i = 0; i < ARRAY_COUNT(columns); i++) wire_put_string(out, 8, columns[i]);
    if (s->query->choice.distinct > 0) wire_put_string(out, 8, COLUMN_VECTOR);
    put_parameter(out, "anns_field", COLUMN_VECTOR);
    put_parameter(out, "metric_type", "IP");
    put_parameter(out, "round_decimal", "-1");
    put_number_parameter(out, "topk", "", width);
    put_number_parameter(out, "params", "{\"ef\": ", max_int(width, LEAST_VISITED));
    milvus_put_consistency(r, out, 11, 14);
    wire_put_int(out, 12, s->n);
    buffer_free(&scope);
}

static enum status read_columns(struct milvus_collection *r, struct found_chunks *f, bool with_vectors,
                                struct error *e) {
    const struct answer_rows *rows = &f->hits.rows;
    if (answer_texts(rows, COLUMN_KEY, &f->keys, e) || answer_texts(rows, COLUMN_DOCUMENT, &f->ids, e) ||
        answer_texts(rows, COLUMN_CONTENT, &f->contents, e) || answer_numbers(rows, COLUMN_CHUNK, &f->chunks, e) ||
        answer_numbers(rows, COLUMN_CHUNKS, &f->counts, e))
        return e->status;
    for (int i = 0; i < rows->n_columns; i++)
        if (rows->columns[i].vectors.size > 0) f->vectors = &rows->columns[i];
    if (with_vectors && rows->n > 0 && (f->vectors == NULL || f->vectors->dim != r->info.dim))
        return error_set(e, STATUS_CORRUPT, "Milvus answers with other vectors than it was given");
    for (int i = 0; i < rows->n; i++)
        if (f->ids[i].size < 1 || f->ids[i].size > 512 || f->contents[i].size != 32 || f->counts[i] < 1 ||
            f->counts[i] > 1 << 26 || f->chunks[i] < 0 || f->chunks[i] >= f->counts[i])
            return error_set(e, STATUS_CORRUPT, "Milvus answers with a chunk that no document has");
    return STATUS_OK;
}

static bool same_span(struct text_span a, struct text_span b) {
    return a.size == b.size && memcmp(a.text, b.text, a.size) == 0;
}

/* The number of the document of row i, which is added where it is new. */
static int number_document(struct found_chunks *f, int i) {
    for (int j = 0; j < f->n_wanted; j++)
        if (memcmp(f->wanted[j].content, f->contents[i].text, 32) == 0 && same_span(f->wanted[j].id, f->ids[i]))
            return j;
    struct milvus_wanted *wanted = &f->wanted[f->n_wanted];
    *wanted = (struct milvus_wanted){.id = f->ids[i], .n_chunks = (int)f->counts[i]};
    memcpy(wanted->content, f->contents[i].text, 32);
    f->n_wanted++;
    return f->n_wanted - 1;
}

static enum status search_rows(struct milvus_collection *r, const struct milvus_search *s, struct found_chunks *f,
                               struct buffer *reply, struct error *e) {
    struct milvus_message m = {.method = "Search"};
    write_search(r, s, f->width, &m.body);
    if (milvus_ask(r, &m, reply, e)) return e->status;
    if (answer_hits_read(&f->hits, (struct text_span){reply->data, reply->size}, s->n, e) ||
        read_columns(r, f, s->query->choice.distinct > 0, e))
        return e->status;
    int n = f->hits.rows.n;
    f->wanted = xcalloc((size_t)n + 1, sizeof *f->wanted);
    f->document = xcalloc((size_t)n + 1, sizeof *f->document);
    for (int i = 0; i < n; i++) f->document[i] = number_document(f, i);
    return milvus_fetch(r, f->wanted, f->n_wanted, e);
}

/* Choosing. */

struct chosen_rows {
    const struct found_chunks *found;
    const struct retriever_query *query;
    int *rows; /* [n] */
    int n, dim;
};

static float multiply_rows(const struct answer_column *vectors, int a, int b, int dim) {
    double sum = 0;
    for (int i = 0; i < dim; i++)
        sum +=
            (double)answer_float(vectors->vectors, a * dim + i) * (double)answer_float(vectors->vectors, b * dim + i);
    return (float)sum;
}

/* Whether a row that stayed is the same piece of another document with the same text. */
static bool is_shown(const struct chosen_rows *c, int row) {
    const struct found_chunks *f = c->found;
    const struct milvus_document *d = f->wanted[f->document[row]].found;
    for (int i = 0; i < c->n; i++) {
        const struct milvus_document *other = f->wanted[f->document[c->rows[i]]].found;
        if (other != d && f->chunks[c->rows[i]] == f->chunks[row] && same_span(other->document.text, d->document.text))
            return true;
    }
    return false;
}

static bool may_stay(const struct chosen_rows *c, int row) {
    const struct found_chunks *f = c->found;
    const struct milvus_document *d = f->wanted[f->document[row]].found;
    const struct retriever_choice *choice = &c->query->choice;
    int same = 0;
    if (d == NULL || !(answer_float(f->hits.scores, row) >= c->query->min_similarity)) return false;
    struct stored_document stored = milvus_document_stored(d);
    if (!document_is_allowed(c->query->filter, &stored)) return false;
    for (int i = 0; i < c->n; i++) same += f->document[c->rows[i]] == f->document[row];
    if (choice->per_document > 0 && same >= choice->per_document) return false;
    if (is_shown(c, row)) return false;
    for (int i = 0; i < c->n && choice->distinct > 0; i++)
        if (multiply_rows(f->vectors, row, c->rows[i], c->dim) > choice->distinct) return false;
    return true;
}

/* Rows by similarity; equal ones by their keys, so that an answer does not depend on how Milvus ordered them. */
struct ranked_row {
    float score;
    const char *key;
    int row;
};

static int compare_ranked(const void *a, const void *b) {
    const struct ranked_row *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return memcmp(x->key, y->key, MILVUS_KEY_SIZE - 1);
}

static enum status choose_rows(struct chosen_rows *c, int first, int n, int k, struct error *e) {
    const struct found_chunks *f = c->found;
    struct ranked_row *ranked = xcalloc((size_t)n + 1, sizeof *ranked);
    enum status status = STATUS_OK;
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        int row = first + i;
        if (f->keys[row].size != MILVUS_KEY_SIZE - 1)
            status = error_set(e, STATUS_CORRUPT, "Milvus answers with keys that are none of ours");
        ranked[i] = (struct ranked_row){answer_float(f->hits.scores, row), f->keys[row].text, row};
    }
    if (status == STATUS_OK) qsort(ranked, (size_t)n, sizeof *ranked, compare_ranked);
    c->n = 0;
    for (int i = 0; i < n && c->n < k && status == STATUS_OK; i++) {
        bool again = i > 0 && memcmp(ranked[i].key, ranked[i - 1].key, MILVUS_KEY_SIZE - 1) == 0;
        if (again || !may_stay(c, ranked[i].row)) continue;
        c->rows[c->n] = ranked[i].row;
        c->n++;
    }
    free(ranked);
    return status;
}

/* Showing. */

static void show_hit(struct hit *hit, const struct milvus_document *d, int chunk, int chunk_length, float similarity) {
    const struct collection_document *document = &d->document;
    int first = chunk * chunk_length;
    uint32_t start = document->bounds[chunk], end = document->bounds[chunk + 1];
    *hit = (struct hit){.document = document->id,
                        .path = document->path,
                        .title = document->title,
                        .chunk = chunk,
                        .start = start,
                        .end = end,
                        .text = {document->text.text + start, end - start},
                        .source = document->text,
                        .marks = document->marks,
                        .tokens = (const uint32_t *)document->ids + first,
                        .n_tokens = min_int(chunk_length, document->n - first),
                        .similarity = similarity,
                        .relevance = -1};
}

/* The chunk and what follows it in its document, cut or padded. */
static void copy_tokens(int32_t *ids, const struct milvus_document *d, int first, int r, int32_t eod) {
    int n = min_int(r, d->document.n - first);
    memcpy(ids, d->document.ids + first, (size_t)n * sizeof *ids);
    for (int i = n; i < r; i++) ids[i] = eod;
}

static void show_hits(struct milvus_collection *r, const struct chosen_rows *c, const struct retriever_query *query,
                      struct hits *hits) {
    const struct found_chunks *f = c->found;
    int length = max_int(0, query->r);
    if (c->n == 0) return;
    struct milvus_pin *pin = xcalloc(1, sizeof *pin);
    atomic_init(&pin->base.holders, 1);
    pin->base.close = pin_close;
    pin->documents = xcalloc((size_t)c->n, sizeof(struct milvus_document *));
    hits->list = xcalloc((size_t)c->n, sizeof *hits->list);
    if (length > 0) hits->ids = xcalloc((size_t)c->n * (size_t)length, sizeof *hits->ids);
    for (int i = 0; i < c->n; i++) {
        int row = c->rows[i], chunk = (int)f->chunks[row];
        struct milvus_document *d = f->wanted[f->document[row]].found;
        pin->documents[i] = milvus_document_hold(d);
        show_hit(&hits->list[i], d, chunk, r->info.chunk_length, answer_float(f->hits.scores, row));
        if (length > 0)
            copy_tokens(hits->ids + (size_t)i * (size_t)length, d, chunk * r->info.chunk_length, length, r->info.eod);
    }
    pin->n = c->n;
    hits->n = c->n;
    hits->pinned = &pin->base;
}

/* The hits of all queries of one answer. *more: some have found too few, and a wider search may find more of them. */
static enum status take_hits(struct milvus_collection *r, const struct milvus_search *s, const struct found_chunks *f,
                             struct hits *hits, bool *more, struct error *e) {
    struct chosen_rows chosen = {.found = f, .query = s->query, .dim = r->info.dim};
    chosen.rows = xcalloc((size_t)s->k, sizeof *chosen.rows);
    enum status status = STATUS_OK;
    int first = 0;
    *more = false;
    for (int i = 0; i < s->n && status == STATUS_OK; i++) {
        int n = (int)f->hits.counts[i];
        struct retriever_query query = s->query[i];
        chosen.query = &query;
        status = choose_rows(&chosen, first, n, s->k, e);
        if (status == STATUS_OK) show_hits(r, &chosen, &query, &hits[i]);
        /* Below the floor lies nothing that is wanted. */
        bool floor = n > 0 && answer_float(f->hits.scores, first + n - 1) < query.min_similarity;
        *more = *more || (chosen.n < s->k && n == f->width && !floor);
        first += n;
    }
    free(chosen.rows);
    return status;
}

static enum status search_width(struct milvus_collection *r, const struct milvus_search *s, int width,
                                struct hits *hits, bool *more, struct error *e) {
    struct found_chunks found = {.width = width};
    struct buffer reply = {0};
    enum status status = search_rows(r, s, &found, &reply, e);
    if (status == STATUS_OK) status = take_hits(r, s, &found, hits, more, e);
    found_free(&found);
    buffer_free(&reply);
    return status;
}

static bool needs_more(const struct retriever_query *q) {
    return q->filter || q->choice.per_document > 0 || q->choice.distinct > 0;
}

static enum status search_piece(struct milvus_collection *r, const struct milvus_search *s, struct hits *hits,
                                struct error *e) {
    int width = min_int(needs_more(s->query) ? 2 * s->k : s->k, MILVUS_MOST_HITS);
    bool more = false;
    enum status status = search_width(r, s, width, hits, &more, e);
    while (status == STATUS_OK && more && width < MILVUS_MOST_HITS) {
        for (int i = 0; i < s->n; i++) hits_free(&hits[i]);
        width = min_int(2 * width, MILVUS_MOST_HITS);
        status = search_width(r, s, width, hits, &more, e);
    }
    return status;
}

enum status milvus_find_nearest(struct milvus_collection *r, const struct milvus_search *s, struct hits *hits,
                                struct error *e) {
    if (s->query->choice.way != RETRIEVE_NEAREST)
        return error_set(e, STATUS_UNSUPPORTED,
                         "a collection in Milvus is not ranked by words: hybrid search needs a collection on a disk "
                         "(set retrieval.hybrid, or hybrid in the request, to false)");
    enum status status = STATUS_OK;
    for (int first = 0; first < s->n && status == STATUS_OK; first += SEARCH_QUERIES) {
        struct milvus_search piece = *s;
        piece.query += first;
        piece.vectors += (size_t)first * (size_t)r->info.dim;
        piece.n = min_int(SEARCH_QUERIES, s->n - first);
        status = search_piece(r, &piece, hits + first, e);
    }
    return status;
}
