/* retrieval/milvus/milvus_rows.c: documents as rows. See remote_private.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/base/base64.h"
#include "config/base/hash.h"
#include "config/json/json_writer.h"
#include "retrieval/milvus/labels.h"
#include "retrieval/milvus/milvus_private.h"

const struct milvus_column milvus_columns[MILVUS_COLUMNS] = {
    {COLUMN_KEY, MILVUS_VARCHAR, MILVUS_KEY_SIZE - 1},
    {COLUMN_DOCUMENT, MILVUS_VARCHAR, 512},
    {COLUMN_CHUNK, MILVUS_INT64, 0},
    {COLUMN_CHUNKS, MILVUS_INT64, 0},
    {COLUMN_CONTENT, MILVUS_VARCHAR, 32},
    {COLUMN_START, MILVUS_INT64, 0},
    {COLUMN_TEXT, MILVUS_VARCHAR, MILVUS_TEXT_BYTES},
    {COLUMN_TOKENS, MILVUS_VARCHAR, MILVUS_TEXT_BYTES},
    {COLUMN_MARKS, MILVUS_VARCHAR, MILVUS_TEXT_BYTES},
    {COLUMN_HEAD, MILVUS_VARCHAR, MILVUS_TEXT_BYTES},
    {COLUMN_LABELS, MILVUS_JSON, 0},
    {COLUMN_VECTOR, MILVUS_FLOAT_VECTOR, 0},
};

static void append_part(struct buffer *out, const void *bytes, size_t size) {
    uint64_t length = size;
    buffer_append(out, &length, sizeof length);
    buffer_append(out, bytes, size);
}

void milvus_content(const struct collection_document *document, char content[33]) {
    struct buffer all = {0};
    const char *metadata = document->metadata ? document->metadata : "",
               *source = document->source ? document->source : "",
               *file = document->file ? document->file : "";
    append_part(&all, document->id, strlen(document->id));
    append_part(&all, document->path, strlen(document->path));
    append_part(&all, document->title, strlen(document->title));
    append_part(&all, metadata, strlen(metadata));
    append_part(&all, source, strlen(source));
    append_part(&all, file, strlen(file));
    append_part(&all, document->text.text, document->text.size);
    append_part(&all, document->marks.bytes, document->marks.n * sizeof(struct mark));
    snprintf(content, 33, "%016" PRIx64 "%016" PRIx64, hash_bytes(all.data, all.size, 0),
             hash_bytes(all.data, all.size, 1));
    buffer_free(&all);
}

/* Cells. */

/* Rows hold all of a document: what is in no chunk goes with the chunk before it, and with the
 * first where it comes before that. */
static uint32_t row_start(const struct milvus_rows *rows, int chunk) {
    if (chunk == 0) return 0;
    return chunk < rows->n_chunks ? rows->document->chunks[chunk].start
                                  : (uint32_t)rows->document->text.size;
}
static uint32_t row_token(const struct milvus_rows *rows, int chunk) {
    if (chunk == 0) return 0;
    return chunk < rows->n_chunks ? rows->document->chunks[chunk].token
                                  : (uint32_t)rows->document->n;
}

static struct text_span row_text(const struct milvus_rows *rows, int chunk) {
    uint32_t first = row_start(rows, chunk);
    return (struct text_span){rows->document->text.text + first,
                              row_start(rows, chunk + 1) - first};
}

/* The first mark of a chunk. Marks at the end of the text are the last chunk's. */
static uint32_t first_mark(const struct milvus_rows *rows, int chunk) {
    const struct mark_span marks = rows->document->marks;
    if (chunk == 0) return 0;
    return chunk == rows->n_chunks ? marks.n : marks_seek(marks, row_start(rows, chunk));
}

static void put_marks(struct buffer *out, const struct milvus_rows *rows, int chunk) {
    uint32_t first = first_mark(rows, chunk), end = first_mark(rows, chunk + 1);
    const char *bytes = rows->document->marks.bytes;
    if (end > first)
        base64_encode((struct text_span){bytes + first * sizeof(struct mark),
                                         (end - first) * sizeof(struct mark)},
                      out);
}

