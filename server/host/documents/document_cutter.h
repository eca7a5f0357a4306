/* server/host/documents/document_cutter.h: a document's text to tokens, chunks and vectors: what
 * retro-index and the server put into a collection. */
#pragma once

#include "retrieval/collection.h"
#include "retrieval/embedder.h"
#include "server/host/documents/chunk_context.h"

/* How a collection's documents are cut and embedded (struct collection_info). */
struct chunk_rules {
    int chunk_length;
    enum chunk_cut cut;
    int context, overlap;
};
static inline struct chunk_rules chunk_rules_of(const struct collection_info *info) {
    return (struct chunk_rules){info->chunk_length, info->cut, info->context, info->overlap};
}

struct document_cutter {
    const struct tokenizer *tokenizer; /* the collection's */
    const struct embedder *embedder;
    const struct embedder
        *pictures; /* the pictures' own; NULL: `embedder` embeds them, if it sees */
    struct chunk_rules rules;
    const struct filter *filter; /* documents that may be put; NULL: all */
    /* Of the document that was cut last. */
    bool is_picture; /* retrieval/picture_document.h: tokens and chunks are the caption's */
    struct tokens tokens;
    struct buffer chunks; /* struct chunk_range each */
    int n_chunks;
    struct context_reader contexts; /* of the chunks that are embedded next */
    struct buffer embedded;         /* text of chunks as it is embedded */
    int n_embedded;                 /* chunks of it whose vectors are there */
    int64_t n_tokens_read;          /* by the embedder, of all documents so far */
    float *vectors;                 /* [n_chunks, dim] of the one that was embedded last */
    struct sparse_rows sparse;      /* of the same, where the embedder is sparse: a row a chunk */
    float *picture; /* [dim of pictures] of the same, where it is a picture and they have an
                       embedder of their own */
};

/* The vector by the pictures' own embedder of the document that was embedded last; NULL: it has
 * none. */
static inline const float *cutter_picture(const struct document_cutter *cutter) {
    return cutter->is_picture && cutter->pictures ? cutter->picture : NULL;
}

static inline const struct chunk_range *cutter_chunks(const struct document_cutter *cutter) {
    return (const struct chunk_range *)(const void *)cutter->chunks.data;
}
/* Tokens, chunks and the picture's vector of the document that was cut become the document's; they
 * are the cutter's. */
static inline void cutter_fill(const struct document_cutter *cutter,
                               struct collection_document *document) {
    document->ids = cutter->tokens.ids;
    document->n = cutter->tokens.n;
    document->chunks = cutter_chunks(cutter);
    document->n_chunks = cutter->n_chunks;
    document->mark = embedder_vector_mark(cutter->embedder);
    document->picture = cutter_picture(cutter);
    document->sparse = (struct sparse_table){0};
    if (cutter->embedder->sparse && sparse_rows_count(&cutter->sparse) == cutter->n_chunks)
        document->sparse = sparse_rows_table(&cutter->sparse);
}

/* Tokens and chunks of a document's text, by its marks. A chunk holds whole characters.
 * STATUS_INVALID for a text without tokens, STATUS_UNSUPPORTED for a picture where the embedder
 * reads none. The document stays as it is until its last chunk is embedded. */
enum status document_cut(struct document_cutter *cutter, const struct collection_document *document,
                         struct error *e);
/* As document_cut, of a stored document: its tokens and chunks are filled in, and its chunks stay
 * as they are. STATUS_INVALID where the tokenizer makes other tokens of its text now. */
enum status document_recut(struct document_cutter *cutter,
                           const struct collection_document *document, struct error *e);
/* Appends the text that is embedded for chunk i of the document that was cut: what stands over it
 * (chunk_context.h), the tokens before it that overlap, and its own. Chunks are asked for in order.
 */
void cutter_embedded(struct document_cutter *cutter, int i, struct buffer *out);
/* The vectors of the chunks of the document that was cut; of a picture, the first is the picture's,
 * or where pictures have an embedder of their own the picture has one beside these. *cancelled is
 * looked at now and then: STATUS_CANCELLED. */
enum status document_embed(struct document_cutter *cutter,
                           const struct collection_document *document, const atomic_bool *cancelled,
                           struct error *e);
/* Room for the vectors of the document that was cut. */
void document_make_room(struct document_cutter *cutter);
/* Puts d, whose tokens and chunks are filled in, into the collection; a document that is there
 * already, with the same content, is not embedded, and one whose metadata alone is another keeps
 * its vectors. In parts, between which other work may be done:
 * `begin` cuts, and says whether there is nothing to put; `more` embeds some chunks; `end` puts,
 * when no more are left. */
enum status document_put_begin(struct document_cutter *cutter, struct collection *collection,
                               const struct collection_document *document, bool *is_there,
                               enum change_effect *effect, struct error *e);
enum status document_put_more(struct document_cutter *cutter,
                              const struct collection_document *document, bool *more,
                              struct error *e);
enum status document_put_end(struct document_cutter *cutter, struct collection *collection,
                             struct collection_document *document, enum change_effect *effect,
                             struct error *e);
void document_cutter_close(struct document_cutter *cutter);
