/* retrieval/generation/document_image.c: see document_image.h. */
#include "retrieval/generation/document_image.h"

#include <math.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/generation/generation_private.h"

struct image_head {
    uint32_t n_tokens;
    uint32_t id_size, path_size, title_size, metadata_size; /* without the NULs */
    uint32_t n_marks;
    uint32_t text_size, source_size, file_size;
    uint32_t n_chunks;
};
_Static_assert(sizeof(struct image_head) == 40, "the arrays behind it are aligned");

/* Where the arrays and strings of an image lie, in bytes. */
struct image_layout {
    uint64_t ids, chunks, vectors, picture, marks, strings, text, end;
};

/* picture_dim: numbers of the picture's vector; 0: it has none. */
static struct image_layout lay_out(const struct image_head *head, int dim, int picture_dim) {
    struct image_layout layout = {.ids = sizeof *head};
    layout.chunks = layout.ids + (uint64_t)head->n_tokens * sizeof(uint32_t);
    layout.vectors = layout.chunks + (uint64_t)head->n_chunks * sizeof(struct chunk_range);
    layout.picture = layout.vectors + (uint64_t)head->n_chunks * (uint64_t)dim * sizeof(float);
    layout.marks = layout.picture + (uint64_t)picture_dim * sizeof(float);
    layout.strings = layout.marks + head->n_marks * sizeof(struct mark);
    layout.text = layout.strings + head->id_size + head->path_size + head->title_size +
                  (uint64_t)head->metadata_size + head->source_size + head->file_size + 6;
    layout.end = layout.text + head->text_size;
    return layout;
}

bool vector_is_unit(const float *v, int dim) {
    double square = 0;
    for (int i = 0; i < dim; i++) square += (double)v[i] * (double)v[i];
    /* Written so that NaN fails too. */
    return fabs(square - 1) < 1e-3;
}

static const char *find_sparse_fault(const struct sparse_table *table, int n_chunks) {
    if (table->ends == NULL) return "it has no sparse weights, which the collection takes";
    for (int i = 0; i < n_chunks; i++) {
        if (i > 0 && table->ends[i] < table->ends[i - 1]) return "the ends of sparse weights fall";
        if (table->ends[i] > table->ends[n_chunks - 1]) return "sparse weights have no end";
        const char *fault = sparse_row_fault(sparse_table_row(table, i));
        if (fault) return fault;
    }
    return NULL;
}

/* The fault of a document, or NULL. */
static const char *find_fault(const struct document_image *image,
                              const struct collection_info *info) {
    const struct collection_document *document = &image->document;
    const char *fault = document_chunks_fault(document, info->cut, info->chunk_length);
    if (fault) return fault;
    for (int i = 0; i < document->n; i++)
        if (document->ids[i] < 0) return "a token is negative";
    for (int i = 0; i < document->n_chunks; i++)
        if (!vector_is_unit(image->vectors + (size_t)i * (size_t)info->dim, info->dim))
            return "a vector is not of unit length";
    if (info->sparse) {
        const char *sparse = find_sparse_fault(&document->sparse, document->n_chunks);
        if (sparse) return sparse;
    }
    if (document->picture && info->pictures.embedder == NULL)
        return "it has a picture's vector, and the collection takes none";
    if (document->picture && !vector_is_unit(document->picture, info->pictures.dim))
        return "a picture's vector is not of unit length";
    return marks_fault(document->marks, document->text.size);
}

/* Sparse weights, behind the text. */

static size_t round_up_4(size_t size) { return (size + 3) & ~(size_t)3; }

static void write_sparse(struct buffer *out, size_t start,
                         const struct collection_document *document) {
    const struct sparse_table *sparse = &document->sparse;
    const char zeros[4] = {0};
    uint32_t n = sparse->ends[document->n_chunks - 1];
    size_t size = out->size - start;
    buffer_append(out, zeros, round_up_4(size) - size);
    buffer_append(out, sparse->weights, n * sizeof *sparse->weights);
    buffer_append(out, sparse->ends, (size_t)document->n_chunks * sizeof *sparse->ends);
    buffer_append(out, &n, sizeof n);
}

