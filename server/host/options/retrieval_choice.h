/* server/host/options/retrieval_choice.h: the options of retrieval that a request may say anew.
 * Each is one row, by which the configuration and the requests are read, and /props and
 * /openapi.json are written.
 *
 * A new one is a member, a word of enum choice_row and a row in retrieval_choice.c; and what it
 * changes. */
#pragma once

#include "config/options/options.h"
#include "retrieval/retriever.h"

/* How a model reads what is found for it: by chunked cross attention, as Retro does, as text in
 * its prompt, or both. */
enum retrieval_mode { RETRIEVAL_AUTO, RETRIEVAL_ATTENTION, RETRIEVAL_PROMPT, RETRIEVAL_BOTH };
/* The texts that passages of a chat are sought by: the user's last message, with the turns before
 * it, or as the model has rewritten it (server/api/chat/chat_rewrite.h). */
enum retrieval_query { RETRIEVAL_BY_MESSAGE, RETRIEVAL_BY_CONVERSATION, RETRIEVAL_BY_REWRITTEN };
/* The passages that stand in the prompt of a chat: those of its latest turn, or those of earlier
 * turns too, where each has stood. */
enum retrieval_conversation { RETRIEVAL_OF_LATEST, RETRIEVAL_KEPT };
/* How much of a document is read around a chunk that was found: its sentences, or its section, as
 * far as there is room (server/host/prompt/passage_list.h). */
enum retrieval_read { RETRIEVAL_READ_CHUNK, RETRIEVAL_READ_SECTION };
/* The order of passages in a prompt (server/host/prompt/passage_order.h). */
enum retrieval_order { RETRIEVAL_BY_RELEVANCE, RETRIEVAL_STABLE };

/* The rows in their order; those from CHOICE_K on are of a search too. */
enum choice_row {
    CHOICE_ENABLED,
    CHOICE_MODE,
    CHOICE_QUERY,
    CHOICE_CONVERSATION,
    CHOICE_READ,
    CHOICE_ORDER,
    CHOICE_EVERY,
    CHOICE_QUOTES,
    CHOICE_QUOTE_WORDS,
    CHOICE_SUPPORT,
    CHOICE_K,
    CHOICE_MIN_SIMILARITY,
    CHOICE_HYBRID,
    CHOICE_RERANK,
    CHOICE_PICTURES,
    CHOICE_PER_DOCUMENT,
    CHOICE_DISTINCT,
    CHOICE_MIN_CONFIDENCE,
    CHOICE_ROWS
};

struct retrieval_choice {
    unsigned said; /* bit 1 << row: a request has this row */
    bool enabled;
    int mode;         /* enum retrieval_mode */
    int query;        /* enum retrieval_query */
    int conversation; /* enum retrieval_conversation */
    int read;         /* enum retrieval_read */
    int order;        /* enum retrieval_order */
    int every;        /* tokens of an answer after which passages are sought again; 0: never */
    bool quotes;      /* what stands between quotation marks in an answer stands in a passage */
    int quote_words;  /* words that a quote has at least */
    bool support;     /* sentences are judged by what was read (server/host/prompt/support.h) */
    int k;            /* 0: as many as the model was trained with, or a usual number of passages */
    double min_similarity;
    bool hybrid, rerank, pictures;
    int per_document;   /* chunks at most; 0: any number */
    double distinct;    /* cosine; 0: any */
    int min_confidence; /* of OCR, 1 .. 100; 0: any */
};

/* Bounds of what a request may say. The limits that its rows are read by begin with these. */
struct retrieval_limits {
    int max_k;            /* retrieval.max_k */
    int max_neighbors;    /* retrieval.max_neighbors, where cross attention reads them */
    int min_every;        /* retrieval.min_every */
    int max_excluded;     /* retrieval.max_excluded */
    int max_filter_bytes; /* retrieval.max_filter_bytes */
};

/* The rows as options of the section "retrieval", with their defaults. */
extern const struct option_section retrieval_choice_section;
/* The same as fields of a request: all of them, those of a search, and those of a search by a
 * picture. */
extern const struct json_table retrieval_choice_table, search_choice_table, picture_choice_table;

static inline bool choice_says(const struct retrieval_choice *choice, enum choice_row row) {
    return choice->said >> row & 1;
}
/* Notes which of the rows a request's object has. A null counts as absent. */
void retrieval_choice_note(struct retrieval_choice *choice, const struct json *object);
/* The usual choice, but for the rows that are asked for; `said` is as it was asked. */
struct retrieval_choice retrieval_choice_merge(const struct retrieval_choice *usual,
                                               const struct retrieval_choice *asked);
/* How a search chooses its hits. `candidates` is how many the reranker reads, 0: there is none. */
struct retriever_choice retrieval_choice_ranking(const struct retrieval_choice *choice,
                                                 int candidates);

/* The mode of a model for auto: it attends where it has chunked cross attention. */
static inline enum retrieval_mode retrieval_mode_of(int mode, bool attends) {
    if (mode != RETRIEVAL_AUTO) return (enum retrieval_mode)mode;
    return attends ? RETRIEVAL_ATTENTION : RETRIEVAL_PROMPT;
}
/* Of modes that are not auto. */
static inline bool retrieval_attends(int mode) { return mode != RETRIEVAL_PROMPT; }
static inline bool retrieval_prompts(int mode) { return mode != RETRIEVAL_ATTENTION; }
const char *retrieval_mode_name(int mode);
