/* server/schedule/engine_sequence.h: the engine's side of a sequence: a core, which every
 * sequence has, and parts. A part is a struct that one file owns, with functions that open it
 * where the sequence needs it and close it in any case. */
#pragma once

#include "retro/text/tokenizer.h"
#include "server/pictures/picture_thread.h"
#include "server/schedule/drafts.h"
#include "server/schedule/engine.h"
#include "server/schedule/guide.h"
#include "server/schedule/logit_edits.h"
#include "server/schedule/pace.h"
#include "server/threads/turns.h"

/* The text of the answer (engine_sequence.c). */
struct text_part {
    struct buffer all; /* what may be shown is [0, visible) */
    size_t visible;
    struct detokenizer detokenizer;
    int stop_string, stop_id; /* what has stopped it, as progress has it */
};

/* Rows taken over from earlier prompts (engine_prefix.c). */
struct prefix_part {
    bool begun;     /* it has looked for rows to take over, and computes what is left */
    int n_cached;   /* tokens of its prompt that needed no computing when it was read first */
    uint32_t scope; /* engine_scope */
};

/* Rows that are read from files (engine_blocks.c). */
struct blocks_part {
    struct block_job *job;   /* owned; NULL: nothing was read yet */
    bool loading;            /* it is on its way */
    bool failed;             /* no more are read */
    struct buffer documents; /* keys that all of its rows depend on */
};

/* Texts that are read beside the prompt, on their way from the retrieval thread
 * (engine_lookup.c). */
struct lookup_part {
    struct neighbor_tokens *neighbors; /* [n_chunks] what the model reads */
    int n_neighbors;                   /* chunks that have theirs, perhaps not yet published */
    struct filter *filter; /* held: of its searches, the request's and its principal's */
    struct lookup job;     /* keeps the snapshot of the first for all */
    struct recall recall;  /* of passages of earlier turns, with the first; list NULL: none */
    struct buffer query;
};

/* The lookup of a chunk whose end is foretold (engine_ahead.c). */
struct ahead_part {
    enum { AHEAD_NONE, AHEAD_ASKED, AHEAD_FOUND } state;
    int32_t *ids; /* [n_ids] owned: the tokens that were looked for; NULL: none yet */
    int n_ids;
    int ids_chunk; /* 1 and the number of the chunk that they are of, 0: of none */
};

/* Passages in the prompt (engine_passages.c). */
struct passage_part {
    int32_t *rows, *source; /* owned, where passages stand among them */
    int n_searched; /* times that passages were put into the prompt, perhaps not yet published */
};

/* Pictures that such passages may have (engine_found.c). */
struct found_part {
    struct picture_job *job; /* a reference; NULL: there are none */
};

/* Pictures in the prompt (engine_pictures.c). */
struct pictures_part {
    struct picture_set *set; /* held: the request's with found ones among them; NULL: none */
    float *rows;        /* owned [rows of pictures, d] in the order of the text; NULL without */
    int32_t *positions; /* owned, of all rows when they are read (picture_set_place); NULL: their
                           numbers */
    bool done; /* the rows are computed, as far as the session has not their keys and values */
};

/* Tokens whose log-probabilities are told (scoring.c). */
struct scoring_part {
    int32_t *forced; /* owned, of a comparison that has begun: its rows, and the last token */
};

/* Keys whose attention is told (told_attention.c). */
struct attention_part {
    struct key_group *groups; /* [n] owned: rows, or the source's, where passages stand */
    int n;
};

enum sequence_state {
    SEQUENCE_WAITING, /* has no session yet */
    SEQUENCE_RUNNING,
    SEQUENCE_PARKED, /* waits for another thread */
    SEQUENCE_LEFT    /* is over, and that thread still writes to it */
};
enum parked_for {
    PARKED_FOR_NEIGHBORS,
    PARKED_FOR_OTHERS, /* neighbours that are not its chunk's: the lookup is needed anew */
    PARKED_FOR_PASSAGES,
    PARKED_FOR_BLOCKS,
    PARKED_FOR_PICTURES
};

struct engine_sequence {
    struct turn turn; /* first: one is cast to the other */
    struct engine *engine;
    struct sequence *sequence; /* a reference */
    enum sequence_state state;
    enum parked_for parked_for; /* the latest time */
    struct session *session;    /* NULL: none yet, or none any more */
    /* Rows that the decoder reads before it writes on, and the encoder's: as asked, or with
     * passages among them, and then with the n_reread tokens that had been written when these
     * were put there. Passages add n_prefix rows. */
    const int32_t *rows, *source;
    int n_rows, n_source, n_prefix, n_reread;
    int n_ids;                /* tokens written, perhaps not yet published */
    double logprob_sum;       /* of these */
    double submitted, latest; /* when it came, and when its latest token did */