/* Where the chunk lies in its document, and the tokens of the row. */
static void put_tokens(struct buffer *out, const struct milvus_rows *rows, int chunk) {
    const struct collection_document *document = rows->document;
    uint32_t first = row_token(rows, chunk), end = row_token(rows, chunk + 1);
    struct buffer bytes = {0};
    buffer_append(&bytes, &document->chunks[chunk], sizeof *document->chunks);
    buffer_append(&bytes, document->ids + first, (end - first) * sizeof *document->ids);
    base64_encode((struct text_span){bytes.data, bytes.size}, out);
    buffer_free(&bytes);
}

static void put_head(struct buffer *out, const struct collection_document *document) {
    struct json_writer w;
    char hash[DOCUMENT_ID_SIZE];
    text_hash(document->text, hash);
    put_begin(&w, out);
    put_object(&w);
    put_key_string(&w, "path", document->path);
    put_key_string(&w, "title", document->title);
    put_key_string(&w, "metadata", document->metadata ? document->metadata : "");
    put_key_string(&w, "source", document->source ? document->source : "");
    put_key_string(&w, "file", document->file ? document->file : "");
    put_key_string(&w, "text", hash);
    put_key_int(&w, "bytes", (int64_t)document->text.size);
    put_object_end(&w);
}

static void put_cell(struct buffer *out, const struct milvus_rows *rows, const char *column,
                     int chunk) {
    const struct collection_document *document = rows->document;
    struct text_span text = row_text(rows, chunk);
    char key[MILVUS_KEY_SIZE];
    milvus_key(document->id, chunk, key);
    if (strcmp(column, COLUMN_KEY) == 0) buffer_append_string(out, key);
    if (strcmp(column, COLUMN_DOCUMENT) == 0) buffer_append_string(out, document->id);
    if (strcmp(column, COLUMN_CONTENT) == 0) buffer_append_string(out, rows->content);
    if (strcmp(column, COLUMN_TEXT) == 0) buffer_append(out, text.text, text.size);
    if (strcmp(column, COLUMN_TOKENS) == 0) put_tokens(out, rows, chunk);
    if (strcmp(column, COLUMN_MARKS) == 0) put_marks(out, rows, chunk);
    if (strcmp(column, COLUMN_HEAD) == 0 && chunk == 0) put_head(out, document);
}

static enum status add_texts(struct buffer *out, const struct milvus_rows *rows, const char *name,
                             int first, int n, struct error *e) {
    struct buffer cell = {0};
    enum status status = STATUS_OK;
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        buffer_clear(&cell);
        put_cell(&cell, rows, name, first + i);
        if (cell.size > MILVUS_TEXT_BYTES)
            status = error_set(
                e, STATUS_TOO_LARGE,
                "document %.100s: the %s of chunk %d has %zu bytes, and Milvus holds %d: it takes "
                "smaller chunks or pictures, or less metadata",
                rows->document->id, name, first + i, cell.size, MILVUS_TEXT_BYTES);
        wire_put_item(out, 1, (struct text_span){cell.data, cell.size});
    }
    buffer_free(&cell);
    return status;
}

static int64_t number_cell(const struct milvus_rows *rows, const char *column, int chunk) {
    if (strcmp(column, COLUMN_CHUNK) == 0) return chunk;
    if (strcmp(column, COLUMN_START) == 0) return row_start(rows, chunk);
    return rows->n_chunks;
}

/* All rows of a document have the same labels. */
static enum status add_labels(struct buffer *out, const struct milvus_rows *rows, int n,
                              struct error *e) {
    struct buffer facts = {0}, labels = {0};
    const struct collection_document *document = rows->document;
    if (facts_append(&facts, document->metadata, e)) {
        buffer_free(&facts);
        return e->status;
    }
    labels_write(&labels, &(struct filter_subject){.id = document->id,
                                                   .path = document->path,
                                                   .facts = {facts.data, facts.size}});
    enum status status = STATUS_OK;
    if (labels.size > MILVUS_TEXT_BYTES)
        status = error_set(e, STATUS_TOO_LARGE,
                           "document %.100s: its metadata has too many values: what filters "
                           "compare takes %zu bytes, "
                           "and Milvus holds %d",
                           document->id, labels.size, MILVUS_TEXT_BYTES);
    for (int i = 0; i < n && status == STATUS_OK; i++)
        wire_put_item(out, 1, (struct text_span){labels.data, labels.size});
    buffer_free(&facts);
    buffer_free(&labels);
    return status;
}