/* Takes the weights of n_chunks chunks off the end of an image; false: it is too short for them. */
static bool read_sparse(struct text_span *bytes, uint32_t n_chunks, struct sparse_table *out) {
    uint32_t n;
    uint64_t ends = (uint64_t)n_chunks * sizeof *out->ends;
    if (bytes->size % 4 != 0 || bytes->size < sizeof n + ends) return false;
    memcpy(&n, bytes->text + bytes->size - sizeof n, sizeof n);
    uint64_t left = bytes->size - sizeof n - ends;
    if (left / sizeof *out->weights < n) return false;
    out->ends = (const uint32_t *)(const void *)(bytes->text + left);
    bytes->size = (size_t)left - n * sizeof *out->weights;
    out->weights = (const struct sparse_weight *)(const void *)(bytes->text + bytes->size);
    return out->ends[n_chunks - 1] == n;
}

static enum status check_strings(const struct collection_document *document, struct error *e) {
    size_t id = strlen(document->id);
    if (id < 1 || id > COLLECTION_MAX_ID)
        return error_set(e, STATUS_INVALID, "the document's id has %zu bytes; 1 .. %d are possible",
                         id, COLLECTION_MAX_ID);
    if (!utf8_is_valid(document->id, id) ||
        !utf8_is_valid(document->text.text, document->text.size))
        return error_set(e, STATUS_INVALID,
                         "document %.100s: its id or its text is not valid UTF-8", document->id);
    if (strlen(document->path) > COLLECTION_MAX_STRING ||
        strlen(document->title) > COLLECTION_MAX_STRING ||
        strlen(document->metadata ? document->metadata : "") > COLLECTION_MAX_STRING ||
        strlen(document->source ? document->source : "") > COLLECTION_MAX_STRING ||
        strlen(document->file ? document->file : "") > COLLECTION_MAX_STRING)
        return error_set(
            e, STATUS_TOO_LARGE,
            "document %.100s: its name, title, metadata or source has more than %d bytes",
            document->id, COLLECTION_MAX_STRING);
    return STATUS_OK;
}

enum status document_image_write(struct buffer *out, const struct collection_document *document,
                                 const float *vectors, const struct collection_info *info,
                                 struct error *e) {
    size_t start = out->size;
    if (check_strings(document, e)) return e->status;
    if (document->n < 1)
        return error_set(e, STATUS_INVALID, "document %.100s: no text", document->id);
    if (document->text.size > UINT32_MAX)
        return error_set(e, STATUS_TOO_LARGE, "document %.100s: %zu bytes of text, at most %u",
                         document->id, document->text.size, UINT32_MAX);
    const char *fault =
        find_fault(&(struct document_image){.document = *document, .vectors = vectors}, info);
    if (fault) return error_set(e, STATUS_INVALID, "document %.100s: %s", document->id, fault);

    const char *metadata = document->metadata ? document->metadata : "",
               *source = document->source ? document->source : "",
               *file = document->file ? document->file : "";
    struct image_head head = {.n_tokens = (uint32_t)document->n,
                              .id_size = (uint32_t)strlen(document->id),
                              .path_size = (uint32_t)strlen(document->path),
                              .title_size = (uint32_t)strlen(document->title),
                              .metadata_size = (uint32_t)strlen(metadata),
                              .n_marks = document->marks.n,
                              .text_size = (uint32_t)document->text.size,
                              .source_size = (uint32_t)strlen(source),
                              .file_size = (uint32_t)strlen(file),
                              .n_chunks = (uint32_t)document->n_chunks};
    buffer_append(out, &head, sizeof head);
    buffer_append(out, document->ids, (size_t)document->n * sizeof *document->ids);
    buffer_append(out, document->chunks, (size_t)document->n_chunks * sizeof *document->chunks);
    buffer_append(out, vectors, (size_t)document->n_chunks * (size_t)info->dim * sizeof *vectors);
    if (document->picture)
        buffer_append(out, document->picture,
                      (size_t)info->pictures.dim * sizeof *document->picture);
    if (document->marks.n > 0)
        buffer_append(out, document->marks.bytes, document->marks.n * sizeof(struct mark));
    buffer_append(out, document->id, head.id_size + (size_t)1);
    buffer_append(out, document->path, head.path_size + (size_t)1);
    buffer_append(out, document->title, head.title_size + (size_t)1);
    buffer_append(out, metadata, head.metadata_size + (size_t)1);
    buffer_append(out, source, head.source_size + (size_t)1);
    buffer_append(out, file, head.file_size + (size_t)1);
    buffer_append(out, document->text.text, document->text.size);
    if (info->sparse) write_sparse(out, start, document);
    return STATUS_OK;
}

