/* retro/grammar/grammar.h: a grammar for one vocabulary: which tokens may come next, so that
 * whatever is written is the beginning of a text of the grammar, and ends only where such a text
 * does. */
#pragma once

#include "retro/grammar/masks.h"
#include "retro/grammar/quote_source.h"

/* A compiled grammar, and what its matchers found out; shared by counting. Opening, holding and
 * releasing are for any thread; matchers of one grammar are for one thread at a time. */
struct grammar;

/* Compiles the draft; errors of program_compile. The vocabulary is borrowed and outlives the
 * grammar. */
enum status grammar_open(struct grammar **out, const struct grammar_draft *draft,
                         const struct vocab *vocab, struct error *e);
/* Whether its texts have quotes. Where no passage can be quoted, they are those without. */
bool grammar_quotes(const struct grammar *grammar);
void grammar_hold(struct grammar *grammar);
void grammar_release(struct grammar *grammar);

enum grammar_match { MATCH_NONE, MATCH_BEGINNING, MATCH_WHOLE };
/* Whether text[0, size) is a text of the grammar without quotes, or the beginning of one.
 * STATUS_TOO_LARGE as matcher_mask. */
enum status grammar_try(struct grammar *grammar, const char *text, size_t size,
                        enum grammar_match *out, struct error *e);

/* Where the grammar begins in an answer. */
struct matcher_begin {
    int32_t after;    /* all before this token is free; -1: it begins at once */
    int32_t optional; /* this token may be the first, and then all up to `after` is free; -1: it may
                         not */
    bool free;        /* the answer begins in the free part */
    bool may_end;     /* and may end there */
    int quote_words;  /* words that a quote has at least */
};

struct quote_reader;

/* A quote that was written. */
struct matcher_quote {
    struct quote_found found;
    size_t start, end; /* bytes of the answer since the grammar began, as they are written there */
};

/* One answer under a grammar. */
struct matcher {
    struct grammar *grammar; /* a reference */
    struct matcher_begin begin;
    const int32_t *ends; /* [n_ends] owned: tokens that end the text */
    int n_ends;
    bool is_free;                 /* before the grammar begins */
    bool may_think;               /* begin.optional may be next */
    int config;                   /* of the grammar's memo ... */
    int64_t round;                /* ... in this round */
    struct quote_reader *quotes;  /* owned; in place of config, once a passage can be quoted */
    struct quote_source passages; /* owned; until then */
    int32_t *written;             /* [n_written] owned: tokens since the grammar began */
    int n_written, capacity;
    uint32_t *mask; /* owned; a bit for each id */
    bool masked;    /* the mask is that of now */
    bool finished;  /* nothing may follow but an end */
};

/* n_ids: bits of the mask. */
void matcher_open(struct matcher *matcher, struct grammar *grammar,
                  const struct matcher_begin *begin, int n_ids, const int32_t *ends, int n_ends);
void matcher_close(struct matcher *matcher);
/* A passage was read, which quotes may be taken from: it is copied, and `number` is told with
 * quotes of it. Nothing for a grammar without quotes. STATUS_TOO_LARGE as quote_source_add. */
enum status matcher_add_passage(struct matcher *matcher, const struct passage_text *passage,
                                int number, struct error *e);
/* The quotes that were written so far, in their order: *n of them in an array that the caller
 * frees. */
struct matcher_quote *matcher_list_quotes(const struct matcher *matcher, int *n);
/* The tokens that may come next, valid until the next call for m. matcher->finished says whether
 * only ends are among them; the mask may then be all zero. STATUS_TOO_LARGE: the grammar takes more
 * memory than it is given, or is too ambiguous; STATUS_INVALID: none of the vocabulary's tokens
 * goes on with the text, or all of the grammar's texts have quotes and no passage can be quoted. */
enum status matcher_mask(struct matcher *matcher, const uint32_t **mask, struct error *e);
/* A token of the latest mask was written. */
enum status matcher_note(struct matcher *matcher, int32_t token, struct error *e);
