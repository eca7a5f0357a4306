/* server/host/passages.h: found passages as text before a prompt. A model without chunked cross attention reads
 * them there: a decoder before its prompt, an encoder before its text. */
#pragma once

#include "retrieval/retriever.h"
#include "retro/text/tokenizer.h"

/* Tokens at the end of a text that passages are sought by: the length of a chunk, as the documents' are. */
enum { PASSAGE_QUERY_TOKENS = 64 };

struct passage_options {
    /* The text of one passage; "{number}" (from 1), "{title}" and "{text}" stand for those of the passage. */
    const char *template;
    int max_tokens; /* of all passages of one prompt */
};

/* STATUS_INVALID when the template names something else in braces, or has no {text}. */
enum status passages_check(const char *template, struct error *e);

/* Passages by the template, as text and as the tokens of each by itself. Zero-initialise; free when done. */
struct passages {
    struct hit *list; /* [n], as they are numbered from 1 */
    int n;
    struct buffer text;
    struct tokens ids;
    int *ends; /* [n] tokens of ids up to each one's end */
};
void passages_free(struct passages *p);

/* Makes passages of the hits: widened to sentences, joined where they touch, numbered in the order of passage_list.h.
 * Of the hits, so many are taken, most similar first, as max_tokens and `room` hold. */
enum status passages_write(const struct passage_options *o, const struct tokenizer *t, const struct hits *hits,
                           int room, struct passages *out, struct error *e);
