/* retrieval/generation/document_image.h: one document with its vectors as a string of bytes: what a
 * log of changes keeps, and what a collection that changes has in memory of each document that came
 * since its generation.
 *
 * Little endian: a head of 40 bytes; ids u32 [n]; chunks, four u32 each; vectors f32 [chunks, dim];
 * marks of 12 bytes each; id, path, title, metadata, source and file, a NUL behind each; the text.
 * A picture of a collection whose pictures have an embedder of their own has its vector of that
 * embedder, f32 [pictures.dim], behind the others: the length tells.
 *
 * Where the collection is sparse, zeros up to a multiple of 4 stand behind the text, then the
 * weights of all chunks (struct sparse_weight each), u32 [chunks] the ends of the chunks among
 * these, and u32 how many weights there are. */
#pragma once

#include "retrieval/generation/generation.h"

struct document_image {
    struct collection_document document; /* points into the bytes */
    const float *vectors;                /* [document.n_chunks, dim] */
};

/* Appends the image of d, whose vectors are [chunks, info->dim] of unit length, and
 * document->picture likewise; document->sparse is there where the collection is sparse.
 * STATUS_INVALID says what is wrong with the document, STATUS_TOO_LARGE that it is too long. */
enum status document_image_write(struct buffer *out, const struct collection_document *document,
                                 const float *vectors, const struct collection_info *info,
                                 struct error *e);
/* Reads an image. The bytes are aligned to 4 and outlive *out; nothing in them is believed
 * unchecked: STATUS_CORRUPT.
 */
enum status document_image_read(struct document_image *out, struct text_span bytes,
                                const struct collection_info *info, struct error *e);
