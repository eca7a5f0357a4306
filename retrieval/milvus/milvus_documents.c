/* retrieval/milvus/milvus_documents.c: documents from rows. See remote_private.h. Rows that come
 * back are checked as a file would be: Milvus, or whoever answers in its place, is not believed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/base64.h"
#include "config/base/utf8.h"
#include "retrieval/milvus/milvus_private.h"

/* The head. */

struct head_facts {
    char *path, *title, *metadata, *source, *file, *text;
    int64_t bytes;
};

static const struct json_field head_fields[] = {
    {"path", JSON_TEXT, JSON_AT(struct head_facts, path), .required = true},
    {"title", JSON_TEXT, JSON_AT(struct head_facts, title), .required = true},
    {"metadata", JSON_TEXT, JSON_AT(struct head_facts, metadata), .required = true},
    {"source", JSON_TEXT, JSON_AT(struct head_facts, source), .required = true},
    {"file", JSON_TEXT, JSON_AT(struct head_facts, file), .required = true},
    {"text", JSON_TEXT, JSON_AT(struct head_facts, text), .required = true},
    {"bytes", JSON_INT64, JSON_AT(struct head_facts, bytes), .min = 0, .max = UINT32_MAX,
     .required = true},
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

void milvus_head_free(struct milvus_head *head) {
    free(head->path);
    free(head->title);
    free(head->metadata);
    free(head->source);
    free(head->file);
    free(head->text_hash);
    *head = (struct milvus_head){0};
}

static bool copy_content(struct text_span from, char content[33]) {
    if (from.size != 32 || memchr(from.text, '\0', 32)) return false;
    memcpy(content, from.text, 32);
    content[32] = '\0';
    return true;
}

/* None has more: milvus_put_all refuses it. A request of Milvus takes MILVUS_PAGE of them. */
static enum status check_told_chunks(int64_t n_chunks, struct error *e) {
    if (n_chunks <= MILVUS_CHUNKS) return STATUS_OK;
    return error_set(e, STATUS_CORRUPT,
                     "Milvus tells of a document of %" PRId64 " chunks; one has at most %d",
                     n_chunks, MILVUS_CHUNKS);
}

enum status milvus_head_read(struct milvus_head *out, const struct answer_rows *rows, int i,
                             struct error *e) {
    const struct text_span *contents, *heads;
    const int64_t *chunks;
    struct head_facts facts;
    *out = (struct milvus_head){0};
    if (answer_texts(rows, COLUMN_CONTENT, &contents, e) ||
        answer_texts(rows, COLUMN_HEAD, &heads, e) ||
        answer_numbers(rows, COLUMN_CHUNKS, &chunks, e))
        return e->status;
    if (check_told_chunks(chunks[i], e)) return e->status;
    if (!copy_content(contents[i], out->content) || chunks[i] < 1)
        return error_set(e, STATUS_CORRUPT,
                         "a row of a document in Milvus says nothing sensible of its content");
    if (read_head(heads[i], &facts, e)) return e->status;
    out->n_chunks = (int)chunks[i];
    out->path = facts.path;
    out->title = facts.title;
    out->metadata = facts.metadata;
    out->source = facts.source;
    out->file = facts.file;
    out->text_hash = facts.text;
    out->bytes = facts.bytes;
    return STATUS_OK;
}

enum status milvus_find_head(struct milvus_collection *milvus, const char *id,
                             struct milvus_head *out, struct error *e) {
    static const char *const wanted[] = {COLUMN_CONTENT, COLUMN_CHUNKS, COLUMN_HEAD};
    struct buffer expression = {0}, reply = {0};
    struct answer_rows rows;
    *out = (struct milvus_head){0};
    milvus_express_keys(&expression, id, 0, 1);
    struct milvus_query query = {
        .expression = expression.data, .columns = wanted, .n_columns = ARRAY_COUNT(wanted)};
    enum status status = milvus_query(milvus, &query, &reply, &rows, e);
    if (status == STATUS_OK && rows.n > 0) status = milvus_head_read(out, &rows, 0, e);
    answer_rows_free(&rows);
    buffer_free(&expression);
    buffer_free(&reply);
    return status;
}

/* Documents. */

struct milvus_document *milvus_document_hold(struct milvus_document *document) {
    atomic_fetch_add(&document->holders, 1);
    return document;
}

void milvus_document_release(struct milvus_document *document) {
    if (document == NULL || atomic_fetch_sub(&document->holders, 1) > 1) return;
    free((char *)(uintptr_t)document->document.id);
    free((char *)(uintptr_t)document->document.path);
    free((char *)(uintptr_t)document->document.title);
    free((char *)(uintptr_t)document->document.metadata);
    free((char *)(uintptr_t)document->document.source);
    free((char *)(uintptr_t)document->document.file);
    free((char *)(uintptr_t)document->document.text.text);
    free((void *)(uintptr_t)document->document.marks.bytes);
    free((void *)(uintptr_t)document->document.ids);
    free((void *)(uintptr_t)document->document.chunks);
    buffer_free(&document->facts);
    free(document);
}

struct stored_document milvus_document_stored(const struct milvus_document *document) {
    return (struct stored_document){.id = document->document.id,
                                    .path = document->document.path,
                                    .title = document->document.title,
                                    .metadata = document->document.metadata,
                                    .source = document->document.source,
                                    .file = document->document.file,
                                    .text = document->document.text,
                                    .marks = document->document.marks,
                                    .facts = {document->facts.data, document->facts.size},
                                    .n_chunks = document->document.n_chunks};
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
    struct chunk_range *chunks;
};

/* Takes the tokens of a row, and where its chunk lies. */
static bool join_tokens(struct document_parts *parts, struct text_span row,
                        struct chunk_range *range) {
    struct buffer bytes = {0};
    bool whole = base64_decode(row, &bytes) && bytes.size >= sizeof *range &&
                 bytes.size % sizeof(uint32_t) == 0;
    if (whole) {
        memcpy(range, bytes.data, sizeof *range);
        buffer_append(&parts->tokens, bytes.data + sizeof *range, bytes.size - sizeof *range);
    }
    buffer_free(&bytes);
    return whole && parts->tokens.size / sizeof(uint32_t) <= INT32_MAX;
}

static enum status join_chunks(struct document_parts *parts, const struct chunk_piece *pieces,
                               int n, const char *id, struct error *e) {
    for (int i = 0; i < n; i++) {
        const struct chunk_piece *piece = &pieces[i];
        size_t begins = parts->text.size;
        if (!join_tokens(parts, piece->tokens, &parts->chunks[i]) ||
            !base64_decode(piece->marks, &parts->marks))
            return misfit(e, id, "its tokens or marks are not base64");
        buffer_append(&parts->text, piece->text.text, piece->text.size);
        if (parts->text.size > UINT32_MAX || piece->start != (int64_t)begins)
            return misfit(e, id, "a row does not begin where the one before ends");
    }
    if (parts->marks.size % sizeof(struct mark) != 0) return misfit(e, id, "a mark is cut off");
    return STATUS_OK;
}

static enum status check_document(const struct milvus_collection *milvus,
                                  const struct milvus_document *milvus_document, struct error *e) {
    const struct collection_document *document = &milvus_document->document;
    char content[33];
    const char *fault =
        document_chunks_fault(document, milvus->info.cut, milvus->info.chunk_length);
    if (fault == NULL) fault = marks_fault(document->marks, document->text.size);
    if (fault) return misfit(e, document->id, fault);
    for (int i = 0; i < document->n; i++)
        if (document->ids[i] < 0 || document->ids[i] > milvus->info.max_token)
            return misfit(e, document->id, "it has a token that its tokenizer has not");
    if (!utf8_is_valid(document->text.text, document->text.size))
        return misfit(e, document->id, "it is not UTF-8");
    milvus_content(document, content);
    if (strcmp(content, milvus_document->content) != 0)
        return misfit(e, document->id, "its content is not the one of its checksum");
    return STATUS_OK;
}

/* Takes the parts. */
static struct milvus_document *make_document(const struct milvus_wanted *wanted,
                                             struct head_facts *head,
                                             struct document_parts *parts) {
    struct milvus_document *document = xcalloc(1, sizeof *document);
    atomic_init(&document->holders, 1);
    memcpy(document->content, wanted->content, sizeof document->content);
    buffer_append_string(&parts->text, "");
    if (parts->text.data == NULL) parts->text.data = xstrdup("");
    document->bytes = sizeof *document + parts->text.size + parts->tokens.size + parts->marks.size +
                      (size_t)wanted->n_chunks * sizeof *parts->chunks;
    document->document = (struct collection_document){
        .id = xstrndup(wanted->id.text, wanted->id.size),
        .path = head->path,
        .title = head->title,
        .metadata = head->metadata,
        .source = head->source,
        .file = head->file,
        .text = {parts->text.data, parts->text.size},
        .marks = {parts->marks.data, (uint32_t)(parts->marks.size / sizeof(struct mark))},
        .ids = (const int32_t *)(const void *)parts->tokens.data,
        .chunks = parts->chunks,
        .n_chunks = wanted->n_chunks,
        .n = (int)(parts->tokens.size / sizeof(int32_t))};
    *parts = (struct document_parts){0};
    free(head->text);
    return document;
}

static enum status put_together(const struct milvus_collection *milvus,
                                struct milvus_wanted *wanted, const struct chunk_piece *pieces,
                                struct error *e) {
    char id[513];
    struct document_parts parts = {.chunks =
                                       xcalloc((size_t)wanted->n_chunks, sizeof *parts.chunks)};
    struct head_facts head = {0};
    snprintf(id, sizeof id, "%.*s", (int)wanted->id.size, wanted->id.text);
    enum status status = read_head(pieces[0].head, &head, e);
    if (status == STATUS_OK) status = join_chunks(&parts, pieces, wanted->n_chunks, id, e);
    if (status) {
        json_table_free(&head_table, &head);
        buffer_free(&parts.text);
        buffer_free(&parts.tokens);
        buffer_free(&parts.marks);
        free(parts.chunks);
        return status;
    }
    struct milvus_document *document = make_document(wanted, &head, &parts);
    status = check_document(milvus, document, e);
    if (status == STATUS_OK)
        status = facts_append(&document->facts, document->document.metadata, e);
    if (status)
        milvus_document_release(document);
    else
        wanted->found = document;
    return status;
}

/* The cache. */

enum { CACHE_BYTES = 64 << 20 };

/* Whether the document is what a row says of it: chunks that the row names are taken from it. */
static bool is_wanted(const struct milvus_document *document, const struct milvus_wanted *wanted) {
    const char *id = document->document.id;
    return memcmp(document->content, wanted->content, sizeof document->content) == 0 &&
           document->document.n_chunks == wanted->n_chunks && strlen(id) == wanted->id.size &&
           memcmp(id, wanted->id.text, wanted->id.size) == 0;
}

static struct milvus_document *cache_find(struct milvus_cache *cache,
                                          const struct milvus_wanted *wanted) {
    struct milvus_document *found = NULL;
    pthread_mutex_lock(&cache->lock);
    for (int i = cache->n - 1; i >= 0 && found == NULL; i--) {
        if (!is_wanted(cache->list[i], wanted)) continue;
        found = cache->list[i];
        memmove(cache->list + i, cache->list + i + 1,
                (size_t)(cache->n - 1 - i) * sizeof(struct milvus_document *));
        cache->list[cache->n - 1] = found;
        milvus_document_hold(found);
    }
    pthread_mutex_unlock(&cache->lock);
    return found;
}

static void cache_add(struct milvus_cache *cache, struct milvus_document *document) {
    if (document->bytes > CACHE_BYTES / 4) return;
    pthread_mutex_lock(&cache->lock);
    while (cache->n > 0 && cache->bytes + document->bytes > CACHE_BYTES) {
        cache->bytes -= cache->list[0]->bytes;
        milvus_document_release(cache->list[0]);
        cache->n--;
        memmove(cache->list, cache->list + 1, (size_t)cache->n * sizeof(struct milvus_document *));
    }
    cache->list = xgrow(cache->list, cache->n, &cache->capacity, sizeof(struct milvus_document *));
    cache->list[cache->n] = milvus_document_hold(document);
    cache->n++;
    cache->bytes += document->bytes;
    pthread_mutex_unlock(&cache->lock);
}

/* Fetching: documents that are not in the cache, some pages of keys, each page an answer that lives
 * until the documents are put together. */

/* A document of MILVUS_CHUNKS has some 1 GiB. */
static const size_t fetch_bytes = (size_t)2 << 30;

struct document_fetch {
    struct milvus_collection *remote;
    struct milvus_wanted *wanted; /* [n] */
    struct chunk_piece **pieces;  /* [n], of each [n_chunks]; NULL: it was in the cache */
    int n;
    struct buffer *replies; /* [n_replies] */
    int n_replies, capacity;
    size_t bytes; /* of the replies */
    struct buffer expression;
    int n_keys;
    enum milvus_sight sight;
};

static struct milvus_wanted *find_wanted(const struct document_fetch *fetch, struct text_span id,
                                         int *at) {
    for (*at = 0; *at < fetch->n; (*at)++) {
        struct text_span own = fetch->wanted[*at].id;
        if (fetch->pieces[*at] && own.size == id.size && memcmp(own.text, id.text, id.size) == 0)
            return &fetch->wanted[*at];
    }
    return NULL;
}

struct row_columns {
    const struct text_span *documents, *contents, *texts, *tokens, *marks, *heads;
    const int64_t *chunks, *numbers, *starts;
};

static enum status find_columns(struct row_columns *columns, const struct answer_rows *rows,
                                struct error *e) {
    if (answer_texts(rows, COLUMN_DOCUMENT, &columns->documents, e) ||
        answer_texts(rows, COLUMN_CONTENT, &columns->contents, e) ||
        answer_texts(rows, COLUMN_TEXT, &columns->texts, e) ||
        answer_texts(rows, COLUMN_TOKENS, &columns->tokens, e) ||
        answer_texts(rows, COLUMN_MARKS, &columns->marks, e) ||
        answer_texts(rows, COLUMN_HEAD, &columns->heads, e) ||
        answer_numbers(rows, COLUMN_CHUNKS, &columns->chunks, e) ||
        answer_numbers(rows, COLUMN_CHUNK, &columns->numbers, e) ||
        answer_numbers(rows, COLUMN_START, &columns->starts, e))
        return e->status;
    return STATUS_OK;
}

/* Rows of another content belong to a change that is under way: their document is not there as a
 * whole. */
static enum status take_rows(struct document_fetch *fetch, const struct answer_rows *rows,
                             struct error *e) {
    struct row_columns columns;
    if (find_columns(&columns, rows, e)) return e->status;
    for (int i = 0; i < rows->n; i++) {
        int at;
        const struct milvus_wanted *wanted = find_wanted(fetch, columns.documents[i], &at);
        bool same = wanted && columns.contents[i].size == 32 &&
                    memcmp(columns.contents[i].text, wanted->content, 32) == 0;
        if (!same || columns.chunks[i] != wanted->n_chunks || columns.numbers[i] < 0 ||
            columns.numbers[i] >= wanted->n_chunks)
            continue;
        fetch->pieces[at][columns.numbers[i]] = (struct chunk_piece){.there = true,
                                                                     .start = columns.starts[i],
                                                                     .text = columns.texts[i],
                                                                     .tokens = columns.tokens[i],
                                                                     .marks = columns.marks[i],
                                                                     .head = columns.heads[i]};
    }
    return STATUS_OK;
}

/* All replies are in memory until the documents are put together. */
static enum status count_bytes(struct document_fetch *fetch, struct error *e) {
    fetch->bytes += fetch->replies[fetch->n_replies - 1].size;
    if (fetch->bytes <= fetch_bytes) return STATUS_OK;
    return error_set(e, STATUS_CORRUPT,
                     "Milvus answers with more than %zu MiB for the documents of one request, "
                     "which is the limit",
                     fetch_bytes >> 20);
}

static enum status ask_page(struct document_fetch *fetch, struct error *e) {
    static const char *const columns[] = {COLUMN_DOCUMENT, COLUMN_CONTENT, COLUMN_CHUNKS,
                                          COLUMN_CHUNK,    COLUMN_START,   COLUMN_TEXT,
                                          COLUMN_TOKENS,   COLUMN_MARKS,   COLUMN_HEAD};
    struct answer_rows rows;
    if (fetch->n_keys == 0) return STATUS_OK;
    buffer_append_string(&fetch->expression, "]");
    fetch->replies =
        xgrow(fetch->replies, fetch->n_replies, &fetch->capacity, sizeof *fetch->replies);
    fetch->replies[fetch->n_replies] = (struct buffer){0};
    fetch->n_replies++;
    struct milvus_query query = {.expression = fetch->expression.data,
                                 .columns = columns,
                                 .n_columns = ARRAY_COUNT(columns),
                                 .sight = fetch->sight};
    enum status status =
        milvus_query(fetch->remote, &query, &fetch->replies[fetch->n_replies - 1], &rows, e);
    if (status == STATUS_OK) status = count_bytes(fetch, e);
    if (status == STATUS_OK) status = take_rows(fetch, &rows, e);
    answer_rows_free(&rows);
    buffer_clear(&fetch->expression);
    fetch->n_keys = 0;
    return status;
}

/* A document of which a page's last row is not there is not whole: the rest of it is not asked for.
 */
static enum status ask_document(struct document_fetch *fetch, int number, struct error *e) {
    const struct milvus_wanted *wanted = &fetch->wanted[number];
    char id[513], key[MILVUS_KEY_SIZE];
    snprintf(id, sizeof id, "%.*s", (int)wanted->id.size, wanted->id.text);
    for (int i = 0; i < wanted->n_chunks; i++) {
        if (fetch->n_keys == MILVUS_PAGE) {
            if (ask_page(fetch, e)) return e->status;
            if (i > 0 && !fetch->pieces[number][i - 1].there) return STATUS_OK;
        }
        milvus_key(id, i, key);
        buffer_printf(&fetch->expression, "%s\"%s\"",
                      fetch->n_keys == 0 ? COLUMN_KEY " in [" : ", ", key);
        fetch->n_keys++;
    }
    return STATUS_OK;
}

static bool is_whole(const struct chunk_piece *pieces, int n) {
    for (int i = 0; i < n; i++)
        if (!pieces[i].there) return false;
    return true;
}

/* Asks for the documents that are not whole yet. */
static enum status ask_missing(struct document_fetch *fetch, enum milvus_sight sight,
                               struct error *e) {
    enum status status = STATUS_OK;
    fetch->sight = sight;
    for (int i = 0; i < fetch->n && status == STATUS_OK; i++)
        if (fetch->pieces[i] && !is_whole(fetch->pieces[i], fetch->wanted[i].n_chunks))
            status = ask_document(fetch, i, e);
    return status ? status : ask_page(fetch, e);
}

static enum status begin_fetch(struct document_fetch *fetch, struct error *e) {
    fetch->pieces = xcalloc((size_t)fetch->n + 1, sizeof(struct chunk_piece *));
    for (int i = 0; i < fetch->n; i++) {
        struct milvus_wanted *wanted = &fetch->wanted[i];
        wanted->found = cache_find(&fetch->remote->cache, wanted);
        if (wanted->found) continue;
        if (check_told_chunks(wanted->n_chunks, e)) return e->status;
        fetch->pieces[i] = calloc((size_t)wanted->n_chunks, sizeof **fetch->pieces);
        if (fetch->pieces[i] == NULL)
            return error_set(e, STATUS_NO_MEMORY, "no memory for %d chunks of a document",
                             wanted->n_chunks);
    }
    return STATUS_OK;
}

/* The rows mostly have arrived where they are asked for; only where one has not, Milvus is made to
 * wait for it. */
enum status milvus_fetch(struct milvus_collection *milvus, struct milvus_wanted *wanted, int n,
                         struct error *e) {
    struct document_fetch fetch = {.remote = milvus, .wanted = wanted, .n = n};
    enum status status = begin_fetch(&fetch, e);
    if (status == STATUS_OK) status = ask_missing(&fetch, MILVUS_ARRIVED, e);
    if (status == STATUS_OK) status = ask_missing(&fetch, MILVUS_ALL, e);
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        if (fetch.pieces[i] == NULL || !is_whole(fetch.pieces[i], wanted[i].n_chunks)) continue;
        status = put_together(milvus, &wanted[i], fetch.pieces[i], e);
        if (status == STATUS_OK) cache_add(&milvus->cache, wanted[i].found);
    }
    for (int i = 0; i < n; i++) free(fetch.pieces[i]);
    for (int i = 0; i < fetch.n_replies; i++) buffer_free(&fetch.replies[i]);
    free(fetch.pieces);
    free(fetch.replies);
    buffer_free(&fetch.expression);
    return status;
}
