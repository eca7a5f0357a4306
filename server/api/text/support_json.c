/* server/api/text/support_json.c: see support_json.h. */
#include "server/api/text/support_json.h"

#include <stdlib.h>

#include "config/text/sentences.h"
#include "server/api/text/provenance_json.h"
#include "server/host/prompt/support.h"

/* Tokens in the answer's text. */

/* Goes through the tokens of an answer and through its text. */
struct answer_reading {
    const struct told_answer *answer;
    const float *with, *without; /* log-probabilities of the answer's tokens */
    int n, next;    /* tokens that the text shows, and the first that is not read yet */
    int held;       /* the first of those before it that wrote nothing: part of a character */
    int piece;      /* of the text of a chat */
    int entry;      /* of what was found, that the latest token read */
    size_t counted; /* bytes of the text, and characters that are shown up to there */
    int64_t characters;
    double *sums; /* [share_columns] owned: of shares of the latest tokens */
};

static const float *answer_logprobs(const struct sequence *sequence) {
    return sequence->answer.logprobs + sequence->asked.n_prompt;
}

static struct answer_reading reading_begin(const struct told_answer *answer) {
    const struct sequence *sequence = answer->sequence, *without = sequence->asked.comparison;
    struct answer_reading reading = {.answer = answer, .characters = answer->before};
    reading.sums = xcalloc((size_t)sequence->answer.share_columns + 1, sizeof *reading.sums);
    while (without && without->asked.comparison) without = without->asked.comparison;
    reading.n = without ? tokens_shown(sequence, answer->progress, 0) : 0;
    if (reading.n == 0) return reading;
    reading.with = answer_logprobs(sequence);
    reading.without = answer_logprobs(without);
    return reading;
}

/* Bytes of the answer's text before the byte of all that was written; these come in rising order.
 */
static size_t text_place(struct answer_reading *reading, size_t written) {
    const struct chat_reply *said = reading->answer->said;
    size_t most = reading->answer->text.size;
    if (said == NULL) return written < most ? written : most;
    while (reading->piece + 1 < said->n_pieces &&
           said->pieces[reading->piece + 1].written < written)
        reading->piece++;
    if (said->n_pieces == 0 || said->pieces[reading->piece].written >= written) return 0;
    const struct reply_piece *piece = &said->pieces[reading->piece];
    size_t into = written - piece->written;
    size_t at = piece->said + (into < piece->size ? into : piece->size);
    return at < most ? at : most;
}

static int64_t characters_before(struct answer_reading *reading, size_t at) {
    const char *text = reading->answer->text.text;
    for (; reading->counted < at; reading->counted++)
        reading->characters += (text[reading->counted] & 0xC0) != 0x80;
    return reading->characters;
}

/* Texts that a token read. */

/* Neighbours of a chunk or passages of a search, n of them, and the shares that each got; none
 * where n is 0. */
struct read_texts {
    int chunk, n;
    const float *shares;
    const struct hit *passages; /* [n] of a search, with their numbers; NULL: they are neighbours */
};

/* Passages that stood in the prompt as the token was written. */
static struct read_texts passages_of(const struct told_answer *told, int token) {
    const struct sequence_answer *answer = &told->sequence->answer;
    int every = told->sequence->asked.choice.every,
        latest = min_int(told->progress->n_found, answer->n_searches) - 1,
        j = every > 0 ? min_int(token / every, latest) : 0;
    if (latest < 0) return (struct read_texts){0};
    return (struct read_texts){j, answer->found[j].n - answer->found[j].n_again,
                               answer->passage_shares + (ptrdiff_t)token * answer->share_columns,
                               answer->found[j].list};
}

/* Neighbours that the row read which wrote the token: those of the latest chunk that was closed. */
static struct read_texts neighbors_of(struct answer_reading *reading, int token) {
    const struct told_answer *told = reading->answer;
    const struct sequence *sequence = told->sequence;
    const struct sequence_answer *answer = &sequence->answer;
    int row = told->progress->n_read - 1 + token, given = sequence->asked.neighbors.given_k;
    reading->entry = max_int(reading->entry, answer->n_searches);
    while (reading->entry + 1 < told->progress->n_found &&
           sequence_found_row(sequence, reading->entry + 1) <= row)
        reading->entry++;
    int j = reading->entry;
    if (j >= told->progress->n_found || sequence_found_row(sequence, j) > row)
        return (struct read_texts){0};
    return (struct read_texts){j - answer->n_searches, given > 0 ? given : answer->found[j].n,
                               answer->neighbor_shares + (ptrdiff_t)row * answer->share_columns,
                               NULL};
}

