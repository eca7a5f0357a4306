/* server/api/text/provenance_json.c: see provenance_json.h. */
#include "server/api/text/provenance_json.h"

#include <string.h>

void origin_write(struct json_writer *w, const struct served_model *model,
                  const struct sequence *sequence) {
    struct buffer text = {0};
    buffer_append_string(&text, model->fingerprint);
    const struct snapshot *snapshot = sequence->answer.snapshot;
    /* Milvus has no state with a name. That of a folder counts the changes of all, of which a
     * tenant is told nothing.
     */
    if (snapshot && snapshot->generation > 0 &&
        principal_filter(&sequence->asked.principal) == NULL)
        buffer_printf(&text, "_g%d.%lld", snapshot->generation, (long long)snapshot->n_changes);
    put_key_string_n(w, "system_fingerprint", text.data, text.size);
    if (atomic_load(&sequence->answer.away)) put_key_bool(w, "retrieval_away", true);
    if (sequence->asked.sampling.temperature > 0)
        put_key_int(w, "seed", (int64_t)sequence->asked.sampling.seed);
    buffer_free(&text);
}

int tokens_shown(const struct sequence *sequence, const struct progress *progress, int from) {
    int n = progress->n_ids, shown = from;
    if (progress->finish == FINISH_LENGTH || progress->complete) return n;
    bool by_token = progress->finish == FINISH_STOP && progress->stop_string < 0;
    if (by_token) return max_int(sequence->asked.end.include_stop ? n : n - 1, shown);
    while (shown < n && (shown > 0 ? sequence->answer.text_ends[shown - 1] : 0) < progress->visible)
        shown++;
    return shown;
}

/* Places of tokens in the text, in characters, from token to token. */
struct token_places {
    const struct told_answer *answer;
    size_t counted; /* bytes of the text */
    int64_t characters;
};

static struct token_places places_begin(const struct told_answer *answer) {
    return (struct token_places){.answer = answer, .characters = answer->before};
}

/* Characters shown before the byte of all that was written; bytes come in rising order, but for a
 * few times at which they begin anew. */
static int64_t places_at(struct token_places *places, size_t written) {
    const struct told_answer *answer = places->answer;
    size_t at = answer->said ? chat_reply_place(answer->said, written) : written;
    if (at > answer->text.size) at = answer->text.size; /* cut by a stop string */
    if (at < places->counted) *places = places_begin(answer);
    for (; places->counted < at; places->counted++)
        places->characters += (answer->text.text[places->counted] & 0xC0) != 0x80;
    return places->characters;
}

/* The token and its place, into an open object. */
static void token_write(struct json_writer *w, struct token_places *places, int i) {
    const struct sequence *sequence = places->answer->sequence;
    struct buffer piece = {0};
    tokenizer_piece(places->answer->model->tokenizer, sequence->answer.ids[i], &piece);
    put_key_string_n(w, "token", piece.data, piece.size);
    put_key_int(w, "answer_start",
                places_at(places, i > 0 ? sequence->answer.text_ends[i - 1] : 0));
    put_key_int(w, "answer_end", places_at(places, sequence->answer.text_ends[i]));
    buffer_free(&piece);
}

/* Attention. */

/* Rows of shares that one entry of what was found got, the tokens that they wrote, and how many
 * neighbours there are.
 */
struct told_entry {
    int chunk, n;
    const float *shares;       /* [rows] the first row */
    int rows, columns;         /* rows; floats from one to the next */
    int first_token, n_tokens; /* tokens of the answer that the last of these rows wrote */
};

/* The mean over the entry's rows. */
static void write_shares_mean(struct json_writer *w, const struct told_entry *entry) {
    put_key_array(w, "shares");
    for (int i = 0; i < entry->n; i++) {
        double sum = 0;
        for (int row = 0; row < entry->rows; row++)
            sum += (double)entry->shares[row * entry->columns + i];
        put_float(w, (float)(sum / entry->rows));
    }
    put_array_end(w);
}

