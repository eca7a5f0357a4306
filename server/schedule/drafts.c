/* server/schedule/drafts.c: see drafts.h. */
#include "server/schedule/drafts.h"

#include <stdlib.h>

#include "server/schedule/engine_private.h"
#include "server/schedule/told_attention.h"

/* Matches so long or longer are of the class. */
static const int class_lengths[DRAFT_CLASSES] = {2, 3, 5, 9, 17};
/* How often they go on before anything was seen, and as how many tokens seen that counts. */
static const double class_odds[DRAFT_CLASSES] = {0.1, 0.25, 0.5, 0.75, 0.9};
static const double PRIOR_WEIGHT = 8;
/* All sequences together count as so many tokens of one sequence. */
static const double SHARED_WEIGHT = 4;
/* Counts are halved when they come to this: what was right long ago counts less. */
static const double MOST_COUNTED = 64;

void draft_part_close(struct draft_part *part) { draft_table_close(&part->table); }

/* Odds. */

static int class_of(int length) {
    int class = 0;
    while (class + 1 < DRAFT_CLASSES && class_lengths[class + 1] <= length) class += 1;
    return class;
}

static void note_odds(struct draft_odds *odds, int class, bool right) {
    if (odds->all[class] >= MOST_COUNTED) {
        odds->all[class] /= 2;
        odds->right[class] /= 2;
    }
    odds->all[class] += 1;
    odds->right[class] += right;
}

/* Of a match of this length to go on: the sequence's own counts, on top of those of all. */
static double odds_of(const struct engine_sequence *sequence, int length) {
    const struct draft_odds *own = &sequence->drafts.odds, *shared = &sequence->engine->drafts.odds;
    int class = class_of(length);
    double expected = (shared->right[class] + PRIOR_WEIGHT * class_odds[class]) /
                      (shared->all[class] + PRIOR_WEIGHT);
    return (own->right[class] + SHARED_WEIGHT * expected) / (own->all[class] + SHARED_WEIGHT);
}

/* The table. */

/* The prompt as it is read now, and what may be repeated beside it. The text that is expected is
 * the answer from its first token on, until another was drawn. */
static void open_table(struct engine_sequence *sequence) {
    const struct sequence_request *asked = &sequence->sequence->asked;
    struct draft_part *part = &sequence->drafts;
    draft_table_close(&part->table);
    part->rows = sequence->rows;
    part->n_reread = sequence->n_reread;
    part->n_neighbors = 0;
    if (sequence->n_source > 0)
        draft_table_add(&part->table, DRAFT_PROMPT, sequence->source, sequence->n_source);
    if (asked->n_predicted > 0)
        draft_table_add(&part->table, DRAFT_PREDICTED, asked->predicted, asked->n_predicted);
    int n_read = sequence->n_rows - sequence->n_reread;
    for (int i = 0; i < n_read; i++)
        draft_table_write(&part->table, DRAFT_PROMPT, sequence->rows[i]);
    part->n_ids = 0;
    part->match = (struct draft_match){0, 0};
    if (asked->n_predicted > 0)
        part->match =
            (struct draft_match){draft_table_begin(&part->table, DRAFT_PREDICTED), DRAFT_RECENT};
}

static void note_match(struct engine_sequence *sequence, int32_t token) {
    struct draft_part *part = &sequence->drafts;
    int32_t next = draft_table_next(&part->table, part->match);
    if (next < 0) return;
    bool right = next == token;
    bool expected = draft_table_kind(&part->table, part->match.place) == DRAFT_PREDICTED;
    int class = class_of(part->match.length);
    note_odds(&part->odds, class, right);
    note_odds(&sequence->engine->drafts.odds, class, right);
    part->told.guessed++;
    part->told.right += right;
    part->told.expected += expected;
    part->told.expected_rightly += expected && right;
}

/* A token of the answer goes into the table; the match goes on with it, or is sought anew. */
static void follow_token(struct engine_sequence *sequence, int32_t token) {
    struct draft_part *part = &sequence->drafts;
    bool goes_on = draft_table_next(&part->table, part->match) == token;
    note_match(sequence, token);
    draft_table_write(&part->table, DRAFT_ANSWER, token);
    part->n_ids++;
    part->match = goes_on ? draft_match_step(part->match) : (struct draft_match){0, 0};
    if (draft_table_next(&part->table, part->match) < 0)
        part->match = draft_table_match(&part->table);
}

