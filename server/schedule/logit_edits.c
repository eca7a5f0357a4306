/* server/schedule/logit_edits.c: see logit_edits.h. Penalties are those of OpenAI (presence,
 * frequency: tokens of the answer) and of CTRL (Keskar et al. 2019, section 4.1; repetition: tokens
 * of prompt and answer). Runs that come once are transformers' no_repeat_ngram_size. */
#include "server/schedule/logit_edits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of a token that would repeat a run: below every other, and still drawn where a grammar allows no
 * other. */
static const float barred_bias = -1e9F;

static bool penalises(const struct sequence_changes *changes) {
    return changes->presence != 0 || changes->frequency != 0 || changes->repetition != 1;
}

/* The token's entry, a new one where it had none. */
static int edit_place(struct logit_edits *edits, int32_t id) {
    if (edits->places[id] >= 0) return edits->places[id];
    int place = edits->n;
    edits->n++;
    edits->list[place] = (struct logit_edit){.id = id, .repetition = 1};
    edits->places[id] = place;
    return place;
}

static float bias_of(const struct sequence_changes *changes, int32_t id) {
    for (int i = 0; i < changes->n_biases; i++)
        if (changes->biases[i].id == id) return changes->biases[i].bias;
    return 0;
}

/* Ends come first, so that they are found again when they may come. */
static void hold_ends(struct logit_edits *edits, const struct end_ids *ends) {
    if (edits->end->min_tokens == 0) return;
    for (int i = 0; i < ends->n && !edits->end->ignore_eos; i++)
        edits->list[edit_place(edits, ends->ids[i])].bias = -INFINITY;
    for (int i = 0; i < edits->end->n_stop_ids; i++)
        edits->list[edit_place(edits, edits->end->stop_ids[i])].bias = -INFINITY;
    edits->n_held = edits->n;
}

static void let_ends(struct logit_edits *edits) {
    for (int i = 0; i < edits->n_held; i++)
        edits->list[i].bias = bias_of(edits->changes, edits->list[i].id);
    edits->n_held = 0;
}

static void add_biases(struct logit_edits *edits) {
    for (int i = 0; i < edits->changes->n_biases; i++) {
        int place = edit_place(edits, edits->changes->biases[i].id);
        if (place >= edits->n_held) edits->list[place].bias = edits->changes->biases[i].bias;
    }
}

static void lift_bars(struct logit_edits *edits) {
    for (int i = 0; i < edits->n_barred; i++) {
        struct logit_edit *edit = &edits->list[edits->barred[i]];
        if (edits->barred[i] >= edits->n_held) edit->bias = bias_of(edits->changes, edit->id);
    }
    edits->n_barred = 0;
}

static void bar_token(struct logit_edits *edits, int32_t token) {
    int place = edit_place(edits, token);
    if (edits->list[place].bias <= barred_bias) return;
    edits->list[place].bias = barred_bias;
    edits->barred[edits->n_barred] = place;
    edits->n_barred++;
}

/* The tokens that followed the last no_repeat - 1 tokens where these stood before. */
static void bar_repeats(struct logit_edits *edits) {
    int run = edits->changes->no_repeat - 1;
    if (edits->n_history < run) return;
    const int32_t *last = edits->history + edits->n_history - run;
    for (int i = 0; i + run < edits->n_history; i++) {
        int32_t next = edits->history[i + run];
        if (next >= 0 && memcmp(edits->history + i, last, (size_t)run * sizeof *last) == 0)
            bar_token(edits, next);
    }
}

static void open_history(struct logit_edits *edits, const struct sequence_request *asked) {
    size_t most = (size_t)asked->n_prompt + (size_t)asked->max_tokens;
    edits->history = xmalloc(most * sizeof *edits->history);
    edits->barred = xmalloc(most * sizeof *edits->barred);
    memcpy(edits->history, asked->prompt, (size_t)asked->n_prompt * sizeof *edits->history);
    edits->n_history = asked->n_prompt;
    bar_repeats(edits);
}

void logit_edits_open(struct logit_edits *edits, const struct sequence_request *asked, int vocab,
                      const struct end_ids *ends) {
    const struct sequence_changes *changes = &asked->changes;
    size_t most = (size_t)changes->n_biases;
    *edits = (struct logit_edits){.changes = changes, .end = &asked->end};
    if (asked->end.min_tokens > 0) most += (size_t)ends->n + (size_t)asked->end.n_stop_ids;
    if (penalises(changes) || changes->no_repeat > 0)
        most += (size_t)asked->n_prompt + (size_t)asked->max_tokens;
    if (most == 0) return;

    if (most > (size_t)vocab) most = (size_t)vocab;
    edits->list = xcalloc(most, sizeof *edits->list);
    edits->counts = xcalloc(most, sizeof *edits->counts);
    edits->places = xmalloc((size_t)vocab * sizeof *edits->places);
    memset(edits->places, 0xFF, (size_t)vocab * sizeof *edits->places);
    hold_ends(edits, ends);
    add_biases(edits);
    for (int i = 0; i < asked->n_prompt && changes->repetition != 1; i++)
        if (asked->prompt[i] >= 0)
            edits->list[edit_place(edits, asked->prompt[i])].repetition = changes->repetition;
    if (changes->no_repeat > 0) open_history(edits, asked);
}

void logit_edits_close(struct logit_edits *edits) {
    free(edits->list);
    free(edits->counts);
    free(edits->places);
    free(edits->history);
    free(edits->barred);
    *edits = (struct logit_edits){0};
}

void logit_edits_note(struct logit_edits *edits, int32_t token) {
    const struct sequence_changes *changes = edits->changes;
    if (edits->places == NULL) return;
    edits->n_written++;
    if (edits->n_written == edits->end->min_tokens) let_ends(edits);
    if (edits->history) {
        edits->history[edits->n_history] = token;
        edits->n_history++;
        lift_bars(edits);
        bar_repeats(edits);
    }
    if (!penalises(changes)) return;
    int place = edit_place(edits, token);
    edits->counts[place]++;
    edits->list[place].penalty =
        changes->presence + changes->frequency * (float)edits->counts[place];
    edits->list[place].repetition = changes->repetition;
}
