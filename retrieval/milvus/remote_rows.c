/* retrieval/milvus/remote_rows.c: documents as rows and back. See remote_private.h. Rows that come back are checked as
 * a file would be: Milvus, or whoever answers in its place, is not believed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/base64.h"
#include "config/base/hash.h"
#include "config/base/utf8.h"
#include "config/json/json_writer.h"
#include "retrieval/milvus/labels.h"
#include "retrieval/milvus/remote_private.h"

enum { TYPE_INT64 = 5, TYPE_VARCHAR = 21, TYPE_JSON = 23, TYPE_FLOAT_VECTOR = 101 };

static void append_part(struct buffer *out, const void *bytes, size_t size) {
    uint64_t length = size;
    buffer_append(out, &length, sizeof length);
    buffer_append(out, bytes, size);
}

void remote_content(const struct collection_document *d, char content[33]) {
    struct buffer all = {0};
    const char *metadata = d->metadata ? d->metadata : "";
    append_part(&all, d->id, strlen(d->id));
    append_part(&all, d->path, strlen(d->path));
    append_part(&all, d->title, strlen(d->title));
    append_part(&all, metadata, strlen(metadata));
    append_part(&all, d->text.text, d->text.size);
    append_part(&all, d->marks.bytes, d->marks.n * sizeof(struct mark));
    snprintf(content, 33, "%016" PRIx64 "%016" PRIx64, hash_bytes(all.data, all.size, 0),
             hash_bytes(all.data, all.size, 1));
    buffer_free(&all);
}

/* Writing: a field of a request holds a column. */

/* Where the texts of the rows begin and end. The first chunk's text begins with the document's. */
static struct text_span chunk_text(const struct collection_document *d, int chunk) {
    uint32_t first = chunk == 0 ? 0 : d->bounds[chunk];
    return (struct text_span){d->text.text + first, d->bounds[chunk + 1] - first};
}

static uint32_t mark_place(struct mark_span marks, uint32_t i) {
    struct mark mark;
    memcpy(&mark, (const char *)marks.bytes + (size_t)i * sizeof mark, sizeof mark);
    return mark.at;
}

/* The first mark of a chunk. Marks at the end of the text are the last chunk's. */
static uint32_t first_mark(const struct remote_rows *rows, int chunk) {
    const struct collection_document *d = rows->document;
    uint32_t low = 0, high = d->marks.n;
    if (chunk == 0) return 0;
    if (chunk == rows->n_chunks) return d->marks.n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (mark_place(d->marks, middle) < d->bounds[chunk])
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void put_marks(struct buffer *out, const struct remote_rows *rows, int chunk) {
    uint32_t first = first_mark(rows, chunk), end = first_mark(rows, chunk + 1);
    const char *bytes = rows->document->marks.bytes;
    if (end > first)
        base64_encode((struct text_span){bytes + first * sizeof(struct mark), (end - first) * sizeof(struct mark)},
                      out);
}

static void put_tokens(struct buffer *out, const struct remote_rows *rows, int chunk) {
    const struct collection_document *d = rows->document;
    int first = chunk * rows->chunk_length, n = min_int(rows->chunk_length, d->n - first);
    base64_encode((struct text_span){(const char *)(d->ids + first), (size_t)n * sizeof *d->ids}, out);
}

static void put_head(struct buffer *out, const struct collection_document *d) {
    struct json_writer w;
    put_begin(&w, out);
    put_object(&w);
    put_key_string(&w, "path", d->path);
    put_key_string(&w, "title", d->title);
    put_key_string(&w, "metadata", d->metadata ? d->metadata : "");
    put_key_int(&w, "bytes", (int64_t)d->text.size);
    put_object_end(&w);
}

static void put_cell(struct buffer *out, const struct remote_rows *rows, const char *column, int chunk) {
    const struct collection_document *d = rows->document;
    struct text_span text = chunk_text(d, chunk);
    char key[REMOTE_KEY_SIZE];
    remote_key(d->id, chunk, key);
    if (strcmp(column, COLUMN_KEY) == 0) buffer_append_string(out, key);
    if (strcmp(column, COLUMN_DOCUMENT) == 0) buffer_append_string(out, d->id);
    if (strcmp(column, COLUMN_CONTENT) == 0) buffer_append_string(out, rows->content);
    if (strcmp(column, COLUMN_TEXT) == 0) buffer_append(out, text.text, text.size);
    if (strcmp(column, COLUMN_TOKENS) == 0) put_tokens(out, rows, chunk);
    if (strcmp(column, COLUMN_MARKS) == 0) put_marks(out, rows, chunk);
    if (strcmp(column, COLUMN_HEAD) == 0 && chunk == 0) put_head(out, d);
}

/* FieldData: type 1, name 2, scalars 3, vectors 4. */
static size_t begin_column(struct buffer *out, const char *name, int type) {
    size_t field = wire_begin(out, 5);
    wire_put_int(out, 1, type);
    wire_put_string(out, 2, name);
    return field;
}

static enum status put_texts(struct buffer *out, const struct remote_rows *rows, const char *name, int first, int n,
                             struct error *e) {
    struct buffer cell = {0};
    size_t field = begin_column(out, name, TYPE_VARCHAR);
    size_t scalars = wire_begin(out, 3), strings = wire_begin(out, 6);
    enum status status = STATUS_OK;
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        buffer_clear(&cell);
        put_cell(&cell, rows, name, first + i);
        if (cell.size > REMOTE_TEXT_BYTES)
            status = error_set(e, STATUS_TOO_LARGE,
                               "document %.100s: the %s of chunk %d has %zu bytes, and Milvus holds %d: it takes "
                               "smaller chunks or pictures, or less metadata",
                               rows->document->id, name, first + i, cell.size, REMOTE_TEXT_BYTES);
        wire_put_item(out, 1, (struct text_span){cell.data, cell.size});
    }
    wire_end(out, strings);
    wire_end(out, scalars);
    wire_end(out, field);
    buffer_free(&cell);
    return status;
}

