/* server/host/prompt/passages.h: found passages as text before a prompt. A model without chunked
 * cross attention reads them there: a decoder before its prompt, an encoder before its text. */
#pragma once

#include "retrieval/retriever.h"
#include "retro/text/tokenizer.h"
#include "server/host/prompt/passage_order.h"
#include "server/host/prompt/picture_words.h"

/* Tokens at the end of a text that passages are sought by: the length of a chunk, as the documents'
 * are. */
enum { PASSAGE_QUERY_TOKENS = 64 };

struct passage_options {
    /* The text of one passage; "{number}" (from 1), "{title}" and "{text}" stand for those of the
     * passage. */
    const char *template;
    /* The same for a passage that stands in an earlier turn of the prompt: its text is not written
     * again. NULL: there are no earlier turns. */
    const char *again;
    int max_tokens;                    /* of the passages of a turn, without their pictures */
    int max_earlier;                   /* tokens of the passages of all earlier turns */
    int max_pictures;                  /* of found pictures in one prompt */
    const struct picture_words *words; /* what one stands by; NULL or empty: none can */
};

/* A found picture that may stand in the prompt, in the first passage of its document. */
struct passage_picture {
    const char *document;
    int rows;    /* that the model reads of it */
    bool stands; /* it does: set by passages_write */
};

/* Of the options retrieval.template and retrieval.again. STATUS_INVALID when one names something
 * else in braces, the first has no {text}, or the second no {number}. */
enum status passages_check(const char *template, const char *again, struct error *e);

/* Passages by the template, as text and as the tokens of each by itself. Zero-initialise; free when
 * done. */
struct passages {
    /* [n + n_again] by their numbers: passages that were put in, then those of earlier turns that
     * were found again. */
    struct hit *list;
    int n, n_again;
    struct buffer text;
    struct buffer foreign; /* [text.size] 1 where a byte is a document's or retrieval.template's, 0
                              in picture_words */
    struct tokens ids;     /* with the model's picture id for each picture */
    int *ends;             /* [n] rows that the model reads up to each one's end */
    int *pictures; /* [n_pictures] numbers of the pictures that stand, in the order of the text */
    int n_pictures, picture_rows;
};
void passages_free(struct passages *passages);
static inline int passages_rows(const struct passages *passages) {
    return passages->n > 0 ? passages->ends[passages->n - 1] : 0;
}

/* The hits and pictures that passages are made from. */
struct passage_sources {
    const struct hits *hits;
    struct passage_picture *pictures; /* [n_pictures] the most similar first */
    int n_pictures;
    const struct hit *earlier; /* [n_earlier] passages of earlier turns of the prompt */
    int n_earlier;
    const struct passage_order *order; /* NULL: that of relevance */
    bool sections;      /* what the budget leaves is for more of the hits' sections */
    int min_confidence; /* of OCR in pages that sections are read of; 0: any */
    int last_number;    /* the highest that a passage of the conversation had; 0: none had one */
};

/* Makes passages of the hits: widened to sentences, joined where they touch, numbered in the order
 * of passage_list.h. A widened hit within a passage of an earlier turn is no passage; that one is
 * named behind the others, once. Of the hits, so many are taken, most similar first, as max_tokens
 * and `room` hold; where sections are read, these grow in the same order as far as max_tokens and
 * `room` have tokens left; then of their pictures so many as the rest of `room` holds. */
enum status passages_write(const struct passage_options *options, const struct tokenizer *tokenizer,
                           const struct passage_sources *from, int room, struct passages *out,
                           struct error *e);
/* Passages of an earlier turn, which have their numbers. */
struct shown_passages {
    const struct hit *list; /* [n + n_again] put in, and then found again */
    int n, n_again;
};
/* The same text as when they were put in. Their pictures do not stand. */
enum status passages_show(const struct passage_options *options, const struct tokenizer *tokenizer,
                          const struct shown_passages *shown, struct passages *out,
                          struct error *e);
