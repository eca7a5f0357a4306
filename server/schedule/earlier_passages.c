/* server/schedule/earlier_passages.c: see earlier_passages.h. */
#include "server/schedule/earlier_passages.h"

#include <stdlib.h>
#include <string.h>

static const struct sequence_conversation *conversation_of(const struct engine_sequence *sequence) {
    return &sequence->sequence->asked.place.conversation;
}

/* Recalling. */

void engine_recall(struct engine_sequence *sequence) {
    const struct sequence_conversation *conversation = conversation_of(sequence);
    const struct sequence_request *asked = &sequence->sequence->asked;
    struct sequence_answer *answer = &sequence->sequence->answer;
    size_t n = 0;
    if (conversation->conversations == NULL) return;
    for (int i = 0; i < conversation->n; i++) n += (size_t)conversation->turns[i].turn->n;
    answer->recalled = xcalloc(n + 1, sizeof *answer->recalled);
    for (int i = 0; i < conversation->n; i++) {
        const struct read_turn *turn = conversation->turns[i].turn;
        for (int j = 0; j < turn->n; j++) {
            const struct read_passage *passage = &turn->passages[j];
            answer->recalled[answer->n_recalled] = (struct recalled){
                .document = passage->document,
                .version = passage->version,
                .start = passage->start,
                .end = passage->end,
                .hit = {.number = passage->number, .similarity = passage->similarity}};
            answer->n_recalled++;
        }
    }
    sequence->lookup.recall = (struct recall){.list = answer->recalled,
                                              .n = answer->n_recalled,
                                              .filter = sequence->lookup.filter,
                                              .excluded = asked->excluded,
                                              .n_excluded = asked->n_excluded};
}

/* Choosing. */

