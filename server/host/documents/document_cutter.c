/* server/host/documents/document_cutter.c: see document_cutter.h. */
#include "server/host/documents/document_cutter.h"

#include <stdlib.h>
#include <string.h>

#include "retrieval/chunk_ends.h"
#include "retrieval/picture_document.h"
#include "server/host/documents/known_texts.h"

/* Chunks that are embedded at a stretch. */
enum { EMBED_CHUNKS = 64 };

/* A token can begin inside a character: its start moves behind it, so that the range of a chunk
 * holds whole characters, each in the chunk where it begins. */
static void align_starts(struct tokens *tokens, struct text_span text) {
    for (int i = 0; i < tokens->n; i++)
        for (int j = 0; j < 3 && tokens->starts[i] < text.size &&
                        ((uint8_t)text.text[tokens->starts[i]] & 0xc0) == 0x80;
             j++)
            tokens->starts[i]++;
}

/* The tokens of a part of the text, with places in the text. */
static enum status cut_part(struct document_cutter *cutter, struct text_span text,
                            struct text_span part, struct error *e) {
    struct tokens *tokens = &cutter->tokens;
    size_t before = (size_t)(part.text - text.text);
    tokens->n = 0;
    if (tokenizer_encode(cutter->tokenizer, part.text, part.size, TOKENIZER_PLAIN, tokens, e))
        return e->status;
    if (tokens->n == 0) return error_set(e, STATUS_INVALID, "no tokens in it");
    for (int i = 0; i < tokens->n; i++) tokens->starts[i] += (uint32_t)before;
    align_starts(tokens, text);
    return STATUS_OK;
}

static void begin_contexts(struct document_cutter *cutter,
                           const struct collection_document *document) {
    struct tokens room = cutter->contexts.tokens;
    cutter->contexts = (struct context_reader){.document = document,
                                               .tokenizer = cutter->tokenizer,
                                               .most = cutter->rules.context,
                                               .tokens = room};
}

enum status document_cut(struct document_cutter *cutter, const struct collection_document *document,
                         struct error *e) {
    struct tokens *tokens = &cutter->tokens;
    struct text_span text = document->text;
    struct picture_document picture;
    cutter->is_picture = picture_document_read(&picture, text);
    if (cutter->is_picture && !cutter->pictures && !cutter->embedder->sees)
        return error_set(e, STATUS_UNSUPPORTED,
                         "it is a picture, and the embedder %s reads texts alone",
                         cutter->embedder->name);
    if (cut_part(cutter, text, cutter->is_picture ? picture.caption : text, e)) return e->status;

    struct chunk_source source = {text, document->marks, tokens->starts, tokens->n};
    buffer_clear(&cutter->chunks);
    cutter->n_chunks = chunks_cut(&source, cutter->is_picture ? CHUNKS_GRID : cutter->rules.cut,
                                  cutter->rules.chunk_length, &cutter->chunks);
    begin_contexts(cutter, document);
    return STATUS_OK;
}

enum status document_recut(struct document_cutter *cutter,
                           const struct collection_document *document, struct error *e) {
    struct picture_document picture;
    cutter->is_picture = picture_document_read(&picture, document->text);
    if (cut_part(cutter, document->text, cutter->is_picture ? picture.caption : document->text, e))
        return error_prefix(e, "%s", document->path);
    if (cutter->tokens.n != document->n ||
        memcmp(cutter->tokens.ids, document->ids, (size_t)document->n * sizeof *document->ids) != 0)
        return error_set(e, STATUS_INVALID,
                         "%s: the tokenizer makes other tokens of its text now; build the "
                         "collection again with retro-index",
                         document->path);
    buffer_clear(&cutter->chunks);
    buffer_append(&cutter->chunks, document->chunks,
                  (size_t)document->n_chunks * sizeof *document->chunks);
    cutter->n_chunks = document->n_chunks;
    begin_contexts(cutter, document);
    return STATUS_OK;
}

/* Where the tokens begin that overlap with a chunk: behind the heading over it. */
static uint32_t overlap_start(const struct document_cutter *cutter,
                              const struct chunk_range *chunk) {
    int overlap = min_int(cutter->rules.overlap, (int)chunk->token);
    uint32_t start = cutter->tokens.starts[(int)chunk->token - overlap],
             heading = cutter->contexts.last_heading;
    return start < heading && heading < chunk->start ? heading : start;
}

void cutter_embedded(struct document_cutter *cutter, int i, struct buffer *out) {
    const struct chunk_range *chunk = &cutter_chunks(cutter)[i];
    const struct text_span text = cutter->contexts.document->text;
    uint32_t start = chunk->start;
    if (!cutter->is_picture) {
        context_read(&cutter->contexts, chunk, out);
        start = overlap_start(cutter, chunk);
    }
    buffer_append(out, text.text + start, chunk->end - start);
}

/* The picture's vector. */
static enum status embed_picture(const struct embedder *embedder, struct text_span text,
                                 float *vector, struct error *e) {
    struct picture_document picture;
    struct buffer file = {0};
    CHECK(picture_document_read(&picture, text));
    enum status status = picture_document_file(&picture, &file, e);
    struct embedder_picture pixels = {0};
    struct embed_request request = {
        .pictures = &pixels, .n = 1, .role = EMBED_DOCUMENT, .vectors = vector};
    if (status == STATUS_OK)
        status =
            embedder_read_picture(embedder, (struct text_span){file.data, file.size}, &pixels, e);
    if (status == STATUS_OK) status = embedder_embed(embedder, &request, e);
    free(pixels.pixels);
    buffer_free(&file);
    return status;
}

