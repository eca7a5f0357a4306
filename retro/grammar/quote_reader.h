/* retro/grammar/quote_reader.h: an answer under a grammar with quotes. While a quote is written the
 * automaton waits in the configuration before it; the quote's own state is the set of places of the
 * passages at which what was written of it may end. Each byte leaves those places that go on with
 * it. All of this belongs to one answer: the grammar's memo never holds a passage. */
#pragma once

#include "retro/grammar/masks.h"
#include "retro/grammar/quote_source.h"

/* Ways of reading an answer that are followed at most; more are a grammar that is too ambiguous. */
enum { QUOTE_MOST_THREADS = 64 };

/* A quote that was written, and those before it: a list from the latest to the first. */
struct quote_record {
    int before;        /* -1: none */
    int writing;       /* enum quote_writing */
    uint32_t from, to; /* in the source's text */
    size_t start, end; /* bytes of the answer since the grammar began */
};

/* One way of reading the answer: outside quotes, or within one. */
struct quote_thread {
    int config;      /* within a quote: the one before it */
    int writing;     /* of the quote that is being written; -1: none is */
    bool begins;     /* none of it is written yet: its places are the source's starts */
    bool sorted;     /* the places are sorted by their next byte */
    size_t first, n; /* of the threads' places */
    size_t opened;   /* where it began in the answer */
    int record;      /* the latest quote that is over, -1: none */
};

struct quote_threads {
    struct quote_thread list[QUOTE_MOST_THREADS];
    int n;
    struct quote_place *places; /* [n_places] */
    size_t n_places, capacity;
};

enum { QUOTE_SLOTS = 8 };

/* The tokens behind which, or within which, a quote begins that follows a configuration. */
struct quote_slot {
    int config; /* -1: free */
    uint32_t *bits;
};

struct quote_reader {
    struct masks *masks; /* borrowed */
    struct quote_source source;
    struct quote_threads now, next;
    size_t at;                    /* bytes read */
    struct quote_record *records; /* [n_records] */
    int n_records, records_capacity;
    bool keeps_records;            /* false while tokens are tried */
    bool ambiguous;                /* there were too many threads */
    struct quote_threads **levels; /* [n_levels] of a walk through the vocabulary */
    int n_levels;
    struct quote_place *spare; /* [n_spare] */
    size_t n_spare;
    struct quote_slot slots[QUOTE_SLOTS];
    int next_slot;
};

/* `source` is taken over. */
void quote_reader_open(struct quote_reader *reader, struct masks *masks,
                       struct quote_source *source);
void quote_reader_close(struct quote_reader *reader);
/* The answer begins anew; what was found out of the memo before is forgotten. */
void quote_reader_start(struct quote_reader *reader);
/* Passages were added to the source: masks are made anew. */
void quote_reader_renew(struct quote_reader *reader);
/* Reads a token, which the latest mask allows. */
void quote_reader_read(struct quote_reader *reader, int32_t token);
/* Sets the bits of the tokens that may come next, of which *any is there or none is; whether the
 * text may end here. False: the memo is full, or there are too many ways. */
bool quote_reader_mask(struct quote_reader *reader, uint32_t *bits, bool *any, bool *may_end);
/* The latest quote of the answer that is over, a record of the reader's; -1: there is none. */
int quote_reader_latest(const struct quote_reader *reader);