static void put_numbers(struct buffer *out, const struct remote_rows *rows, const char *name, int first, int n) {
    size_t field = begin_column(out, name, TYPE_INT64);
    size_t scalars = wire_begin(out, 3), longs = wire_begin(out, 3), packed = wire_begin(out, 1);
    for (int i = 0; i < n; i++) {
        bool is_chunk = strcmp(name, COLUMN_CHUNK) == 0, is_start = strcmp(name, COLUMN_START) == 0;
        wire_put_packed(out, is_chunk   ? first + i
                             : is_start ? (int64_t)rows->document->bounds[first + i]
                                        : rows->n_chunks);
    }
    wire_end(out, packed);
    wire_end(out, longs);
    wire_end(out, scalars);
    wire_end(out, field);
}

/* All rows of a document have the same labels. */
static enum status put_labels(struct buffer *out, const struct remote_rows *rows, int n, struct error *e) {
    struct buffer facts = {0}, labels = {0};
    const struct collection_document *d = rows->document;
    if (facts_append(&facts, d->metadata, e)) {
        buffer_free(&facts);
        return e->status;
    }
    labels_write(&labels, &(struct filter_subject){.id = d->id, .path = d->path, .facts = {facts.data, facts.size}});
    enum status status = STATUS_OK;
    if (labels.size > REMOTE_TEXT_BYTES)
        status = error_set(e, STATUS_TOO_LARGE,
                           "document %.100s: its metadata has too many values: what filters compare takes %zu bytes, "
                           "and Milvus holds %d",
                           d->id, labels.size, REMOTE_TEXT_BYTES);
    size_t field = begin_column(out, COLUMN_LABELS, TYPE_JSON);
    size_t scalars = wire_begin(out, 3), list = wire_begin(out, 9);
    for (int i = 0; i < n && status == STATUS_OK; i++)
        wire_put_item(out, 1, (struct text_span){labels.data, labels.size});
    wire_end(out, list);
    wire_end(out, scalars);
    wire_end(out, field);
    buffer_free(&facts);
    buffer_free(&labels);
    return status;
}

static void put_vectors(struct buffer *out, const struct remote_rows *rows, int first, int n) {
    size_t dim = (size_t)rows->dim;
    size_t field = begin_column(out, COLUMN_VECTOR, TYPE_FLOAT_VECTOR);
    size_t vectors = wire_begin(out, 4);
    wire_put_int(out, 1, rows->dim);
    size_t floats = wire_begin(out, 2);
    wire_put_item(out, 1,
                  (struct text_span){(const char *)(rows->vectors + (size_t)first * dim),
                                     (size_t)n * dim * sizeof *rows->vectors});
    wire_end(out, floats);
    wire_end(out, vectors);
    wire_end(out, field);
}