    struct text_part text;
    struct prefix_part prefix;
    struct blocks_part blocks;
    struct lookup_part lookup;
    struct ahead_part ahead;
    struct passage_part passages;
    struct found_part found;
    struct pictures_part pictures;
    struct scoring_part scoring;
    struct attention_part attention;
    struct guide_part guide;
    struct draft_part drafts;
    struct logit_edits edits;
};

/* engine_sequence.c */

/* Takes a reference of the sequence, whose answer is prepared. */
struct engine_sequence *engine_sequence_open(struct engine *engine, struct sequence *sequence);
void engine_sequence_free(struct engine_sequence *sequence);
/* It gets its session: what it needs to be written. */
enum status engine_sequence_start(struct engine_sequence *sequence, struct error *e);
/* The rows and tokens still to be computed. */
struct workload engine_sequence_left(const struct engine_sequence *sequence);
/* Appends one token, its log-probability and its text. Returns why the answer ends here, if it
 * does. */
enum finish engine_sequence_append(struct engine_sequence *sequence, int32_t token, float logprob);
/* Everything appended so far may be read. */
void engine_sequence_publish(struct engine_sequence *sequence);
/* The last publication; e only with FINISH_ERROR. The sequence is gone, or will be once its
 * lookup is done. */
void engine_sequence_finish(struct engine_sequence *sequence, enum finish how,
                            const struct error *e);
/* The grid of its session: the answer's, or where it reads no neighbours the one that all such
 * sessions have. */
struct grid engine_sequence_grid(const struct engine_sequence *sequence);
/* It waits for another thread, which puts it into the queue `answered`. */
void engine_sequence_park(struct engine_sequence *sequence, enum parked_for what);
/* Whether the asker waits no more. */
static inline bool engine_sequence_cancelled(const struct engine_sequence *sequence) {
    return atomic_load(&sequence->sequence->cancelled);
}
/* The token of row i, which exists. */
static inline int32_t engine_sequence_row(const struct engine_sequence *sequence, int i) {
    return i < sequence->n_rows
               ? sequence->rows[i]
               : sequence->sequence->answer.ids[i - sequence->n_rows + sequence->n_reread];
}

/* engine_prefix.c */

/* The scope of the session that serves it (session_set_scope). */
uint32_t engine_scope(struct engine *engine, const struct engine_sequence *sequence);
/* The same for files: whose rows they are, in this start and in others. */
struct block_address engine_origin(const struct engine *engine,
                                   const struct engine_sequence *sequence);
/* The prompt as a session is asked for its rows. */
struct session_text engine_prompt_text(const struct engine_sequence *sequence);
/* Before the first rows of a prompt are computed: takes over what is kept of them. False: not
 * now, because another prompt is about to compute rows that this one can take over. */
bool engine_begin_prompt(struct engine_sequence *sequence);

/* engine_blocks.c */

void blocks_part_close(struct blocks_part *part);
/* The session goes on with rows of files, as far as there are some that memory has not. False: they
 * are on their way, and the sequence is parked. */
bool engine_load_blocks(struct engine_sequence *sequence);
void engine_accept_blocks(struct engine_sequence *sequence);
/* Rows of the sequence from `row` on depend on the documents of these n hits. */
void engine_read_hits(struct engine_sequence *sequence, const struct hit *list, int n, int row);
/* All rows of `to`, which has no session yet, depend on what those of `from` do. */
void engine_inherit_documents(struct engine_sequence *to, const struct engine_sequence *from);
/* The session is open: what was inherited. */
void engine_note_inherited(struct engine_sequence *sequence);

/* engine_lookup.c */

void lookup_part_open(struct engine_sequence *sequence);
void lookup_part_close(struct lookup_part *part);
/* Rows of the sequence about to be computed close chunks [first, first + n): their neighbours are
 * looked up, given, or none. */
void engine_close_chunks(struct engine_sequence *sequence, int first, int n);
/* The chunks of a prompt that is complete. */
void engine_close_prompt(struct engine_sequence *sequence);
/* Asks what the lookup's n queries find, for entries of the answer's from `first` on, and parks
 * the sequence. */
