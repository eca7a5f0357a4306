/* server/schedule/sequence.h: one prompt and the answer that grows from it: what an asker and the
 * engine share.
 *
 * Three structs keep three owners apart. `struct sequence_request` is what was asked: the asker
 * fills it in, and nobody changes it after engine_submit. `struct sequence_answer` is what is
 * published: the engine adds to it, anyone reads it. The engine alone touches `struct
 * engine_sequence`, in the engine's own files.
 *
 * Both sides hold a reference: a client that leaves cancels and lets go, the engine notices and
 * lets go. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "retro/grammar/grammar.h"
#include "retro/run/session/session.h"
#include "retro/text/tokenizer.h"
#include "server/access/principal.h"
#include "server/host/options/retrieval_choice.h"
#include "server/host/prompt/passage_order.h"
#include "server/pictures/found_pictures.h"
#include "server/pictures/picture_set.h"
#include "server/schedule/drafts/draft_table.h"
#include "server/schedule/stops.h"
#include "server/threads/waker.h"

enum finish { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_ERROR, FINISH_KINDS };

/* Neighbours that the model reads by chunked cross attention: searched for every chunk, given by
 * the asker for all chunks, or none. */
struct sequence_neighbors {
    bool search;
    int k;              /* of a search */
    int32_t *given_ids; /* [given_k, r] owned */
    int given_k;
    struct text_span *given; /* [n_given] owned, and so is each text: the same as they were sent */
    int n_given;
};

/* Passages that the model reads as text in its prompt: searched for, given by the asker, or none.
 */
struct sequence_passages {
    bool search;
    int k;                   /* of a search */
    struct text_span *given; /* [n_given] owned, and so is each text */
    int n_given;
};

/* Passages as they stand in a prompt. */
struct placed_text {
    struct text_span text;
    const char *foreign; /* [text.size] 0 where a byte is of the template's words for a picture, 1
                            elsewhere */
};

/* Earlier turns of a conversation, whose passages stand where they stood. */
struct sequence_conversation {
    struct conversations *conversations; /* borrowed; NULL: nothing is kept */
    struct turn_key key;                 /* of the user's last message */
    int said;                            /* how many the user has said before that */
    struct earlier_turn {
        struct read_turn *turn; /* a reference */
        int said;
        bool stands; /* the prompt has its message */
    } * turns;       /* [n] owned, in their order */
    int n;
};
struct sequence_conversation sequence_conversation_copy(const struct sequence_conversation *from);
void sequence_conversation_free(struct sequence_conversation *conversation);

/* How passages stand in a prompt. Zeroed: before it, sought by its end. */
struct sequence_place {
    struct text_span query; /* owned: what they are sought by; text NULL: the prompt's end */
    bool rewritten;         /* the model wrote it, in the place of a question */
    char *query_problem;    /* owned: why it wrote none; NULL: it was not to */
    /* Appends the whole prompt to *ids, with passages [conversation.n + 1]: those of earlier turns
     * and its own. The engine's thread calls it. NULL: its own stand before the prompt. */
    enum status (*compose)(const void *context, const struct placed_text *passages,
                           struct tokens *ids, struct error *e);
    struct sequence_conversation conversation;
    struct text_span before; /* in the context: what stands before its own, without earlier ones */
    int pictures_before;     /* of the request's, how many stand before them */
    void *context;           /* owned, let go of by `close` */
    void (*close)(void *context);
};

struct sequence_bias {
    int32_t id;
    float bias;
};

/* Changes to the logits that tokens are drawn from; log-probabilities stay those of the model
 * (logit_edits.h). */
struct sequence_changes {
    struct sequence_bias *biases; /* [n_biases] owned, each id once */
    int n_biases;
    float presence, frequency; /* 0: none */
    float repetition;          /* above 0; 1: none */
    int no_repeat; /* no run of so many tokens comes twice in prompt and answer; 0: any may */
};

/* The rows that tell how they share out their attention over what is read beside the prompt. */
enum told_rows { TOLD_NO_ROWS, TOLD_WRITING_ROWS, TOLD_ALL_ROWS };