enum status remote_rows_write(struct buffer *out, const struct remote_rows *rows, int first, int n, struct error *e) {
    static const char *const texts[] = {COLUMN_KEY,    COLUMN_DOCUMENT, COLUMN_CONTENT, COLUMN_TEXT,
                                        COLUMN_TOKENS, COLUMN_MARKS,    COLUMN_HEAD};
    static const char *const numbers[] = {COLUMN_CHUNK, COLUMN_CHUNKS, COLUMN_START};
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++)
        if (put_texts(out, rows, texts[i], first, n, e)) return e->status;
    for (size_t i = 0; i < ARRAY_COUNT(numbers); i++) put_numbers(out, rows, numbers[i], first, n);
    if (put_labels(out, rows, n, e)) return e->status;
    put_vectors(out, rows, first, n);
    wire_put_int(out, 7, n);
    return STATUS_OK;
}

/* The head. */

struct head_facts {
    char *path, *title, *metadata;
    int64_t bytes;
};

static const struct json_field head_fields[] = {
    {"path", JSON_TEXT, JSON_AT(struct head_facts, path), .required = true},
    {"title", JSON_TEXT, JSON_AT(struct head_facts, title), .required = true},
    {"metadata", JSON_TEXT, JSON_AT(struct head_facts, metadata), .required = true},
    {"bytes", JSON_INT64, JSON_AT(struct head_facts, bytes), .min = 0, .max = UINT32_MAX, .required = true},
};
static const struct json_table head_table = JSON_TABLE(head_fields, .open = true);

static enum status read_head(struct text_span text, struct head_facts *out, struct error *e) {
    struct json_reader reader = {.name = "the head of a document in Milvus", .e = e};
    struct json *root;
    *out = (struct head_facts){0};
    enum status status = json_parse(&root, text, reader.name, e);
    if (status == STATUS_OK) status = json_table_read(&reader, &head_table, root, out);
    json_close(root);
    if (status) json_table_free(&head_table, out);
    return status ? error_set(e, STATUS_CORRUPT, "%s", e->text) : STATUS_OK;
}

void remote_head_free(struct remote_head *h) {
    free(h->path);
    free(h->title);
    free(h->metadata);
    *h = (struct remote_head){0};
}

static bool copy_content(struct text_span from, char content[33]) {
    if (from.size != 32 || memchr(from.text, '\0', 32)) return false;
    memcpy(content, from.text, 32);
    content[32] = '\0';
    return true;
}

enum status remote_head_read(struct remote_head *out, const struct answer_rows *rows, int i, struct error *e) {
    const struct text_span *contents, *heads;
    const int64_t *chunks;
    struct head_facts facts;
    *out = (struct remote_head){0};
    if (answer_texts(rows, COLUMN_CONTENT, &contents, e) || answer_texts(rows, COLUMN_HEAD, &heads, e) ||
        answer_numbers(rows, COLUMN_CHUNKS, &chunks, e))
        return e->status;
    if (!copy_content(contents[i], out->content) || chunks[i] < 1 || chunks[i] > INT32_MAX)
        return error_set(e, STATUS_CORRUPT, "a row of a document in Milvus says nothing sensible of its content");
    if (read_head(heads[i], &facts, e)) return e->status;
    out->n_chunks = (int)chunks[i];
    out->path = facts.path;
    out->title = facts.title;
    out->metadata = facts.metadata;
    out->bytes = facts.bytes;
    return STATUS_OK;
}

enum status remote_find_head(struct remote *r, const char *id, struct remote_head *out, struct error *e) {
    static const char *const wanted[] = {COLUMN_CONTENT, COLUMN_CHUNKS, COLUMN_HEAD};
    struct buffer expression = {0}, reply = {0};
    struct answer_rows rows;
    *out = (struct remote_head){0};
    remote_express_keys(&expression, id, 0, 1);
    struct remote_query q = {.expression = expression.data, .columns = wanted, .n_columns = ARRAY_COUNT(wanted)};
    enum status status = remote_query(r, &q, &reply, &rows, e);
    if (status == STATUS_OK && rows.n > 0) status = remote_head_read(out, &rows, 0, e);
    answer_rows_free(&rows);
    buffer_free(&expression);
    buffer_free(&reply);
    return status;
}

/* Documents. */

struct remote_document *remote_document_hold(struct remote_document *d) {
    atomic_fetch_add(&d->holders, 1);
    return d;
}