static void write_told_tokens(struct json_writer *w, struct token_places *places,
                              const struct told_entry *entry) {
    const float *shares = entry->shares + (entry->rows - entry->n_tokens) * entry->columns;
    put_key_array(w, "tokens");
    for (int i = 0; i < entry->n_tokens; i++) {
        put_object(w);
        token_write(w, places, entry->first_token + i);
        put_key_array(w, "shares");
        for (int j = 0; j < entry->n; j++) put_float(w, shares[i * entry->columns + j]);
        put_array_end(w);
        put_object_end(w);
    }
    put_array_end(w);
}

static void write_told_entry(struct json_writer *w, struct token_places *places,
                             const struct told_entry *entry) {
    const struct told_answer *answer = places->answer;
    if (entry->n == 0 || entry->rows <= 0) return;
    put_object(w);
    put_key_int(w, "index", answer->index);
    put_key_int(w, "chunk", entry->chunk);
    write_shares_mean(w, entry);
    if (answer->asked->attention == ATTENTION_OF_TOKENS) write_told_tokens(w, places, entry);
    put_object_end(w);
}

/* Passages are read by every token of the answer. */
static struct told_entry passages_entry(const struct told_answer *told_answer, int n_tokens) {
    const struct sequence_answer *answer = &told_answer->sequence->answer;
    return (struct told_entry){.n = answer->found[0].n - answer->found[0].n_again,
                               .shares = answer->passage_shares,
                               .rows = n_tokens,
                               .columns = answer->share_columns,
                               .n_tokens = n_tokens};
}

/* A chunk's neighbours are read by the row that closes it, up to the row before the one that closes
 * the next. Row r writes the token of row r + 1; `last` is the row that wrote the last token that
 * is told. */
static struct told_entry chunk_entry(const struct told_answer *told_answer, int j, int last) {
    const struct sequence *sequence = told_answer->sequence;
    const struct sequence_answer *answer = &sequence->answer;
    int first = sequence_found_row(sequence, j), end = last + 1,
        given = sequence->asked.neighbors.given_k;
    if (j + 1 < told_answer->progress->n_found)
        end = min_int(end, sequence_found_row(sequence, j + 1));
    int token = max_int(0, first + 1 - told_answer->progress->n_read),
        tokens = end + 1 - told_answer->progress->n_read - token;
    return (struct told_entry){
        .chunk = j - answer->n_searches,
        .n = given > 0 ? given : answer->found[j].n,
        .shares = answer->neighbor_shares + (ptrdiff_t)first * answer->share_columns,
        .rows = end - first,
        .columns = answer->share_columns,
        .first_token = token,
        .n_tokens = max_int(0, tokens)};
}

void attention_write(struct json_writer *w, const struct told_answer *answer) {
    const struct sequence *sequence = answer->sequence;
    int shown = tokens_shown(sequence, answer->progress, 0);
    struct token_places places = places_begin(answer);
    for (int j = 0; j < answer->progress->n_found; j++) {
        bool in_prompt = j < sequence->answer.n_searches;
        struct told_entry entry =
            in_prompt ? passages_entry(answer, shown)
                      : chunk_entry(answer, j, answer->progress->n_read + shown - 2);
        write_told_entry(w, &places, &entry);
    }
}

/* Comparisons. */

static void write_without(struct json_writer *w, const struct request_retrieval *asked) {
    if (asked->compared == COMPARED_WITH_OFF) {
        put_key_string(w, "without", "off");
        return;
    }
    put_key_array(w, "without");
    for (int i = 0; i < asked->without.n; i++)
        put_string_n(w, asked->without.all[i].text, asked->without.all[i].size);
    put_array_end(w);
}

void comparison_write(struct json_writer *w, const struct told_answer *answer) {
    const struct sequence *sequence = answer->sequence;
    const float *logprobs = sequence->answer.logprobs + sequence->asked.n_prompt;
    const float *without = sequence->asked.comparison->answer.logprobs + sequence->asked.n_prompt;
    struct token_places places = places_begin(answer);
    int n = tokens_shown(sequence, answer->progress, 0);
    put_object(w);
    put_key_int(w, "index", answer->index);
    write_without(w, answer->asked);
    put_key_array(w, "tokens");
    for (int i = 0; i < n; i++) {
        put_object(w);
        token_write(w, &places, i);
        put_key_float(w, "logprob", logprobs[i]);
        put_key_float(w, "logprob_without", without[i]);
        put_object_end(w);
    }
    put_array_end(w);
    put_object_end(w);
}
