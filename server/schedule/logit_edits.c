/* server/schedule/logit_edits.c: see logit_edits.h. Penalties are those of OpenAI (presence, frequency: tokens of the
 * answer) and of CTRL (Keskar et al. 2019, section 4.1; repetition: tokens of prompt and answer). Runs that come once
 * are transformers' no_repeat_ngram_size. */
#include "server/schedule/logit_edits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of a token that would repeat a run: below every other, and still drawn where a grammar allows no other. */
static const float barred_bias = -1e9F;

static bool penalises(const struct sequence_changes *changes) {
    return changes->presence != 0 || changes->frequency != 0 || changes->repetition != 1;
}

/* The token's entry, a new one where it had none. */
static int edit_place(struct logit_edits *e, int32_t id) {
    if (e->places[id] >= 0) return e->places[id];
    int place = e->n;
    e->n++;
    e->list[place] = (struct logit_edit){.id = id, .repetition = 1};
    e->places[id] = place;
    return place;
}

static float bias_of(const struct sequence_changes *changes, int32_t id) {
    for (int i = 0; i < changes->n_biases; i++)
        if (changes->biases[i].id == id) return changes->biases[i].bias;
    return 0;
}

/* Ends come first, so that they are found again when they may come. */
static void hold_ends(struct logit_edits *e, const struct end_ids *ends) {
    if (e->end->min_tokens == 0) return;
    for (int i = 0; i < ends->n && !e->end->ignore_eos; i++) e->list[edit_place(e, ends->ids[i])].bias = -INFINITY;
    for (int i = 0; i < e->end->n_stop_ids; i++) e->list[edit_place(e, e->end->stop_ids[i])].bias = -INFINITY;
    e->n_held = e->n;
}

static void let_ends(struct logit_edits *e) {
    for (int i = 0; i < e->n_held; i++) e->list[i].bias = bias_of(e->changes, e->list[i].id);
    e->n_held = 0;
}

static void add_biases(struct logit_edits *e) {
    for (int i = 0; i < e->changes->n_biases; i++) {
        int place = edit_place(e, e->changes->biases[i].id);
        if (place >= e->n_held) e->list[place].bias = e->changes->biases[i].bias;
    }
}

static void lift_bars(struct logit_edits *e) {
    for (int i = 0; i < e->n_barred; i++) {
        struct logit_edit *edit = &e->list[e->barred[i]];
        if (e->barred[i] >= e->n_held) edit->bias = bias_of(e->changes, edit->id);
    }
    e->n_barred = 0;
}

static void bar_token(struct logit_edits *e, int32_t token) {
    int place = edit_place(e, token);
    if (e->list[place].bias <= barred_bias) return;
    e->list[place].bias = barred_bias;
    e->barred[e->n_barred] = place;
    e->n_barred++;
}

/* The tokens that followed the last no_repeat - 1 tokens where these stood before. */
static void bar_repeats(struct logit_edits *e) {
    int run = e->changes->no_repeat - 1;
    if (e->n_history < run) return;
    const int32_t *last = e->history + e->n_history - run;
    for (int i = 0; i + run < e->n_history; i++) {
        int32_t next = e->history[i + run];
        if (next >= 0 && memcmp(e->history + i, last, (size_t)run * sizeof *last) == 0) bar_token(e, next);
    }
}

static void open_history(struct logit_edits *e, const struct sequence_request *asked) {
    size_t most = (size_t)asked->n_prompt + (size_t)asked->max_tokens;
    e->history = xmalloc(most * sizeof *e->history);
    e->barred = xmalloc(most * sizeof *e->barred);
    memcpy(e->history, asked->prompt, (size_t)asked->n_prompt * sizeof *e->history);
    e->n_history = asked->n_prompt;
    bar_repeats(e);
}

void logit_edits_open(struct logit_edits *e, const struct sequence_request *asked, int vocab,
                      const struct end_ids *ends) {
    const struct sequence_changes *changes = &asked->changes;
    size_t most = (size_t)changes->n_biases;
    *e = (struct logit_edits){.changes = changes, .end = &asked->end};
    if (asked->end.min_tokens > 0) most += (size_t)ends->n + (size_t)asked->end.n_stop_ids;
    if (penalises(changes) || changes->no_repeat > 0) most += (size_t)asked->n_prompt + (size_t)asked->max_tokens;
    if (most == 0) return;

    if (most > (size_t)vocab) most = (size_t)vocab;
    e->list = xcalloc(most, sizeof *e->list);
    e->counts = xcalloc(most, sizeof *e->counts);
    e->places = xmalloc((size_t)vocab * sizeof *e->places);
    memset(e->places, 0xFF, (size_t)vocab * sizeof *e->places);
    hold_ends(e, ends);
    add_biases(e);
    for (int i = 0; i < asked->n_prompt && changes->repetition != 1; i++)
        if (asked->prompt[i] >= 0) e->list[edit_place(e, asked->prompt[i])].repetition = changes->repetition;
    if (changes->no_repeat > 0) open_history(e, asked);
}

void logit_edits_close(struct logit_edits *e) {
    free(e->list);
    free(e->counts);
    free(e->places);
    free(e->history);
    free(e->barred);
    *e = (struct logit_edits){0};
}

void logit_edits_note(struct logit_edits *e, int32_t token) {
    const struct sequence_changes *changes = e->changes;
    if (e->places == NULL) return;
    e->n_written++;
    if (e->n_written == e->end->min_tokens) let_ends(e);
    if (e->history) {
        e->history[e->n_history] = token;
        e->n_history++;
        lift_bars(e);
        bar_repeats(e);
    }
    if (!penalises(changes)) return;
    int place = edit_place(e, token);
    e->counts[place]++;
    e->list[place].penalty = changes->presence + changes->frequency * (float)e->counts[place];
    e->list[place].repetition = changes->repetition;
}
