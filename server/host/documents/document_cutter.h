/* server/host/documents/document_cutter.h: a document's text to tokens, chunks and vectors: what
 * retro-index and the server put into a collection. */
#pragma once

#include "retrieval/collection.h"
#include "retrieval/embedder.h"
#include "retro/text/tokenizer.h"

struct document_cutter {
    const struct tokenizer *tokenizer; /* the collection's */
    const struct embedder *embedder;
    const struct embedder
        *pictures; /* the pictures' own; NULL: `embedder` embeds them, if it sees */
    int chunk_length;
    const struct filter *filter; /* documents that may be put; NULL: all */
    /* Of the document that was cut last. */
    bool is_picture; /* retrieval/picture_document.h: tokens and chunks are the caption's */
    struct tokens tokens;
    uint32_t *bounds; /* [n_chunks + 1] in bytes of the text */
    int n_chunks;
    int n_embedded;        /* chunks of it whose vectors are there */
    int64_t n_tokens_read; /* by the embedder, of all documents so far */
    float *vectors;        /* [n_chunks, dim] of the one that was embedded last */
    float *picture;        /* [dim of pictures] of the same, where it is a picture and they have an
                              embedder of their own */
};

/* The vector by the pictures' own embedder of the document that was embedded last; NULL: it has
 * none. */
static inline const float *cutter_picture(const struct document_cutter *cutter) {
    return cutter->is_picture && cutter->pictures ? cutter->picture : NULL;
}

/* Tokens and chunks of a text. A chunk holds whole characters. STATUS_INVALID for a text without
 * tokens, STATUS_UNSUPPORTED for a picture where the embedder reads none. */
enum status document_cut(struct document_cutter *cutter, struct text_span text, struct error *e);
/* The vectors of the chunks of the text that was cut; of a picture, the first is the picture's, or
 * where pictures have an embedder of their own the picture has one beside these. *cancelled is
 * looked at now and then: STATUS_CANCELLED. */
enum status document_embed(struct document_cutter *cutter, struct text_span text,
                           const atomic_bool *cancelled, struct error *e);
/* Room for the vectors of the text that was cut. */
void document_make_room(struct document_cutter *cutter);
/* Puts d, whose ids and bounds are filled in, into the collection; a document that is there
 * already, with the same content, is not embedded. In parts, between which other work may be done:
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
