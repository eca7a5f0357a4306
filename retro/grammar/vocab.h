/* retro/grammar/vocab.h: the texts of a tokenizer's tokens as a trie of symbols, walked from left
 * to right by whoever looks for the tokens that a grammar allows. Constant once open. */
#pragma once

#include "retro/grammar/expr.h"
#include "retro/text/tokenizer.h"

/* Marks: tokens that an answer is taken apart by. One that is a token of the tokenizer is a symbol
 * of its own and never text; the others are text. */
enum grammar_mark {
    MARK_THINK,
    MARK_THINK_END,
    MARK_THOUGHT, /* of thoughts in a channel (retro/chat/thoughts.h) */
    MARK_THOUGHT_END,
    MARK_BRACKETED, /* of thoughts between brackets (retro/chat/thoughts.h) */
    MARK_BRACKETED_END,
    MARK_INNER, /* of Apertus' thoughts */
    MARK_INNER_END,
    MARK_CALL,
    MARK_CALL_END,
    MARK_CALLS,
    MARK_ARGUMENTS,
    MARK_PYTHON,
    MARK_HARMONY, /* the first of those of messages in channels (retro/chat/harmony.h) */
    MARK_START = MARK_HARMONY,
    MARK_CHANNEL,
    MARK_MESSAGE,
    MARK_CONSTRAIN,
    MARK_MESSAGE_END,
    MARK_MESSAGE_CALL,
    MARK_MESSAGE_RETURN,
    MARK_MINIMAX, /* around calls (retro/chat/tagged_calls.h) */
    MARK_MINIMAX_END,
    MARK_LFM,
    MARK_LFM_END,
    MARK_DEEPSEEK,
    MARK_DEEPSEEK_END,
    MARK_DEEPSEEK_CALL, /* around one of them, and behind its name */
    MARK_DEEPSEEK_CALL_END,
    MARK_DEEPSEEK_NAME_END,
    MARK_GEMMA, /* around a call, and at the ends of a text in it */
    MARK_GEMMA_END,
    MARK_GEMMA_TEXT,
    MARK_GRANITE,
    MARK_OLMO, /* around calls */
    MARK_OLMO_END,
    MARK_APERTUS, /* around a list of calls */
    MARK_APERTUS_END,
    MARK_KINDS
};
const char *grammar_mark_text(enum grammar_mark mark);

/* A node stands for a text; its children are behind it, from the next node to `end`. Node 0 is the
 * empty text. */
struct vocab_node {
    uint16_t symbol, depth;
    int end;         /* the first node that is not below this one */
    int up;          /* the node above */
    int first_token; /* of vocab.tokens: as many as first_token of the next node leaves */
};

struct vocab {
    struct vocab_node *nodes; /* [n_nodes + 1] */
    int n_nodes;
    int32_t *tokens; /* those of each node side by side */
    int *node_of;    /* [n_ids] -1: a token that is never text */
    int n_ids;
    int depth;                 /* symbols of the longest token */
    int32_t marks[MARK_KINDS]; /* ids, -1: none */
    bool writes[256];          /* a token is this byte alone */
};

/* The tokens below n_ids. Special tokens, those of `ends`, and tokens without text are never text.
 */
void vocab_open(struct vocab *vocab, const struct tokenizer *tokenizer, int n_ids,
                const int32_t *ends, int n_ends);
void vocab_close(struct vocab *vocab);
/* Whether tokens can write these bytes wherever they stand: byte by byte or, where one character
 * is asked for, by a token of it. */
bool vocab_writes(const struct vocab *vocab, const char *bytes, size_t size, bool character);
/* An expression of a mark: its symbol, or its text where it is no token. */
int expr_of_mark(struct grammar_draft *draft, const struct vocab *vocab, enum grammar_mark mark);
