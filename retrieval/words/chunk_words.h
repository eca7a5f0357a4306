/* retrieval/words/chunk_words.h: the words that a chunk is found by: its own, and behind them those
 * of the title of its document and of the headings over it, for a passage seldom says what it is
 * about. */
#pragma once

#include "retrieval/document.h"

/* Reads the chunks of a document in their order. Zero-initialise but for the document. */
struct chunk_words_reader {
    const struct collection_document *document;
    struct heading_path headings; /* over the latest chunk */
    uint32_t next;                /* mark */
    struct buffer text;           /* of the latest chunk; free when done */
};
/* Linear in the chunk and in the marks since the one before. The text is the reader's until the
 * next chunk. */
struct text_span chunk_words_read(struct chunk_words_reader *reader, int chunk);
