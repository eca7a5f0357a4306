/* server/host/documents/chunk_context.h: what is embedded before the text of a chunk: the title of
 * its document, the headings over it, and the head of its table. So a vector knows what a chunk is
 * about that does not say it itself. Hits show the chunk alone, and models read it alone. */
#pragma once

#include "retrieval/document.h"
#include "retro/text/tokenizer.h"

/* Reads the contexts of a document's chunks, in their order. Zero-initialise but for the first
 * four. */
struct context_reader {
    const struct collection_document *document; /* its title, path, text and marks */
    const struct tokenizer *tokenizer;          /* counts */
    int most;                                   /* tokens of a context; 0: there are none */
    struct tokens tokens;                       /* room for counting; free when done */
    uint32_t next;                              /* mark */
    /* Parts of the text that stand over what comes next. */
    struct context_part {
        struct text_span text;
        int n_tokens;
    } headings[MARK_LEVELS + 1], head, title; /* by level; of a table; size 0: none */
    uint32_t last_heading;                    /* byte of the text where the last one begins */
};

/* Appends the context of the chunk to *out, "Title: Heading: Heading\n" and the head of a table on
 * a line of its own, at most `most` tokens; nothing where nothing is known of it. */
void context_read(struct context_reader *reader, const struct chunk_range *chunk,
                  struct buffer *out);