/* Where the answer ends before max_tokens. */
struct sequence_end {
    struct stops stops;
    int32_t *stop_ids; /* [n_stop_ids] owned */
    int n_stop_ids;
    bool ignore_eos;
    bool include_stop; /* what stopped the text is part of it */
    int min_tokens;    /* before so many it does not end */
};

/* The request as it was asked. Constant from engine_submit on. */
struct sequence_request {
    struct principal principal; /* who asks, with a reference: clients take turns (turns.h) */
    int32_t *prompt; /* [n_prompt] owned: the rows that the decoder reads before it writes */
    int n_prompt, max_tokens;
    int32_t *source; /* [n_source] owned: the encoder's text, of a model that has an encoder; else
                        NULL */
    int n_source;
    struct picture_set
        *pictures; /* a reference: their rows have names in the prompt; NULL: it has none */
    struct sample_params sampling; /* `draw` is not read: the engine counts */
    struct sequence_changes changes;
    struct sequence_end end;
    bool wake_per_token; /* else only when finished */
    int n_top; /* alternatives per token in log-probabilities, -1: no log-probabilities at all */
    bool score_prompt; /* log-probabilities of the prompt's tokens too */
    bool rank_prompt;  /* and their ranks */
    int32_t *shown;    /* [n_shown] owned: special tokens that are text in the answer */
    int n_shown;
    struct sequence_neighbors neighbors;
    struct sequence_passages passages;
    struct retrieval_choice
        choice; /* of its searches, complete; `every` is 0 where the model attends */
    struct filter
        *filter; /* held: documents that searches may find, beside its principal's; NULL: all */
    struct text_span
        *excluded; /* [n_excluded] owned, and so are the names: documents that searches leave out */
    int n_excluded;
    struct passage_order order; /* of its passages, as far as who asks decides */
    struct sequence_place place;
    enum told_rows told_rows; /* all of them where what is read is sought once; those that write
                                 the answer in any case */
    /* A reference: once this answer is finished, its tokens are scored as that request's answer,
     * whose log-probabilities they become (scoring.h), and then as the answer of that request's own
     * comparison. NULL: none. */
    struct sequence *comparison;
    int32_t *forced; /* [n_forced] owned: the tokens of a comparison, put there by the engine; NULL:
                        tokens are drawn */
    int n_forced;
    int32_t *predicted; /* [n_predicted] owned: tokens that the asker expects of the answer, which
                           make it no different, but perhaps faster (drafts.h); NULL: none */
    int n_predicted;
    struct grammar *grammar; /* a reference: what the answer must be a text of; NULL: anything */
    struct matcher_begin grammar_begin;
};

static inline bool sequence_searches(const struct sequence_request *asked) {
    return asked->neighbors.search || asked->passages.search;
}
/* Whether it may read texts beside its prompt: sought, or given. */
static inline bool sequence_reads_texts(const struct sequence_request *asked) {
    return sequence_searches(asked) || asked->neighbors.given_k > 0 || asked->passages.n_given > 0;
}
static inline bool sequence_reads_passages(const struct sequence_request *asked) {
    return asked->passages.search || asked->passages.n_given > 0;
}

enum { QUOTES_GIVEN = -1, QUOTES_EARLIER = -2 };
/* A quote in an answer, and where it was taken from. */
struct sequence_quote {
    int entry, hit;              /* of `found`, or QUOTES_GIVEN: a text that the asker gave, or
                                    QUOTES_EARLIER: of `earlier` */
    size_t start, end;           /* bytes, counted from where the text of the hit begins */
    size_t text_start, text_end; /* bytes of the answer's text */
};

/* How far the answer may be read. */
struct progress {
    int n_cached; /* tokens of the prompt that were not computed, because an earlier one had them */
    int n_ids;    /* tokens of ids, and their log-probabilities */
    struct draft_told drafts; /* of these tokens; zeros where server.drafts is off */
    size_t visible;           /* bytes of text: whole characters, no part of a stop string */
    int n_found;              /* searches that are done and read: entries of found */
    int n_read; /* tokens that the model read before it wrote, passages and an encoder's source
                   included */
    enum finish finish;
    double logprob_sum; /* of the tokens of ids, under the model's own probabilities */
    int stop_string;    /* the number of the stop string that ended it, -1: none did */
    int32_t stop_id;    /* the same of a token of stop_ids */
    bool complete;      /* its grammar left nothing to be written: the last token is text, whatever
                           stopped it */
};