void remote_document_release(struct remote_document *d) {
    if (d == NULL || atomic_fetch_sub(&d->holders, 1) > 1) return;
    free((char *)(uintptr_t)d->document.id);
    free((char *)(uintptr_t)d->document.path);
    free((char *)(uintptr_t)d->document.title);
    free((char *)(uintptr_t)d->document.metadata);
    free((char *)(uintptr_t)d->document.text.text);
    free((void *)(uintptr_t)d->document.marks.bytes);
    free((void *)(uintptr_t)d->document.ids);
    free((void *)(uintptr_t)d->document.bounds);
    buffer_free(&d->facts);
    free(d);
}

struct stored_document remote_document_stored(const struct remote_document *d) {
    return (struct stored_document){.id = d->document.id,
                                    .path = d->document.path,
                                    .title = d->document.title,
                                    .metadata = d->document.metadata,
                                    .text = d->document.text,
                                    .marks = d->document.marks,
                                    .facts = {d->facts.data, d->facts.size},
                                    .n_chunks = d->n_chunks};
}

/* One chunk of a document that is put together; it points into the answer. */
struct chunk_piece {
    bool there;
    int64_t start;
    struct text_span text, tokens, marks, head;
};

static enum status misfit(struct error *e, const char *id, const char *what) {
    return error_set(e, STATUS_CORRUPT, "document %.100s in Milvus: %s", id, what);
}

/* Texts, tokens and marks of all chunks one behind another. */
struct document_parts {
    struct buffer text, tokens, marks;
    uint32_t *bounds;
};

static enum status join_chunks(struct document_parts *parts, const struct chunk_piece *pieces, int n,
                               const struct remote *r, const char *id, struct error *e) {
    size_t whole = (size_t)r->info.chunk_length * sizeof(uint32_t);
    for (int i = 0; i < n; i++) {
        const struct chunk_piece *piece = &pieces[i];
        size_t tokens = parts->tokens.size, begins = parts->text.size;
        if (!base64_decode(piece->tokens, &parts->tokens) || !base64_decode(piece->marks, &parts->marks))
            return misfit(e, id, "its tokens or marks are not base64");
        tokens = parts->tokens.size - tokens;
        if (tokens == 0 || tokens > whole || tokens % sizeof(uint32_t) != 0 || (i + 1 < n && tokens != whole))
            return misfit(e, id, "a chunk has another number of tokens than it should");
        buffer_append(&parts->text, piece->text.text, piece->text.size);
        if (parts->text.size > UINT32_MAX || piece->start < (int64_t)begins ||
            piece->start > (int64_t)parts->text.size || (i > 0 && piece->start != (int64_t)begins))
            return misfit(e, id, "a chunk does not begin where the one before ends");
        parts->bounds[i] = (uint32_t)piece->start;
    }
    parts->bounds[n] = (uint32_t)parts->text.size;
    if (parts->marks.size % sizeof(struct mark) != 0) return misfit(e, id, "a mark is cut off");
    return STATUS_OK;
}

static enum status check_document(const struct remote *r, const struct remote_document *d, struct error *e) {
    const struct collection_document *document = &d->document;
    char content[33];
    const char *fault = marks_fault(document->marks, document->text.size);
    if (fault) return misfit(e, document->id, fault);
    for (int i = 0; i < document->n; i++)
        if (document->ids[i] < 0 || document->ids[i] > r->info.max_token)
            return misfit(e, document->id, "it has a token that its tokenizer has not");
    if (!utf8_is_valid(document->text.text, document->text.size)) return misfit(e, document->id, "it is not UTF-8");
    remote_content(document, content);
    if (strcmp(content, d->content) != 0) return misfit(e, document->id, "its content is not the one of its checksum");
    return STATUS_OK;
}

/* Takes the parts. */
static struct remote_document *make_document(const struct remote_wanted *wanted, struct head_facts *head,
                                             struct document_parts *parts) {
    struct remote_document *d = xcalloc(1, sizeof *d);
    atomic_init(&d->holders, 1);
    memcpy(d->content, wanted->content, sizeof d->content);
    buffer_append_string(&parts->text, "");
    if (parts->text.data == NULL) parts->text.data = xstrdup("");
    d->n_chunks = wanted->n_chunks;
    d->bytes = sizeof *d + parts->text.size + parts->tokens.size + parts->marks.size +
               (size_t)wanted->n_chunks * sizeof *parts->bounds;
    d->document =
        (struct collection_document){.id = xstrndup(wanted->id.text, wanted->id.size),
                                     .path = head->path,
                                     .title = head->title,
                                     .metadata = head->metadata,
                                     .text = {parts->text.data, parts->text.size},
                                     .marks = {parts->marks.data, (uint32_t)(parts->marks.size / sizeof(struct mark))},
                                     .ids = (const int32_t *)(const void *)parts->tokens.data,
                                     .bounds = parts->bounds,
                                     .n = (int)(parts->tokens.size / sizeof(int32_t))};
    *parts = (struct document_parts){0};
    return d;
}