static enum status add_column(struct buffer *out, const struct milvus_column *column,
                              const struct milvus_rows *rows, int first, int n, struct error *e) {
    switch (column->type) {
        case MILVUS_VARCHAR: return add_texts(out, rows, column->name, first, n, e);
        case MILVUS_JSON: return add_labels(out, rows, n, e);
        case MILVUS_INT64:
            for (int i = 0; i < n; i++)
                wire_put_packed(out, number_cell(rows, column->name, first + i));
            return STATUS_OK;
        case MILVUS_FLOAT_VECTOR: {
            size_t row = (size_t)rows->dim * sizeof *rows->vectors;
            buffer_append(out, (const char *)rows->vectors + (size_t)first * row, (size_t)n * row);
            return STATUS_OK;
        }
    }
    return STATUS_OK;
}

/* Batches. */

enum status milvus_batch_add(struct milvus_batch *batch, const struct milvus_rows *rows, int first,
                             int n, struct error *e) {
    enum status status = STATUS_OK;
    size_t before[MILVUS_COLUMNS];
    for (int i = 0; i < MILVUS_COLUMNS; i++) before[i] = batch->columns[i].size;
    for (int i = 0; i < MILVUS_COLUMNS && status == STATUS_OK; i++)
        status = add_column(&batch->columns[i], &milvus_columns[i], rows, first, n, e);
    for (int i = 0; i < MILVUS_COLUMNS && status; i++) batch->columns[i].size = before[i];
    if (status) return status;
    batch->n += n;
    batch->dim = rows->dim;
    return STATUS_OK;
}

size_t milvus_batch_bytes(const struct milvus_batch *batch) {
    size_t bytes = 0;
    for (int i = 0; i < MILVUS_COLUMNS; i++) bytes += batch->columns[i].size;
    return bytes;
}

void milvus_batch_clear(struct milvus_batch *batch) {
    for (int i = 0; i < MILVUS_COLUMNS; i++) buffer_clear(&batch->columns[i]);
    batch->n = 0;
}

void milvus_batch_free(struct milvus_batch *batch) {
    for (int i = 0; i < MILVUS_COLUMNS; i++) buffer_free(&batch->columns[i]);
    *batch = (struct milvus_batch){0};
}

/* ScalarField: longs 3, strings 6, JSON 9. */
static void put_scalars(struct buffer *out, enum milvus_type type, struct text_span values) {
    int kind = type == MILVUS_INT64 ? 3 : type == MILVUS_VARCHAR ? 6 : 9;
    size_t scalars = wire_begin(out, 3), list = wire_begin(out, kind);
    if (type == MILVUS_INT64)
        wire_put_item(out, 1, values);
    else
        buffer_append(out, values.text, values.size);
    wire_end(out, list);
    wire_end(out, scalars);
}

/* VectorField: dim 1, floats 2. */
static void put_vectors(struct buffer *out, int dim, struct text_span values) {
    size_t vectors = wire_begin(out, 4);
    wire_put_int(out, 1, dim);
    size_t floats = wire_begin(out, 2);
    wire_put_item(out, 1, values);
    wire_end(out, floats);
    wire_end(out, vectors);
}

void milvus_batch_write(struct buffer *out, const struct milvus_batch *batch) {
    for (int i = 0; i < MILVUS_COLUMNS; i++) {
        struct text_span values = {batch->columns[i].data, batch->columns[i].size};
        /* FieldData: type 1, name 2, scalars 3, vectors 4. */
        size_t field = wire_begin(out, 5);
        wire_put_int(out, 1, milvus_columns[i].type);
        wire_put_string(out, 2, milvus_columns[i].name);
        if (milvus_columns[i].type == MILVUS_FLOAT_VECTOR)
            put_vectors(out, batch->dim, values);
        else
            put_scalars(out, milvus_columns[i].type, values);
        wire_end(out, field);
    }
    wire_put_int(out, 7, batch->n);
}