void document_make_room(struct document_cutter *cutter) {
    cutter->vectors =
        xrealloc(cutter->vectors, (size_t)cutter->n_chunks * (size_t)cutter->embedder->dim *
                                      sizeof *cutter->vectors);
    if (cutter->pictures)
        cutter->picture =
            xrealloc(cutter->picture, (size_t)cutter->pictures->dim * sizeof *cutter->picture);
}

/* Room for the vectors, and that of a picture. */
static enum status begin_vectors(struct document_cutter *cutter, struct text_span text,
                                 struct error *e) {
    cutter->n_embedded = 0;
    sparse_rows_clear(&cutter->sparse);
    document_make_room(cutter);
    if (!cutter->is_picture) return STATUS_OK;
    if (cutter->pictures) return embed_picture(cutter->pictures, text, cutter->picture, e);
    cutter->n_embedded = 1; /* its vector is that of the first chunk */
    return embed_picture(cutter->embedder, text, cutter->vectors, e);
}

static enum status embed_some(struct document_cutter *cutter, struct error *e) {
    struct text_span texts[EMBED_CHUNKS];
    size_t ends[EMBED_CHUNKS];
    int n_tokens[EMBED_CHUNKS] = {0};
    int first = cutter->n_embedded, n = min_int(EMBED_CHUNKS, cutter->n_chunks - first);
    buffer_clear(&cutter->embedded);
    for (int i = 0; i < n; i++) {
        cutter_embedded(cutter, first + i, &cutter->embedded);
        ends[i] = cutter->embedded.size;
    }
    for (int i = 0; i < n; i++) {
        size_t start = i > 0 ? ends[i - 1] : 0;
        texts[i] = (struct text_span){cutter->embedded.data + start, ends[i] - start};
    }
    struct embed_request request = {
        .texts = texts,
        .n = n,
        .role = EMBED_DOCUMENT,
        .vectors = cutter->vectors + (size_t)first * (size_t)cutter->embedder->dim,
        .n_tokens = n_tokens,
        .sparse = cutter->embedder->sparse ? &cutter->sparse : NULL};
    if (n == 0) return STATUS_OK;

    enum status status = embedder_embed(cutter->embedder, &request, e);
    for (int i = 0; i < n; i++) cutter->n_tokens_read += n_tokens[i];
    cutter->n_embedded += n;
    return status;
}

enum status document_embed(struct document_cutter *cutter,
                           const struct collection_document *document, const atomic_bool *cancelled,
                           struct error *e) {
    enum status status = begin_vectors(cutter, document->text, e);
    cutter->contexts.document = document;
    while (status == STATUS_OK && cutter->n_embedded < cutter->n_chunks) {
        status = embed_some(cutter, e);
        if (status == STATUS_OK && cancelled && atomic_load(cancelled))
            status = error_set(e, STATUS_CANCELLED, "interrupted");
    }
    return status;
}

/* A document of a folder that changes in its metadata alone keeps its vectors. */
static enum status take_or_begin(struct document_cutter *cutter, struct collection *collection,
                                 const struct collection_document *document, struct error *e) {
    const struct known_place place = {cutter->filter, document->id};
    if (collection_is_remote(collection)) return begin_vectors(cutter, document->text, e);
    enum status status = known_text_take(collection, &place, cutter, document, e);
    cutter->n_embedded = cutter->n_chunks;
    if (status != STATUS_NOT_FOUND && status != STATUS_UNSUPPORTED) return status;
    return begin_vectors(cutter, document->text, e);
}

enum status document_put_begin(struct document_cutter *cutter, struct collection *collection,
                               const struct collection_document *document, bool *is_there,
                               enum change_effect *effect, struct error *e) {
    *effect = collection_check_put(cutter->filter, document, e) ? CHANGE_REFUSED : CHANGE_NOTHING;
    if (*effect == CHANGE_REFUSED ||
        collection_has(collection, cutter->filter, document, is_there, e))
        return e->status;
    if (*is_there) return STATUS_OK;
    enum status status = document_cut(cutter, document, e);
    if (status == STATUS_OK) status = take_or_begin(cutter, collection, document, e);
    return status ? error_prefix(e, "%s", document->path) : STATUS_OK;
}

enum status document_put_more(struct document_cutter *cutter,
                              const struct collection_document *document, bool *more,
                              struct error *e) {
    cutter->contexts.document = document;
    if (embed_some(cutter, e)) return error_prefix(e, "%s", document->path);
    *more = cutter->n_embedded < cutter->n_chunks;
    return STATUS_OK;
}

enum status document_put_end(struct document_cutter *cutter, struct collection *collection,
                             struct collection_document *document, enum change_effect *effect,
                             struct error *e) {
    cutter_fill(cutter, document);
    return collection_put(collection, cutter->filter, document, cutter->vectors, effect, e);
}

void document_cutter_close(struct document_cutter *cutter) {
    tokens_free(&cutter->tokens);
    tokens_free(&cutter->contexts.tokens);
    buffer_free(&cutter->chunks);
    buffer_free(&cutter->embedded);
    free(cutter->vectors);
    sparse_rows_free(&cutter->sparse);
    free(cutter->picture);
}
