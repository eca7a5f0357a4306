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
    uint32_t text_size, source_size;
};
_Static_assert(sizeof(struct image_head) == 32, "the arrays behind it are aligned");

/* Where the arrays and strings of an image lie, in bytes. */
struct image_layout {
    uint64_t ids, bounds, vectors, picture, marks, strings, text, end;
};

/* picture_dim: numbers of the picture's vector; 0: it has none. */
static struct image_layout lay_out(const struct image_head *head, uint64_t n_chunks, int dim, int picture_dim) {
    struct image_layout l = {.ids = sizeof *head};
    l.bounds = l.ids + (uint64_t)head->n_tokens * sizeof(uint32_t);
    l.vectors = l.bounds + (n_chunks + 1) * sizeof(uint32_t);
    l.picture = l.vectors + n_chunks * (uint64_t)dim * sizeof(float);
    l.marks = l.picture + (uint64_t)picture_dim * sizeof(float);
    l.strings = l.marks + head->n_marks * sizeof(struct mark);
    l.text = l.strings + head->id_size + head->path_size + head->title_size + (uint64_t)head->metadata_size +
             head->source_size + 5;
    l.end = l.text + head->text_size;
    return l;
}

bool vector_is_unit(const float *v, int dim) {
    double square = 0;
    for (int i = 0; i < dim; i++) square += (double)v[i] * (double)v[i];
    /* Written so that NaN fails too. */
    return fabs(square - 1) < 1e-3;
}

/* The fault of a document, or NULL. */
static const char *find_fault(const struct document_image *image, const struct collection_info *info) {
    const struct collection_document *d = &image->document;
    if (d->bounds[image->n_chunks] != d->text.size) return "its chunks do not end where its text ends";
    for (int i = 0; i < image->n_chunks; i++)
        if (d->bounds[i] > d->bounds[i + 1]) return "a chunk ends before it begins";
    for (int i = 0; i < d->n; i++)
        if (d->ids[i] < 0) return "a token is negative";
    for (int i = 0; i < image->n_chunks; i++)
        if (!vector_is_unit(image->vectors + (size_t)i * (size_t)info->dim, info->dim))
            return "a vector is not of unit length";
    if (d->picture && info->pictures.embedder == NULL)
        return "it has a picture's vector, and the collection takes none";
    if (d->picture && !vector_is_unit(d->picture, info->pictures.dim))
        return "a picture's vector is not of unit length";
    return marks_fault(d->marks, d->text.size);
}

static enum status check_strings(const struct collection_document *d, struct error *e) {
    size_t id = strlen(d->id);
    if (id < 1 || id > COLLECTION_MAX_ID)
        return error_set(e, STATUS_INVALID, "the document's id has %zu bytes; 1 .. %d are possible", id,
                         COLLECTION_MAX_ID);
    if (!utf8_is_valid(d->id, id) || !utf8_is_valid(d->text.text, d->text.size))
        return error_set(e, STATUS_INVALID, "document %.100s: its id or its text is not valid UTF-8", d->id);
    if (strlen(d->path) > COLLECTION_MAX_STRING || strlen(d->title) > COLLECTION_MAX_STRING ||
        strlen(d->metadata ? d->metadata : "") > COLLECTION_MAX_STRING ||
        strlen(d->source ? d->source : "") > COLLECTION_MAX_STRING)
        return error_set(e, STATUS_TOO_LARGE,
                         "document %.100s: its name, title, metadata or source has more than %d bytes", d->id,
                         COLLECTION_MAX_STRING);
    return STATUS_OK;
}

