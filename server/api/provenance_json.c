/* server/api/provenance_json.c: see provenance_json.h. */
#include "server/api/provenance_json.h"

#include <string.h>

void origin_write(struct json_writer *w, const struct served_model *model, const struct generation *g) {
    struct buffer text = {0};
    buffer_append_string(&text, model->fingerprint);
    if (g->answer.snapshot) buffer_printf(&text, "_g%lld", (long long)g->answer.snapshot->version);
    put_key_string_n(w, "system_fingerprint", text.data, text.size);
    if (g->asked.sampling.temperature > 0) put_key_int(w, "seed", (int64_t)g->asked.sampling.seed);
    buffer_free(&text);
}

int tokens_shown(const struct generation *g, const struct progress *p, int from) {
    int n = p->n_ids, shown = from;
    if (p->finish == FINISH_LENGTH) return n;
    bool by_token = p->finish == FINISH_STOP && p->stop_string < 0;
    if (by_token) return max_int(g->asked.end.include_stop ? n : n - 1, shown);
    while (shown < n && (shown > 0 ? g->answer.text_ends[shown - 1] : 0) < p->visible) shown++;
    return shown;
}

/* Places of tokens in the text, in characters, from token to token. */
struct token_places {
    const struct told_answer *answer;
    size_t counted; /* bytes of the text */
    int64_t characters;
};

static struct token_places places_begin(const struct told_answer *a) {
    return (struct token_places){.answer = a, .characters = a->before};
}

/* Characters shown before the byte of all that was written; bytes come in rising order. */
static int64_t places_at(struct token_places *p, size_t written) {
    const struct told_answer *a = p->answer;
    size_t at = a->said ? chat_reply_place(a->said, written) : written;
    if (at > a->text.size) at = a->text.size; /* cut by a stop string */
    for (; p->counted < at; p->counted++) p->characters += (a->text.text[p->counted] & 0xC0) != 0x80;
    return p->characters;
}

/* The token and its place, into an open object. */
static void token_write(struct json_writer *w, struct token_places *p, int i) {
    const struct generation *g = p->answer->generation;
    struct buffer piece = {0};
    tokenizer_piece(p->answer->model->tokenizer, g->answer.ids[i], &piece);
    put_key_string_n(w, "token", piece.data, piece.size);
    put_key_int(w, "answer_start", places_at(p, i > 0 ? g->answer.text_ends[i - 1] : 0));
    put_key_int(w, "answer_end", places_at(p, g->answer.text_ends[i]));
    buffer_free(&piece);
}

/* Comparisons. */

bool comparison_is_over(const struct generation *g, bool *failed, struct error *e) {
    struct buffer unread = {0};
    *failed = false;
    if (g->asked.comparison == NULL) return true;
    struct progress p = generation_read(g->asked.comparison, SIZE_MAX, &unread, e);
    *failed = p.finish == FINISH_ERROR;
    return p.finish != FINISH_NONE;
}

static void write_without(struct json_writer *w, const struct request_retrieval *asked) {
    if (asked->compared == COMPARED_WITH_OFF) {
        put_key_string(w, "without", "off");
        return;
    }
    put_key_array(w, "without");
    for (int i = 0; i < asked->without.n; i++) put_string_n(w, asked->without.all[i].text, asked->without.all[i].size);
    put_array_end(w);
}

void comparison_write(struct json_writer *w, const struct told_answer *a) {
    const struct generation *g = a->generation;
    const float *logprobs = g->answer.logprobs + g->asked.n_prompt;
    const float *without = g->asked.comparison->answer.logprobs + g->asked.n_prompt;
    struct token_places places = places_begin(a);
    int n = tokens_shown(g, a->progress, 0);
    put_object(w);
    put_key_int(w, "index", a->index);
    write_without(w, a->asked);
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