static enum status put_together(const struct remote *r, struct remote_wanted *wanted, const struct chunk_piece *pieces,
                                struct error *e) {
    char id[513];
    struct document_parts parts = {.bounds = xcalloc((size_t)wanted->n_chunks + 1, sizeof *parts.bounds)};
    struct head_facts head = {0};
    snprintf(id, sizeof id, "%.*s", (int)wanted->id.size, wanted->id.text);
    enum status status = read_head(pieces[0].head, &head, e);
    if (status == STATUS_OK) status = join_chunks(&parts, pieces, wanted->n_chunks, r, id, e);
    if (status) {
        json_table_free(&head_table, &head);
        buffer_free(&parts.text);
        buffer_free(&parts.tokens);
        buffer_free(&parts.marks);
        free(parts.bounds);
        return status;
    }
    struct remote_document *d = make_document(wanted, &head, &parts);
    status = check_document(r, d, e);
    if (status == STATUS_OK) status = facts_append(&d->facts, d->document.metadata, e);
    if (status)
        remote_document_release(d);
    else
        wanted->found = d;
    return status;
}

/* The cache. */

enum { CACHE_BYTES = 64 << 20 };

static struct remote_document *cache_find(struct remote_cache *c, const char *content) {
    struct remote_document *found = NULL;
    pthread_mutex_lock(&c->lock);
    for (int i = c->n - 1; i >= 0 && found == NULL; i--) {
        if (strcmp(c->list[i]->content, content) != 0) continue;
        found = c->list[i];
        memmove(c->list + i, c->list + i + 1, (size_t)(c->n - 1 - i) * sizeof(struct remote_document *));
        c->list[c->n - 1] = found;
        remote_document_hold(found);
    }
    pthread_mutex_unlock(&c->lock);
    return found;
}

static void cache_add(struct remote_cache *c, struct remote_document *d) {
    if (d->bytes > CACHE_BYTES / 4) return;
    pthread_mutex_lock(&c->lock);
    while (c->n > 0 && c->bytes + d->bytes > CACHE_BYTES) {
        c->bytes -= c->list[0]->bytes;
        remote_document_release(c->list[0]);
        c->n--;
        memmove(c->list, c->list + 1, (size_t)c->n * sizeof(struct remote_document *));
    }
    c->list = xgrow(c->list, c->n, &c->capacity, sizeof(struct remote_document *));
    c->list[c->n] = remote_document_hold(d);
    c->n++;
    c->bytes += d->bytes;
    pthread_mutex_unlock(&c->lock);
}

/* Fetching: documents that are not in the cache, some pages of keys, each page an answer that lives until the
 * documents are put together. */

struct document_fetch {
    struct remote *remote;
    struct remote_wanted *wanted; /* [n] */
    struct chunk_piece **pieces;  /* [n], of each [n_chunks]; NULL: it was in the cache */
    int n;
    struct buffer *replies; /* [n_replies] */
    int n_replies, capacity;
    struct buffer expression;
    int n_keys;
};

static struct remote_wanted *find_wanted(const struct document_fetch *f, struct text_span id, int *at) {
    for (*at = 0; *at < f->n; (*at)++) {
        struct text_span own = f->wanted[*at].id;
        if (f->pieces[*at] && own.size == id.size && memcmp(own.text, id.text, id.size) == 0) return &f->wanted[*at];
    }
    return NULL;
}

struct row_columns {
    const struct text_span *documents, *contents, *texts, *tokens, *marks, *heads;
    const int64_t *chunks, *numbers, *starts;
};

static enum status find_columns(struct row_columns *c, const struct answer_rows *rows, struct error *e) {
    if (answer_texts(rows, COLUMN_DOCUMENT, &c->documents, e) || answer_texts(rows, COLUMN_CONTENT, &c->contents, e) ||
        answer_texts(rows, COLUMN_TEXT, &c->texts, e) || answer_texts(rows, COLUMN_TOKENS, &c->tokens, e) ||
        answer_texts(rows, COLUMN_MARKS, &c->marks, e) || answer_texts(rows, COLUMN_HEAD, &c->heads, e) ||
        answer_numbers(rows, COLUMN_CHUNKS, &c->chunks, e) || answer_numbers(rows, COLUMN_CHUNK, &c->numbers, e) ||
        answer_numbers(rows, COLUMN_START, &c->starts, e))
        return e->status;
    return STATUS_OK;
}