/* True when some were new. */
static bool add_neighbors(struct engine_sequence *sequence) {
    struct draft_part *part = &sequence->drafts;
    const struct lookup_part *lookup = &sequence->lookup;
    int r = sequence->engine->info.retrieved_length;
    int first = part->n_neighbors;
    for (int j = first; j < lookup->n_neighbors; j++) {
        const struct neighbor_tokens *found = &lookup->neighbors[j];
        for (int i = 0; i < found->k; i++)
            draft_table_add(&part->table, DRAFT_NEIGHBORS, found->ids + (size_t)i * (size_t)r, r);
    }
    part->n_neighbors = lookup->n_neighbors;
    return part->n_neighbors > first;
}

/* Everything that was read and written so far is in the table. Called for each token, so that it is
 * the same table however tokens come to steps. */
static void update_table(struct engine_sequence *sequence) {
    struct draft_part *part = &sequence->drafts;
    const int32_t *ids = sequence->sequence->answer.ids;
    if (part->rows != sequence->rows || part->n_reread != sequence->n_reread) open_table(sequence);
    if (add_neighbors(sequence) && draft_table_next(&part->table, part->match) < 0)
        part->match = draft_table_match(&part->table);
    while (part->n_ids < sequence->n_ids) follow_token(sequence, ids[part->n_ids]);
}

/* Planning. */

/* Guesses that the sequence may have in this step: behind them nothing is looked up, and no row is
 * beyond its last. */
static int most_drafts(const struct engine_sequence *sequence) {
    const struct sequence_request *asked = &sequence->sequence->asked;
    const struct sequence_answer *answer = &sequence->sequence->answer;
    const struct session *session = sequence->session;
    int most = min_int(DRAFT_ROWS, asked->max_tokens - sequence->n_ids - 1);
    int every = asked->passages.search ? asked->choice.every : 0;
    int closes = session_closes(session, 1), length = session_length(session), n = 0;
    if (every > 0) most = min_int(most, every - 1 - sequence->n_ids % every);
    while (n < most && session_closes(session, n + 2) == closes &&
           !(answer->n_chunks > 0 && grid_closes(answer->grid, length + n + 1)))
        n++;
    return n;
}

/* One sequence's guesses. */
struct draft {
    int item, n;
    double odds[DRAFT_ROWS]; /* that the guess and all before it are right */
};

/* The next tokens as the match foretells them, `most` at most, and the odds that each and all
 * before it are right. Returns how many there are. */
static int foretell(const struct engine_sequence *sequence, int most, int32_t *tokens,
                    double *odds) {
    const struct draft_table *table = &sequence->drafts.table;
    struct draft_match match = sequence->drafts.match;
    double all_right = 1;
    int n = 0;
    while (n < most && draft_table_next(table, match) >= 0) {
        all_right *= odds_of(sequence, match.length);
        tokens[n] = draft_table_next(table, match);
        odds[n] = all_right;
        n++;
        match = draft_match_step(match);
    }
    return n;
}

/* Odds from which on the neighbours of a foretold chunk are looked for: a search that is not needed
 * takes its time from others. */
static const double AHEAD_ODDS = 0.7;

/* The chunk that is being written may be foretold to its end. */
static void look_ahead(struct engine_sequence *sequence) {
    int32_t rest[DRAFT_ROWS];
    double odds[DRAFT_ROWS];
    int missing = engine_ahead_missing(sequence);
    bool always = sequence->engine->o.drafts == DRAFTS_ALWAYS;
    if (missing == 0 || missing > DRAFT_ROWS) return;
    if (foretell(sequence, missing, rest, odds) < missing) return;
    if (always || odds[missing - 1] >= AHEAD_ODDS) engine_look_ahead(sequence, rest, missing);
}