/* The passage with a number among list [n], whose numbers rise; NULL: it is not there. */
static const struct hit *find_number(const struct hit *list, int n, int number) {
    int low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (list[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && list[low].number == number ? &list[low] : NULL;
}

/* Adds the turn's passages that may be shown. Numbers rise: a turn that was answered anew may have
 * given one that a later turn has too. */
static void list_turn(const struct read_turn *turn, const struct recalled *recalled,
                      struct earlier_passages *out) {
    for (int i = 0; i < turn->n; i++) {
        int before = out->n > 0 ? out->list[out->n - 1].number : 0;
        if (recalled[i].pinned == NULL || recalled[i].hit.number <= before) continue;
        out->list[out->n] = recalled[i].hit;
        out->n++;
    }
}

/* The text of one turn: the latest of the listed passages, from `first` on, are its own. */
static enum status show_turn(const struct engine_options *options, const struct read_turn *turn,
                             const struct earlier_passages *earlier, int first,
                             struct passages *out, struct error *e) {
    int n = earlier->n - first, n_again = 0;
    struct hit *list = xcalloc((size_t)(n + turn->n_again) + 1, sizeof *list);
    for (int i = 0; i < n; i++) list[i] = earlier->list[first + i];
    for (int i = 0; i < turn->n_again; i++) {
        const struct hit *again = find_number(earlier->list, first, turn->again[i]);
        if (again == NULL) continue;
        list[n + n_again] = *again;
        n_again++;
    }
    enum status status = passages_show(&options->passages, options->tokenizer,
                                       &(struct shown_passages){list, n, n_again}, out, e);
    free(list);
    return status;
}

/* The texts of the turns from `begin` on. */
static enum status show_turns(const struct engine_sequence *sequence, int begin,
                              struct earlier_passages *out, struct error *e) {
    const struct sequence_conversation *conversation = conversation_of(sequence);
    const struct recalled *recalled = sequence->sequence->answer.recalled;
    enum status status = STATUS_OK;
    out->n = out->n_tokens = 0;
    for (int i = 0; i < conversation->n && status == STATUS_OK; i++) {
        const struct earlier_turn *turn = &conversation->turns[i];
        int first = out->n;
        if (i >= begin && turn->stands) {
            list_turn(turn->turn, recalled, out);
            status = show_turn(&sequence->engine->o, turn->turn, out, first, &out->turns[i], e);
            out->n_tokens += out->turns[i].ids.n;
        } else {
            passages_free(&out->turns[i]);
        }
        recalled += turn->turn->n;
    }
    out->oldest = begin < conversation->n ? conversation->turns[begin].said : conversation->said;
    return status;
}

/* The first turn that keeps its passages, where all take so many tokens at most. */
static int choose_begin(const struct earlier_passages *earlier, int most) {
    int begin = 0, tokens = earlier->n_tokens;
    if (tokens <= most) return 0;
    while (begin < earlier->n_turns && tokens > most / 2) {
        tokens -= earlier->turns[begin].ids.n;
        begin++;
    }
    return begin;
}

enum status earlier_choose(const struct engine_sequence *sequence, int room,
                           struct earlier_passages *out, struct error *e) {
    const struct sequence_conversation *conversation = conversation_of(sequence);
    const struct passage_options *options = &sequence->engine->o.passages;
    int most = min_int(options->max_earlier, max_int(0, room - options->max_tokens));
    if (conversation->conversations == NULL) return STATUS_OK;
    out->n_turns = conversation->n;
    out->turns = xcalloc((size_t)out->n_turns + 1, sizeof *out->turns);
    out->list = xcalloc((size_t)sequence->sequence->answer.n_recalled + 1, sizeof *out->list);
    for (int i = 0; i < conversation->n; i++)
        out->last_number = max_int(out->last_number, conversation->turns[i].turn->last_number);
    enum status status = show_turns(sequence, 0, out, e);
    int begin = status ? 0 : choose_begin(out, most);
    return begin > 0 ? show_turns(sequence, begin, out, e) : status;
}

void earlier_close(struct earlier_passages *earlier) {
    for (int i = 0; i < earlier->n_turns; i++) passages_free(&earlier->turns[i]);
    free(earlier->turns);
    free(earlier->list);
}

void earlier_drop(const struct engine_sequence *sequence, struct earlier_passages *earlier) {
    for (int i = 0; i < earlier->n_turns; i++) passages_free(&earlier->turns[i]);
    earlier->n = earlier->n_tokens = 0;
    earlier->oldest = conversation_of(sequence)->said;
}

static struct placed_text place_text(const struct passages *passages) {
    return (struct placed_text){{passages->text.data, passages->text.size}, passages->foreign.data};
}

enum status earlier_place(const struct earlier_passages *earlier,
                          const struct sequence_place *place, const struct passages *own,
                          struct tokens *ids, struct error *e) {
    int n = place->conversation.n;
    struct placed_text *placed = xcalloc((size_t)n + 1, sizeof *placed);
    for (int i = 0; i < n; i++) placed[i] = place_text(&earlier->turns[i]);
    if (own) placed[n] = place_text(own);
    enum status status = place->compose(place->context, placed, ids, e);
    free(placed);
    return status;
}

/* Keeping. */

static struct read_turn *make_turn(const struct sequence_conversation *conversation,
                                   const struct earlier_passages *earlier,
                                   const struct hits *hits) {
    struct read_turn *turn = read_turn_open(conversation->key);
    int own = hits->n - hits->n_again;
    turn->oldest = earlier->oldest;
    turn->last_number = own > 0 ? hits->list[own - 1].number : earlier->last_number;
    turn->passages = xcalloc((size_t)own + 1, sizeof *turn->passages);
    turn->again = xcalloc((size_t)hits->n_again + 1, sizeof *turn->again);
    for (int i = 0; i < own; i++) {
        const struct hit *hit = &hits->list[i];
        if (hit->version == 0) continue;
        turn->passages[turn->n] = (struct read_passage){.document = xstrdup(hit->document),
                                                        .version = hit->version,
                                                        .start = hit->start,
                                                        .end = hit->end,
                                                        .number = hit->number,
                                                        .similarity = hit->similarity};
        turn->n++;
    }
    for (int i = 0; i < hits->n_again; i++) turn->again[i] = hits->list[own + i].number;
    turn->n_again = hits->n_again;
    return turn;
}

static void count_turn(struct engine_sequence *sequence, const struct earlier_passages *earlier,
                       const struct hits *hits) {
    const struct sequence_answer *answer = &sequence->sequence->answer;
    struct engine_metrics *metrics = &sequence->engine->metrics;
    for (int i = 0; i < answer->n_recalled; i++)
        metrics->passages_gone += answer->recalled[i].pinned == NULL;
    metrics->passages_kept += earlier->n;
    metrics->passages_again += hits->n_again;
}

void engine_keep_turn(struct engine_sequence *sequence, const struct earlier_passages *earlier,
                      const struct hits *hits) {
    const struct sequence_conversation *conversation = conversation_of(sequence);
    struct sequence_answer *answer = &sequence->sequence->answer;
    size_t bytes = (size_t)earlier->n * sizeof *earlier->list;
    if (conversation->conversations == NULL) return;
    if (earlier->n > 0) answer->earlier = memcpy(xmalloc(bytes), earlier->list, bytes);
    answer->n_earlier = earlier->n;
    if (sequence->sequence->asked.forced) return;
    count_turn(sequence, earlier, hits);
    if (hits->n > 0)
        conversations_put(conversation->conversations, make_turn(conversation, earlier, hits));
}