/* The published part. Arrays are as long as the answer can get; entries below the published counts
 * are constant, so that readers need the lock only for the counts and for the text. */
struct sequence_answer {
    pthread_mutex_t lock; /* guards progress, text, error and waker */
    struct progress progress;
    struct buffer text; /* [progress.visible] */
    struct error error; /* when progress.finish is FINISH_ERROR */
    struct waker waker;
    int32_t *ids;      /* [max_tokens] */
    size_t *text_ends; /* [max_tokens] bytes of text, shown or held back, when the token had been
                          added */
    /* Log-probabilities of row i: prompt token i when scored, then generated tokens; n_top >= 0
     * only. */
    float *logprobs;           /* [n_prompt + max_tokens] of the token itself */
    int32_t *top_ids;          /* [n_prompt + max_tokens, n_top] */
    float *top_logprobs;       /* the same */
    int32_t *ranks;            /* [n_prompt] from 1; rank_prompt only */
    struct snapshot *snapshot; /* held: what is searched, from engine_submit on; NULL: nothing is */
    struct grid grid; /* of the rows that the model reads: where passages stand among them, as they
                         were found */
    int n_chunks;     /* that can close */
    int chunks_room;  /* the same, whatever passages are put into the prompt */
    /* Passages that were found for the prompt, n_searches times, and then the neighbours of each
     * chunk. */
    struct hits *found;          /* [n_searches + chunks] */
    int n_searches;              /* at most */
    struct found_pictures *seen; /* [n_searches] the pictures among these passages */
    int *search_rows;            /* [n_searches] the row from which on these passages are read */
    int found_room;              /* entries of found */
    /* Passages of earlier turns, and which of them stand in the prompt by their numbers: known with
     * the first search. */
    struct recalled *recalled; /* [n_recalled] */
    struct hit *earlier;       /* [n_earlier] */
    int n_recalled, n_earlier;
    struct sequence_quote *quotes; /* [n_quotes] in their order, once it is finished */
    int n_quotes;
    atomic_bool
        away; /* the collection did not answer, and some of it was written without neighbours */
    /* With told_rows, rows of share_columns: what each row of the sequence gives to the
     * neighbours that it reads, [rows]; and what each token of the answer gives to the prompt's
     * passages as it is written, [max_tokens]. Rows that were not asked for are 0. */
    float *neighbor_shares, *passage_shares;
    int share_columns;
};

struct sequence {
    struct sequence_request asked;
    struct sequence_answer answer;
    atomic_bool cancelled; /* set by the asker, who then calls engine_notice */
    atomic_int references;
};

/* Empty, with one reference, the caller's. */
struct sequence *sequence_open(void);
/* How sequences are read: their grid, m 0 for a model without chunked cross attention, and the most
 * rows of one. */
struct sequence_rows {
    enum grid_mode grid;
    int m, most;
};
/* Allocates the answer of a complete request. */
void sequence_prepare(struct sequence *sequence, const struct sequence_rows *rows);
void sequence_hold(struct sequence *sequence);
void sequence_release(struct sequence *sequence);

/* Reader's side. The text in [from, visible) is appended to *text; *e is filled in when the finish
 * is FINISH_ERROR. */
struct progress sequence_read(struct sequence *sequence, size_t from, struct buffer *text,
                              struct error *e);
/* Nobody waits for it any more, nor for its comparisons; the engine is to be told (engine_notice).
 */
void sequence_cancel(struct sequence *sequence);
/* No wake will be called after this returns, of its comparisons neither. */
void sequence_detach(struct sequence *sequence);

/* The first row that reads entry j of what was found: the row that closes the chunk; of passages
 * that the prompt began with 0, of later ones the last row that was read anew. */
int sequence_found_row(const struct sequence *sequence, int j);
/* The passage that stands in the prompt by this number, of search j or of an earlier turn; NULL:
 * there is none. */
const struct hit *sequence_passage(const struct sequence *sequence, int j, int number);
