/* retro/grammar/grammar.h: a grammar for one vocabulary: which tokens may come next, so that
 * whatever is written is the beginning of a text of the grammar, and ends only where such a text
 * does. */
#pragma once

#include "retro/grammar/automaton.h"
#include "retro/grammar/vocab.h"

/* A compiled grammar, and what its matchers found out; shared by counting. Opening, holding and
 * releasing are for any thread; matchers of one grammar are for one thread at a time. */
struct grammar;

/* Compiles the draft; errors of program_compile. The vocabulary is borrowed and outlives the
 * grammar. */
enum status grammar_open(struct grammar **out, const struct grammar_draft *draft,
                         const struct vocab *vocab, struct error *e);
void grammar_hold(struct grammar *grammar);
void grammar_release(struct grammar *grammar);

enum grammar_match { MATCH_NONE, MATCH_BEGINNING, MATCH_WHOLE };
/* Whether text[0, size) is a text of the grammar, or the beginning of one. STATUS_TOO_LARGE as
 * matcher_mask. */
enum status grammar_try(struct grammar *grammar, const char *text, size_t size,
                        enum grammar_match *out, struct error *e);

/* Where the grammar begins in an answer. */
struct matcher_begin {
    int32_t after;    /* all before this token is free; -1: it begins at once */
    int32_t optional; /* this token may be the first, and then all up to `after` is free; -1: it may
                         not */
    bool free;        /* the answer begins in the free part */
    bool may_end;     /* and may end there */
};

/* One answer under a grammar. */
struct matcher {
    struct grammar *grammar; /* a reference */
    struct matcher_begin begin;
    const int32_t *ends; /* [n_ends] owned: tokens that end the text */
    int n_ends;
    bool is_free;     /* before the grammar begins */
    bool may_think;   /* begin.optional may be next */
    int config;       /* of the grammar's memo ... */
    int64_t round;    /* ... in this round */
    int32_t *written; /* [n_written] owned: tokens since the grammar began */
    int n_written, capacity;
    uint32_t *mask; /* owned; a bit for each id */
    bool masked;    /* the mask is that of now */
    bool finished;  /* nothing may follow but an end */
};

/* n_ids: bits of the mask. */
void matcher_open(struct matcher *matcher, struct grammar *grammar,
                  const struct matcher_begin *begin, int n_ids, const int32_t *ends, int n_ends);
void matcher_close(struct matcher *matcher);
/* The tokens that may come next, valid until the next call for m. matcher->finished says whether
 * only ends are among them; the mask may then be all zero. STATUS_TOO_LARGE: the grammar takes more
 * memory than it is given, or is too ambiguous; STATUS_INVALID: none of the vocabulary's tokens
 * goes on with the text. */
enum status matcher_mask(struct matcher *matcher, const uint32_t **mask, struct error *e);
/* A token of the latest mask was written. */
enum status matcher_note(struct matcher *matcher, int32_t token, struct error *e);

/* masks.c: the tokens that a configuration allows, found by walking the vocabulary's trie. */

/* The tokens that stay within one state's rule, whatever is below it, and where the others leave
 * it. */
struct mask_profile {
    bool known, many; /* many: there are too many ways out to list them */
    int32_t *ids;     /* [n_ids] or, where they are many, ... */
    int n_ids;
    uint32_t *bits;
    int *exits; /* [n_exits] nodes of the trie behind which the rule may be over */
    int n_exits;
};

enum { MASK_SLOTS = 48 };

struct mask_slot {
    int config; /* -1: free */
    uint32_t *bits;
    bool any;
};

struct masks {
    const struct vocab *vocab;
    struct automaton automaton;
    struct mask_profile *profiles; /* [n_profiles] by state */
    int n_profiles;
    struct mask_slot slots[MASK_SLOTS];
    int next_slot, words;
};

void masks_open(struct masks *masks, const struct program *program, const struct vocab *vocab);
void masks_close(struct masks *masks);
/* NULL: the memo is full. *any: some token is allowed. */
const uint32_t *masks_find(struct masks *masks, int config, bool *any);