static void add_drafts(struct engine *engine, int item_index, int n) {
    struct engine_sequence *sequence = engine->step.sequences[item_index];
    struct step_item *item = &engine->step.items[item_index];
    struct draft_part *part = &sequence->drafts;
    part->tokens[0] = item->tokens[0];
    part->n = n;
    part->taken = 0;
    part->place = part->match.place;
    item->tokens = part->tokens;
    item->n_tokens += n;
    item->n_logits += n;
    item->n_drafts = n;
    told_attention_plan(sequence, item);
    for (int i = 0; i < n; i++) {
        enum draft_kind kind = draft_table_kind(&part->table, part->place + i);
        engine->metrics.drafts.drafted[kind]++;
    }
}

/* The likeliest guess of all that are next; -1: there is none. */
static int find_likeliest(const struct draft *drafts, const int *taken, int n) {
    int best = -1;
    for (int i = 0; i < n; i++) {
        if (taken[i] == drafts[i].n) continue;
        if (best < 0 || drafts[i].odds[taken[i]] > drafts[best].odds[taken[best]]) best = i;
    }
    return best;
}

/* All guesses in the order of their odds: order[i] is whose the i-th one is. Returns how many. */
static int order_drafts(const struct draft *drafts, int n, int *order, double *odds) {
    int *taken = xcalloc((size_t)n + 1, sizeof *taken), all = 0, best;
    while (all < DRAFT_STEP_ROWS) {
        best = find_likeliest(drafts, taken, n);
        if (best < 0) break;
        order[all] = best;
        odds[all] = drafts[best].odds[taken[best]];
        taken[best]++;
        all++;
    }
    free(taken);
    return all;
}

/* The items that write answers; *rows are those of all. */
static int list_drafts(struct engine *engine, struct draft *drafts, int *writing, int *rows) {
    const struct engine_step *step = &engine->step;
    int n = 0;
    for (int i = 0; i < step->n; i++) {
        struct engine_sequence *sequence = step->sequences[i];
        *rows += step->items[i].n_tokens;
        if (session_length(sequence->session) < sequence->n_rows) continue;
        (*writing)++;
        update_table(sequence);
        drafts[n].item = i;
        look_ahead(sequence);
        drafts[n].n =
            foretell(sequence, most_drafts(sequence), sequence->drafts.tokens + 1, drafts[n].odds);
        n += drafts[n].n > 0;
    }
    return n;
}

void drafts_plan(struct engine *engine) {
    if (engine->o.drafts == DRAFTS_OFF || engine->step.n == 0) return;
    struct draft *drafts = xcalloc((size_t)engine->step.n, sizeof *drafts);
    int order[DRAFT_STEP_ROWS], writing = 0, rows = 0;
    double odds[DRAFT_STEP_ROWS];
    int n = list_drafts(engine, drafts, &writing, &rows);
    int all = order_drafts(drafts, n, order, odds);
    int chosen = all;
    if (engine->o.drafts == DRAFTS_ON)
        chosen = row_costs_choose(&engine->drafts.costs, rows, writing, odds, all);

    for (int i = 0; i < n; i++) {
        int own = 0;
        for (int j = 0; j < chosen; j++) own += order[j] == i;
        if (own > 0) add_drafts(engine, drafts[i].item, own);
    }
    free(drafts);
}

void drafts_note_step(struct engine *engine, int rows, double seconds) {
    if (engine->o.drafts == DRAFTS_ON) row_costs_note(&engine->drafts.costs, rows, seconds);
}

/* Taking. */

bool drafts_take(struct engine_sequence *sequence, int32_t token) {
    struct draft_part *part = &sequence->drafts;
    if (sequence->engine->o.drafts != DRAFTS_OFF) update_table(sequence);
    if (part->taken == part->n || part->tokens[1 + part->taken] != token) return false;
    enum draft_kind kind = draft_table_kind(&part->table, part->place + part->taken);
    sequence->engine->metrics.drafts.accepted[kind]++;
    part->taken++;
    return true;
}

void drafts_settle(struct engine_sequence *sequence) {
    struct draft_part *part = &sequence->drafts;
    if (part->n == 0) return;
    session_settle(sequence->session, part->tokens + 1, part->taken);
    part->n = part->taken = 0;
}