static enum status corrupt(struct error *e, const char *fault) {
    return error_set(e, STATUS_CORRUPT, "an image of a document: %s", fault);
}

/* The next string of an image, of `size` bytes; false where another NUL than its own ends it. */
static bool read_string(const char **at, uint32_t size, const char **string) {
    *string = *at;
    *at += (size_t)size + 1;
    return strnlen(*string, (size_t)size + 1) == size;
}

/* Whether the parts up to the text end where the bytes do, but for zeros before sparse weights. */
static bool is_end(const struct image_layout *layout, struct text_span bytes,
                   const struct collection_info *info) {
    if (!info->sparse) return layout->end == bytes.size;
    if (round_up_4(layout->end) != bytes.size) return false;
    for (uint64_t i = layout->end; i < bytes.size; i++)
        if (bytes.text[i] != 0) return false;
    return true;
}

enum status document_image_read(struct document_image *out, struct text_span bytes,
                                const struct collection_info *info, struct error *e) {
    struct image_head head;
    if (bytes.size < sizeof head) return corrupt(e, "it is cut off");
    memcpy(&head, bytes.text, sizeof head);
    if (head.n_tokens < 1 || head.n_tokens > INT32_MAX)
        return corrupt(e, "its number of tokens is not possible");
    if (head.id_size < 1 || head.id_size > COLLECTION_MAX_ID)
        return corrupt(e, "its id is empty or too long");
    if (head.n_chunks < 1 || head.n_chunks > head.n_tokens)
        return corrupt(e, "its number of chunks is not possible");
    struct sparse_table sparse = {0};
    if (info->sparse && !read_sparse(&bytes, head.n_chunks, &sparse))
        return corrupt(e, "its length is not the one that its sparse weights need");
    struct image_layout layout = lay_out(&head, info->dim, 0);
    bool has_picture = info->pictures.embedder && !is_end(&layout, bytes, info);
    if (has_picture) layout = lay_out(&head, info->dim, info->pictures.dim);
    if (!is_end(&layout, bytes, info))
        return corrupt(e, "its length is not the one that its parts need");

    const char *at = bytes.text + layout.strings;
    *out = (struct document_image){
        .vectors = (const float *)(const void *)(bytes.text + layout.vectors),
        .document = {.text = {bytes.text + layout.text, head.text_size},
                     .marks = {bytes.text + layout.marks, head.n_marks},
                     .ids = (const int32_t *)(const void *)(bytes.text + layout.ids),
                     .chunks =
                         (const struct chunk_range *)(const void *)(bytes.text + layout.chunks),
                     .n_chunks = (int)head.n_chunks,
                     .n = (int)head.n_tokens,
                     .sparse = sparse,
                     .picture = has_picture
                                    ? (const float *)(const void *)(bytes.text + layout.picture)
                                    : NULL},
    };
    struct collection_document *document = &out->document;
    bool ended = read_string(&at, head.id_size, &document->id) &&
                 read_string(&at, head.path_size, &document->path) &&
                 read_string(&at, head.title_size, &document->title) &&
                 read_string(&at, head.metadata_size, &document->metadata) &&
                 read_string(&at, head.source_size, &document->source) &&
                 read_string(&at, head.file_size, &document->file);
    if (!ended) return corrupt(e, "a string does not end where it should");
    const char *fault = find_fault(out, info);
    return fault ? corrupt(e, fault) : STATUS_OK;
}