/* In mode both the passages of the prompt, where there are any. */
static struct read_texts read_by(struct answer_reading *reading, int token) {
    const struct sequence_answer *answer = &reading->answer->sequence->answer;
    struct read_texts texts = {0};
    if (answer->passage_shares) texts = passages_of(reading->answer, token);
    return texts.n == 0 && answer->neighbor_shares ? neighbors_of(reading, token) : texts;
}

/* One sentence. */

struct judged {
    struct support support;
    int chunk, passage; /* that got most of its tokens' attention; passage 0: they read nothing */
    double most;        /* this attention */
    struct read_texts weighed; /* what the tokens of reading->sums read */
};

/* The texts that the latest tokens read have their sums. */
static void weigh(struct judged *judged, struct answer_reading *reading) {
    int n = min_int(judged->weighed.n, reading->answer->sequence->answer.share_columns);
    for (int i = 0; i < n; i++) {
        if (judged->passage == 0 || reading->sums[i] > judged->most) {
            judged->most = reading->sums[i];
            judged->chunk = judged->weighed.chunk;
            judged->passage = judged->weighed.passages ? judged->weighed.passages[i].number : i + 1;
        }
        reading->sums[i] = 0;
    }
}

static void judge_token(struct judged *judged, struct answer_reading *reading, int token) {
    struct read_texts texts = read_by(reading, token);
    if (texts.chunk != judged->weighed.chunk || texts.n != judged->weighed.n)
        weigh(judged, reading);
    judged->weighed = texts;
    support_add(&judged->support, (double)reading->with[token], (double)reading->without[token]);
    int n = min_int(texts.n, reading->answer->sequence->answer.share_columns);
    for (int i = 0; i < n; i++) reading->sums[i] += (double)texts.shares[i];
}

/* A token that writes nothing by itself: an end that was to be ignored. */
static bool is_special(const struct told_answer *answer, int token) {
    return tokenizer_is_special(answer->model->tokenizer, answer->sequence->answer.ids[token]);
}

/* The tokens that wrote the sentence, in whole or in part: each counts for the first sentence that
 * it wrote of. A character may take several tokens, of which the last has its text. */
static struct judged judge(struct answer_reading *reading, struct sentence sentence) {
    const size_t *ends = reading->answer->sequence->answer.text_ends;
    struct judged judged = {0};
    for (; reading->next < reading->n; reading->next++) {
        int i = reading->next;
        size_t written = i > 0 ? ends[i - 1] : 0;
        if (ends[i] == written) {
            if (is_special(reading->answer, i)) reading->held = i + 1;
            continue;
        }
        size_t begin = text_place(reading, written);
        if (begin >= sentence.end) break;
        size_t end = text_place(reading, ends[i]);
        bool counts = end > begin && end > sentence.begin;
        for (int token = reading->held; counts && token <= i; token++)
            judge_token(&judged, reading, token);
        reading->held = i + 1;
    }
    weigh(&judged, reading);
    return judged;
}

static void write_judged(struct json_writer *w, const struct judged *judged) {
    if (judged->passage == 0) {
        put_key_null(w, "support");
        put_key_null(w, "chunk");
        put_key_null(w, "passage");
        return;
    }
    put_key_float(w, "support", (float)support_value(&judged->support));
    put_key_int(w, "chunk", judged->chunk);
    put_key_int(w, "passage", judged->passage);
}

void support_write(struct json_writer *w, const struct told_answer *answer) {
    struct answer_reading reading = reading_begin(answer);
    struct sentence sentence;
    size_t at = 0;
    while (sentence_next(answer->text, &at, &sentence)) {
        struct judged judged = judge(&reading, sentence);
        put_object(w);
        put_key_int(w, "index", answer->index);
        put_key_int(w, "answer_start", characters_before(&reading, sentence.begin));
        put_key_int(w, "answer_end", characters_before(&reading, sentence.end));
        write_judged(w, &judged);
        put_object_end(w);
    }
    free(reading.sums);
}