enum status document_image_write(struct buffer *out, const struct collection_document *d, const float *vectors,
                                 const struct collection_info *info, struct error *e) {
    if (check_strings(d, e)) return e->status;
    if (d->n < 1) return error_set(e, STATUS_INVALID, "document %.100s: no text", d->id);
    if (d->text.size > UINT32_MAX)
        return error_set(e, STATUS_TOO_LARGE, "document %.100s: %zu bytes of text, at most %u", d->id, d->text.size,
                         UINT32_MAX);
    int n_chunks = document_count_chunks(d->n, info->chunk_length);
    const char *fault =
        find_fault(&(struct document_image){.document = *d, .vectors = vectors, .n_chunks = n_chunks}, info);
    if (fault) return error_set(e, STATUS_INVALID, "document %.100s: %s", d->id, fault);

    const char *metadata = d->metadata ? d->metadata : "", *source = d->source ? d->source : "";
    struct image_head head = {.n_tokens = (uint32_t)d->n,
                              .id_size = (uint32_t)strlen(d->id),
                              .path_size = (uint32_t)strlen(d->path),
                              .title_size = (uint32_t)strlen(d->title),
                              .metadata_size = (uint32_t)strlen(metadata),
                              .n_marks = d->marks.n,
                              .text_size = (uint32_t)d->text.size,
                              .source_size = (uint32_t)strlen(source)};
    buffer_append(out, &head, sizeof head);
    buffer_append(out, d->ids, (size_t)d->n * sizeof *d->ids);
    buffer_append(out, d->bounds, ((size_t)n_chunks + 1) * sizeof *d->bounds);
    buffer_append(out, vectors, (size_t)n_chunks * (size_t)info->dim * sizeof *vectors);
    if (d->picture) buffer_append(out, d->picture, (size_t)info->pictures.dim * sizeof *d->picture);
    if (d->marks.n > 0) buffer_append(out, d->marks.bytes, d->marks.n * sizeof(struct mark));
    buffer_append(out, d->id, head.id_size + (size_t)1);
    buffer_append(out, d->path, head.path_size + (size_t)1);
    buffer_append(out, d->title, head.title_size + (size_t)1);
    buffer_append(out, metadata, head.metadata_size + (size_t)1);
    buffer_append(out, source, head.source_size + (size_t)1);
    buffer_append(out, d->text.text, d->text.size);
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

enum status document_image_read(struct document_image *out, struct text_span bytes, const struct collection_info *info,
                                struct error *e) {
    struct image_head head;
    if (bytes.size < sizeof head) return corrupt(e, "it is cut off");
    memcpy(&head, bytes.text, sizeof head);
    if (head.n_tokens < 1 || head.n_tokens > INT32_MAX) return corrupt(e, "its number of tokens is not possible");
    if (head.id_size < 1 || head.id_size > COLLECTION_MAX_ID) return corrupt(e, "its id is empty or too long");
    int n_chunks = document_count_chunks((int)head.n_tokens, info->chunk_length);
    struct image_layout l = lay_out(&head, (uint64_t)n_chunks, info->dim, 0);
    bool has_picture = info->pictures.embedder && l.end != bytes.size;
    if (has_picture) l = lay_out(&head, (uint64_t)n_chunks, info->dim, info->pictures.dim);
    if (l.end != bytes.size) return corrupt(e, "its length is not the one that its parts need");

    const char *at = bytes.text + l.strings;
    *out = (struct document_image){
        .vectors = (const float *)(const void *)(bytes.text + l.vectors),
        .n_chunks = n_chunks,
        .document = {.text = {bytes.text + l.text, head.text_size},
                     .marks = {bytes.text + l.marks, head.n_marks},
                     .ids = (const int32_t *)(const void *)(bytes.text + l.ids),
                     .bounds = (const uint32_t *)(const void *)(bytes.text + l.bounds),
                     .n = (int)head.n_tokens,
                     .picture = has_picture ? (const float *)(const void *)(bytes.text + l.picture) : NULL},
    };
    struct collection_document *d = &out->document;
    bool ended = read_string(&at, head.id_size, &d->id) && read_string(&at, head.path_size, &d->path) &&
                 read_string(&at, head.title_size, &d->title) && read_string(&at, head.metadata_size, &d->metadata) &&
                 read_string(&at, head.source_size, &d->source);
    if (!ended) return corrupt(e, "a string does not end where it should");
    const char *fault = find_fault(out, info);
    return fault ? corrupt(e, fault) : STATUS_OK;
}