/* Rows of another content belong to a change that is under way: their document is not there as a whole. */
static enum status take_rows(struct document_fetch *f, const struct answer_rows *rows, struct error *e) {
    struct row_columns c;
    if (find_columns(&c, rows, e)) return e->status;
    for (int i = 0; i < rows->n; i++) {
        int at;
        const struct remote_wanted *wanted = find_wanted(f, c.documents[i], &at);
        bool same = wanted && c.contents[i].size == 32 && memcmp(c.contents[i].text, wanted->content, 32) == 0;
        if (!same || c.chunks[i] != wanted->n_chunks || c.numbers[i] < 0 || c.numbers[i] >= wanted->n_chunks) continue;
        f->pieces[at][c.numbers[i]] = (struct chunk_piece){.there = true,
                                                           .start = c.starts[i],
                                                           .text = c.texts[i],
                                                           .tokens = c.tokens[i],
                                                           .marks = c.marks[i],
                                                           .head = c.heads[i]};
    }
    return STATUS_OK;
}

static enum status ask_page(struct document_fetch *f, struct error *e) {
    static const char *const columns[] = {COLUMN_DOCUMENT, COLUMN_CONTENT, COLUMN_CHUNKS, COLUMN_CHUNK, COLUMN_START,
                                          COLUMN_TEXT,     COLUMN_TOKENS,  COLUMN_MARKS,  COLUMN_HEAD};
    struct answer_rows rows;
    if (f->n_keys == 0) return STATUS_OK;
    buffer_append_string(&f->expression, "]");
    f->replies = xgrow(f->replies, f->n_replies, &f->capacity, sizeof *f->replies);
    f->replies[f->n_replies] = (struct buffer){0};
    f->n_replies++;
    struct remote_query q = {.expression = f->expression.data, .columns = columns, .n_columns = ARRAY_COUNT(columns)};
    enum status status = remote_query(f->remote, &q, &f->replies[f->n_replies - 1], &rows, e);
    if (status == STATUS_OK) status = take_rows(f, &rows, e);
    answer_rows_free(&rows);
    buffer_clear(&f->expression);
    f->n_keys = 0;
    return status;
}

static enum status ask_document(struct document_fetch *f, const struct remote_wanted *wanted, struct error *e) {
    char id[513], key[REMOTE_KEY_SIZE];
    snprintf(id, sizeof id, "%.*s", (int)wanted->id.size, wanted->id.text);
    for (int i = 0; i < wanted->n_chunks; i++) {
        if (f->n_keys == REMOTE_PAGE && ask_page(f, e)) return e->status;
        remote_key(id, i, key);
        buffer_printf(&f->expression, "%s\"%s\"", f->n_keys == 0 ? COLUMN_KEY " in [" : ", ", key);
        f->n_keys++;
    }
    return STATUS_OK;
}

static bool is_whole(const struct chunk_piece *pieces, int n) {
    for (int i = 0; i < n; i++)
        if (!pieces[i].there) return false;
    return true;
}

enum status remote_fetch(struct remote *r, struct remote_wanted *wanted, int n, struct error *e) {
    struct document_fetch f = {.remote = r, .wanted = wanted, .n = n};
    enum status status = STATUS_OK;
    f.pieces = xcalloc((size_t)n + 1, sizeof(struct chunk_piece *));
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        wanted[i].found = cache_find(&r->cache, wanted[i].content);
        if (wanted[i].found) continue;
        f.pieces[i] = calloc((size_t)wanted[i].n_chunks, sizeof **f.pieces);
        if (f.pieces[i] == NULL)
            status = error_set(e, STATUS_NO_MEMORY, "no memory for %d chunks of a document", wanted[i].n_chunks);
        else
            status = ask_document(&f, &wanted[i], e);
    }
    if (status == STATUS_OK) status = ask_page(&f, e);
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        if (f.pieces[i] == NULL || !is_whole(f.pieces[i], wanted[i].n_chunks)) continue;
        status = put_together(r, &wanted[i], f.pieces[i], e);
        if (status == STATUS_OK) cache_add(&r->cache, wanted[i].found);
    }
    for (int i = 0; i < n; i++) free(f.pieces[i]);
    for (int i = 0; i < f.n_replies; i++) buffer_free(&f.replies[i]);
    free(f.pieces);
    free(f.replies);
    buffer_free(&f.expression);
    return status;
}