void engine_look_up(struct engine_sequence *sequence, enum parked_for what, int first, int n);
/* The answer that it was parked for is there, or that of a lookup ahead. */
void engine_accept(struct engine_sequence *sequence);
/* The tokens of chunk j but for the last `missing`, all of which exist, into ids [m]; returns how
 * many. */
int engine_read_chunk(const struct engine_sequence *sequence, int j, int32_t *ids, int missing);
/* The lookup's one query becomes the text of n tokens. */
void engine_write_query(struct engine_sequence *sequence, const int32_t *ids, int n);
/* Asks what the lookup's n queries find, for entries of the answer's from `first` on. */
enum status engine_ask(struct engine_sequence *sequence, int first, int n, struct error *e);

/* engine_ahead.c */

void ahead_part_close(struct ahead_part *part);
/* Tokens that are missing of the chunk that is being written, whose neighbours may be looked for as
 * soon as these are foretold; 0: they may not, or were looked for already. */
int engine_ahead_missing(const struct engine_sequence *sequence);
/* Looks for the neighbours of that chunk, which is to end with `rest`. */
void engine_look_ahead(struct engine_sequence *sequence, const int32_t *rest, int n_rest);
/* The lookup ahead is done while the sequence goes on. */
void engine_note_ahead(struct engine_sequence *sequence);
/* The lookup is done and not needed. */
void engine_forget_ahead(struct engine_sequence *sequence);
/* Chunk `chunk` closes: what became of a lookup ahead. */
enum ahead_end {
    AHEAD_NOTHING,  /* its neighbours are to be looked for */
    AHEAD_IS_THERE, /* the lookup's hits are its neighbours */
    AHEAD_COMES,    /* they will be */
    AHEAD_IS_OTHER  /* a lookup that is not needed is under way */
};
enum ahead_end engine_end_ahead(struct engine_sequence *sequence, int chunk);

/* engine_passages.c */

void passage_part_close(struct passage_part *part);
/* Looks for passages, or takes those given, and puts them into the prompt in the place of
 * earlier ones. */
void engine_seek_passages(struct engine_sequence *sequence);
/* The lookup for them is done; and then, the pictures among them are decoded. */
void engine_accept_passages(struct engine_sequence *sequence);
void engine_accept_pictures(struct engine_sequence *sequence);
/* Whether others are to be sought behind the tokens written so far. */
static inline bool engine_passages_are_due(const struct engine_sequence *sequence) {
    int every = sequence->sequence->asked.choice.every;
    return sequence->sequence->asked.passages.search && every > 0 && sequence->n_ids % every == 0;
}

/* engine_quotes.c: what an answer may quote, where its grammar has quotes. */

/* The passages of search j stand in the prompt; the neighbours of chunk j, or those that the asker
 * gave, are read. STATUS_TOO_LARGE: there are more than an answer may quote from. */
enum status engine_quote_passages(struct engine_sequence *sequence, int j, struct error *e);
enum status engine_quote_neighbors(struct engine_sequence *sequence, int j, struct error *e);
enum status engine_quote_given(struct engine_sequence *sequence, struct error *e);
/* Puts the quotes of an answer that is over into it; under the answer's lock. */
void engine_tell_quotes(struct engine_sequence *sequence);

/* engine_found.c: pictures of the search whose hits have come last. */

void found_part_close(struct found_part *part);
/* Has them decoded and parks the sequence. False: there are none to decode. */
bool engine_read_found(struct engine_sequence *sequence);
/* They are decoded, as far as they can be. */
void engine_note_found(struct engine_sequence *sequence);
/* Those that were, the most similar first, and their places in the job's set; returns how many. */
int engine_list_found(const struct engine_sequence *sequence, struct passage_picture *out,
                      int *places);
/* Notes those that do not stand in the prompt. */
void engine_tell_found(struct engine_sequence *sequence, const struct passage_picture *pictures,
                       int n);

/* engine_pictures.c */

/* The part is about the pictures of *set, which becomes its own, and no longer about those
 * before. */
void pictures_part_take(struct pictures_part *part, struct picture_set **set);
void pictures_part_close(struct pictures_part *part);
/* Whether its prompt cannot be read before its pictures are computed. */
bool engine_wants_view(const struct engine_sequence *sequence);
/* Its pictures are not computed any further. */
void engine_end_view(struct engine_sequence *sequence);
/* The item's rows of pictures, which begins at row `first`, and their names. */
void engine_give_rows(const struct engine_sequence *sequence, struct step_item *item, int first);
