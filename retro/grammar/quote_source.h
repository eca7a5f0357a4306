/* retro/grammar/quote_source.h: the passages that an answer may quote, as the bytes that it may
 * write. A quote is a run of bytes of one passage, from the beginning of a word to the end of a
 * word, of at least so many words.
 *
 * A word is what stands between blanks and has a letter or a digit; the punctuation at either side
 * of it may be left out of a quote, and nothing within it may. In scripts that are written without
 * blanks each letter is a word. Quotes go over line ends, but not over what no reader can tell from
 * the end of a quote (QUOTE_PLAIN: quotation marks), over bytes that are no UTF-8, and over
 * characters that the vocabulary cannot write. */
#pragma once

#include "retro/grammar/vocab.h"

enum { QUOTE_MOST_BYTES = 16 << 20 }; /* of all passages of one answer, in one writing */

/* Marks of places in the text: a quote may end there; no quote goes on from there. */
enum { PLACE_ENDS = 1, PLACE_STOPS = 2 };

/* A place that a quote has come to, and the first one where it may end. */
struct quote_place {
    uint32_t at, least;
};

/* All passages in one writing, side by side. */
struct quote_text {
    char *text;     /* [size] */
    uint8_t *marks; /* [size + 1] PLACE_... before each byte */
    size_t size, capacity;
    struct quote_place *starts; /* [n_starts] where quotes begin, by their first bytes ... */
    int n_starts, starts_capacity;
    int first[257]; /* ... those of byte b are first[b] .. first[b + 1] */
};

/* A passage as it was read. */
struct passage_text {
    struct text_span text;     /* any bytes */
    bool torn_start, torn_end; /* more of its first word stands before it, of its last behind it */
};

struct quote_passage {
    uint32_t first[QUOTE_WRITINGS]; /* its place in each text that there is */
    int number;                     /* the caller's */
};

struct quote_source {
    const struct vocab *vocab;
    int least_words;
    bool writes[QUOTE_WRITINGS];
    struct quote_text texts[QUOTE_WRITINGS];
    struct quote_passage *passages; /* [n_passages] */
    int n_passages, passages_capacity;
    bool indexed; /* the starts are sorted */
};

/* The vocabulary is borrowed. `writes`: the writings that are asked for. */
void quote_source_open(struct quote_source *source, const struct vocab *vocab,
                       const bool writes[QUOTE_WRITINGS], int least_words);
void quote_source_close(struct quote_source *source);
/* Copies a passage; places of those before it stay what they are. In time linear in its size.
 * STATUS_TOO_LARGE: they are more than QUOTE_MOST_BYTES. */
enum status quote_source_add(struct quote_source *source, const struct passage_text *passage,
                             int number, struct error *e);
/* Whether no quote can begin. */
bool quote_source_is_empty(const struct quote_source *source);
/* Sorts the starts, before they are looked at. */
void quote_source_index(struct quote_source *source);

/* Where a quote stands in its passage, in bytes of the passage as it was added. */
struct quote_found {
    int number;
    size_t start, end;
};
/* Of the quote that is text[from, to) in this writing. */
struct quote_found quote_source_find(const struct quote_source *source, enum quote_writing writing,
                                     uint32_t from, uint32_t to);
