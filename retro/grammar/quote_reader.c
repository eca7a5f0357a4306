/* retro/grammar/quote_reader.c: see quote_reader.h. */
#include "retro/grammar/quote_reader.h"

#include <stdlib.h>
#include <string.h>

/* Fewer places are sorted by insertion. */
enum { FEW_PLACES = 24 };

/* Threads. */

static void threads_clear(struct quote_threads *threads) {
    threads->n = 0;
    threads->n_places = 0;
}

static void threads_free(struct quote_threads *threads) {
    free(threads->places);
    *threads = (struct quote_threads){0};
}

static void add_thread(struct quote_reader *reader, struct quote_threads *to,
                       struct quote_thread thread) {
    if (to->n == QUOTE_MOST_THREADS) {
        reader->ambiguous = true;
        return;
    }
    to->list[to->n] = thread;
    to->n++;
}

static void add_place(struct quote_threads *to, struct quote_place place) {
    if (to->n_places == to->capacity) {
        to->capacity = to->capacity ? 2 * to->capacity : 64;
        to->places = xrealloc(to->places, to->capacity * sizeof *to->places);
    }
    to->places[to->n_places] = place;
    to->n_places++;
}

/* Of two ways to one configuration the first is kept: what follows is the same. */
static void add_outside(struct quote_reader *reader, struct quote_threads *to, int config,
                        int record) {
    if (config == CONFIG_DEAD) return;
    for (int i = 0; i < to->n; i++)
        if (to->list[i].writing < 0 && to->list[i].config == config) return;
    add_thread(reader, to,
               (struct quote_thread){.config = config, .writing = -1, .record = record});
}

static int config_next(const struct quote_reader *reader, int config, int symbol) {
    struct automaton *automaton = &reader->masks->automaton;
    return automaton_next(automaton, config, automaton->program->class_of[symbol]);
}

/* Whether a quote in this writing may begin at the configuration. */
static bool may_begin(const struct quote_reader *reader, int config, int writing) {
    return reader->source.texts[writing].n_starts > 0 &&
           config_next(reader, config, GRAMMAR_QUOTES + writing) != CONFIG_DEAD;
}

/* Places. */

static const struct quote_text *text_of(const struct quote_reader *reader,
                                        const struct quote_thread *thread) {
    return &reader->source.texts[thread->writing];
}

/* The byte that a quote goes on with; behind all bytes: none. */
static int next_byte(const struct quote_text *text, struct quote_place place) {
    return text->marks[place.at] & PLACE_STOPS ? 256 : (unsigned char)text->text[place.at];
}

static void sort_few(const struct quote_text *text, struct quote_place *places, size_t n) {
    for (size_t i = 1; i < n; i++) {
        struct quote_place moved = places[i];
        int byte = next_byte(text, moved);
        size_t at = i;
        for (; at > 0 && next_byte(text, places[at - 1]) > byte; at--) places[at] = places[at - 1];
        places[at] = moved;
    }
}

static void sort_many(struct quote_reader *reader, const struct quote_text *text,
                      struct quote_place *places, size_t n) {
    size_t ends[258] = {0};
    if (n > reader->n_spare) {
        reader->spare = xrealloc(reader->spare, n * sizeof *reader->spare);
        reader->n_spare = n;
    }
    for (size_t i = 0; i < n; i++) ends[next_byte(text, places[i]) + 1]++;
    for (int b = 0; b < 257; b++) ends[b + 1] += ends[b];
    for (size_t i = 0; i < n; i++) {
        size_t *end = &ends[next_byte(text, places[i])];
        reader->spare[*end] = places[i];
        ++*end;
    }
    memcpy(places, reader->spare, n * sizeof *places);
}

static void sort_threads(struct quote_reader *reader, struct quote_threads *threads) {
    for (int i = 0; i < threads->n; i++) {
        struct quote_thread *thread = &threads->list[i];
        if (thread->writing < 0 || thread->begins || thread->sorted) continue;
        struct quote_place *places = threads->places + thread->first;
        if (thread->n > FEW_PLACES)
            sort_many(reader, text_of(reader, thread), places, thread->n);
        else
            sort_few(text_of(reader, thread), places, thread->n);
        thread->sorted = true;
    }
}

/* The first of sorted places whose next byte is not before this one. */
static size_t lower_bound(const struct quote_text *text, const struct quote_place *places, size_t n,
                          int byte) {
    size_t low = 0;
    while (n > 0) {
        size_t half = n / 2;
        if (next_byte(text, places[low + half]) < byte) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return low;
}

/* The places from which the quote goes on with the byte, among others perhaps. */
static const struct quote_place *list_places(const struct quote_reader *reader,
                                             const struct quote_threads *from,
                                             const struct quote_thread *thread, int byte,
                                             size_t *n) {
    const struct quote_text *text = text_of(reader, thread);
    if (thread->begins) {
        *n = (size_t)(text->first[byte + 1] - text->first[byte]);
        return text->starts + text->first[byte];
    }
    const struct quote_place *places = from->places + thread->first;
    *n = thread->n;
    if (!thread->sorted) return places;
    size_t first = lower_bound(text, places, thread->n, byte);
    *n = lower_bound(text, places + first, thread->n - first, byte + 1);
    return places + first;
}

/* Steps. */

static int add_record(struct quote_reader *reader, const struct quote_thread *thread,
                      uint32_t end) {
    if (!reader->keeps_records) return -1;
    reader->records = xgrow(reader->records, reader->n_records, &reader->records_capacity,
                            sizeof *reader->records);
    size_t size = reader->at - thread->opened;
    reader->records[reader->n_records] = (struct quote_record){.before = thread->record,
                                                               .writing = thread->writing,
                                                               .from = end - (uint32_t)size,
                                                               .to = end,
                                                               .start = thread->opened,
                                                               .end = reader->at};
    reader->n_records++;
    return reader->n_records - 1;
}

/* A quote goes on with the byte; where it may end, a thread behind it begins too. The first place
 * in the order of the passages is told. */
static void step_inside(struct quote_reader *reader, const struct quote_threads *from,
                        const struct quote_thread *thread, int byte, struct quote_threads *to) {
    const struct quote_text *text = text_of(reader, thread);
    struct quote_thread went = *thread;
    uint32_t end = UINT32_MAX;
    size_t n;
    const struct quote_place *places = list_places(reader, from, thread, byte, &n);
    went.begins = went.sorted = false;
    went.first = to->n_places;
    for (size_t i = 0; i < n; i++) {
        struct quote_place place = places[i];
        if (next_byte(text, place) != byte) continue;
        place.at++;
        add_place(to, place);
        bool ends = text->marks[place.at] & PLACE_ENDS && place.at >= place.least;
        if (ends && place.at < end) end = place.at;
    }
    went.n = to->n_places - went.first;
    if (went.n == 0) return;
    add_thread(reader, to, went);
    if (end == UINT32_MAX) return;
    int behind = config_next(reader, thread->config, GRAMMAR_QUOTES + thread->writing);
    add_outside(reader, to, behind, add_record(reader, thread, end));
}

/* A quote begins behind the configuration, with this byte. */
static void step_opening(struct quote_reader *reader, const struct quote_thread *outside, int byte,
                         struct quote_threads *to) {
    for (int writing = 0; writing < QUOTE_WRITINGS; writing++) {
        const struct quote_text *text = &reader->source.texts[writing];
        if (text->first[byte + 1] == text->first[byte]) continue;
        if (!may_begin(reader, outside->config, writing)) continue;
        struct quote_thread thread = *outside;
        thread.writing = writing;
        thread.begins = true;
        thread.opened = reader->at - 1;
        step_inside(reader, to, &thread, byte, to);
    }
}

/* Threads within quotes go first, so that of two readings that come to one place the one with the
 * longer quote is kept. */
static void step(struct quote_reader *reader, const struct quote_threads *from, int symbol,
                 struct quote_threads *to) {
    threads_clear(to);
    for (int i = 0; i < from->n && symbol < GRAMMAR_BYTES; i++)
        if (from->list[i].writing >= 0) step_inside(reader, from, &from->list[i], symbol, to);
    for (int i = 0; i < from->n; i++) {
        const struct quote_thread *thread = &from->list[i];
        if (thread->writing >= 0) continue;
        add_outside(reader, to, config_next(reader, thread->config, symbol), thread->record);
        if (symbol < GRAMMAR_BYTES) step_opening(reader, thread, symbol, to);
    }
}

/* Tokens. */

static struct quote_threads *find_level(struct quote_reader *reader, int depth) {
    while (reader->n_levels <= depth) {
        reader->levels = xrealloc(reader->levels,
                                  ((size_t)reader->n_levels + 1) * sizeof(struct quote_threads *));
        reader->levels[reader->n_levels] = xcalloc(1, sizeof(struct quote_threads));
        reader->n_levels++;
    }
    return reader->levels[depth];
}

/* Sets the tokens below `node` with which the threads of level 0 go on. */
static void walk(struct quote_reader *reader, int node, uint32_t *bits) {
    const struct vocab *vocab = reader->masks->vocab;
    int top = vocab->nodes[node].depth, end = vocab->nodes[node].end, sorted = -1;
    for (int i = node + 1; i < end && !reader->ambiguous;) {
        const struct vocab_node *below = &vocab->nodes[i];
        int depth = below->depth - top;
        struct quote_threads *from = find_level(reader, depth - 1), *to = find_level(reader, depth);
        if (below->up != sorted) sort_threads(reader, from);
        sorted = below->up;
        step(reader, from, below->symbol, to);
        if (to->n == 0) {
            i = below->end;
            continue;
        }
        for (int t = below->first_token; t < below[1].first_token; t++)
            masks_set_bit(bits, vocab->tokens[t]);
        i++;
    }
}

/* The tokens within which, or behind which, a quote begins that follows the configuration. */
static void walk_openings(struct quote_reader *reader, int config, uint32_t *bits) {
    const struct quote_exits *exits = masks_quote_exits(reader->masks, config);
    for (int i = 0; exits && i < exits->n && !reader->ambiguous; i++) {
        struct quote_threads *begun = find_level(reader, 0);
        threads_clear(begun);
        for (int writing = 0; writing < QUOTE_WRITINGS; writing++)
            if (may_begin(reader, exits->list[i].config, writing))
                add_thread(reader, begun,
                           (struct quote_thread){.config = exits->list[i].config,
                                                 .writing = writing,
                                                 .begins = true,
                                                 .record = -1});
        if (begun->n > 0) walk(reader, exits->list[i].node, bits);
    }
}

static struct quote_slot *find_slot(struct quote_reader *reader, int config) {
    size_t words = (size_t)reader->masks->words;
    for (int i = 0; i < QUOTE_SLOTS; i++)
        if (reader->slots[i].config == config) return &reader->slots[i];
    struct quote_slot *slot = &reader->slots[reader->next_slot];
    reader->next_slot = (reader->next_slot + 1) % QUOTE_SLOTS;
    if (slot->bits == NULL) slot->bits = xmalloc((words + 1) * sizeof *slot->bits);
    memset(slot->bits, 0, words * sizeof *slot->bits);
    slot->config = config;
    walk_openings(reader, config, slot->bits);
    return slot;
}

static bool add_outside_mask(struct quote_reader *reader, int config, uint32_t *bits, bool *any) {
    struct masks *masks = reader->masks;
    bool outside;
    const uint32_t *allowed = masks_find(masks, config, &outside);
    if (allowed == NULL) return false;
    for (int i = 0; i < masks->words; i++) bits[i] |= allowed[i];
    const uint32_t *opening = find_slot(reader, automaton_near(&masks->automaton, config))->bits;
    for (int i = 0; i < masks->words; i++) bits[i] |= opening[i];
    for (int i = 0; i < masks->words && !*any; i++) *any = bits[i] != 0;
    return true;
}

/* The tokens with which quotes go on. */
static void add_inside_mask(struct quote_reader *reader, uint32_t *bits, bool *any) {
    struct quote_threads *inside = find_level(reader, 0);
    threads_clear(inside);
    for (int i = 0; i < reader->now.n; i++) {
        struct quote_thread thread = reader->now.list[i];
        if (thread.writing < 0) continue;
        size_t first = thread.first;
        thread.first = inside->n_places;
        for (size_t j = 0; j < thread.n; j++) add_place(inside, reader->now.places[first + j]);
        add_thread(reader, inside, thread);
    }
    if (inside->n == 0) return;
    walk(reader, 0, bits);
    for (int i = 0; i < reader->masks->words && !*any; i++) *any = bits[i] != 0;
}

bool quote_reader_mask(struct quote_reader *reader, uint32_t *bits, bool *any, bool *may_end) {
    const struct automaton *automaton = &reader->masks->automaton;
    quote_source_index(&reader->source);
    *any = *may_end = false;
    memset(bits, 0, (size_t)reader->masks->words * sizeof *bits);
    reader->keeps_records = false;
    for (int i = 0; i < reader->now.n; i++) {
        const struct quote_thread *thread = &reader->now.list[i];
        if (thread->writing >= 0) continue;
        *may_end = *may_end || automaton->configs[thread->config].finishes;
        if (!add_outside_mask(reader, thread->config, bits, any)) return false;
    }
    add_inside_mask(reader, bits, any);
    return !automaton->full && !reader->ambiguous;
}

/* A mark is a text in the answer. */
static size_t symbol_size(int symbol) {
    return symbol < GRAMMAR_BYTES
               ? 1
               : strlen(grammar_mark_text((enum grammar_mark)(symbol - GRAMMAR_BYTES)));
}

void quote_reader_read(struct quote_reader *reader, int32_t token) {
    const struct vocab *vocab = reader->masks->vocab;
    int path[UINT8_MAX + 2], n = 0, node = token < vocab->n_ids ? vocab->node_of[token] : -1;
    quote_source_index(&reader->source);
    reader->keeps_records = true;
    if (node < 0) threads_clear(&reader->now);
    for (; node > 0; node = vocab->nodes[node].up) {
        path[n] = vocab->nodes[node].symbol;
        n++;
    }
    while (n > 0) {
        n--;
        reader->at += symbol_size(path[n]);
        step(reader, &reader->now, path[n], &reader->next);
        struct quote_threads read = reader->now;
        reader->now = reader->next;
        reader->next = read;
    }
}

int quote_reader_latest(const struct quote_reader *reader) {
    const struct quote_thread *told = NULL;
    for (int i = 0; i < reader->now.n; i++) {
        const struct quote_thread *thread = &reader->now.list[i];
        bool finishes =
            thread->writing < 0 && reader->masks->automaton.configs[thread->config].finishes;
        if (finishes) return thread->record;
        if (told == NULL || (told->writing >= 0 && thread->writing < 0)) told = thread;
    }
    return told ? told->record : -1;
}

/* Opening and closing. */

void quote_reader_open(struct quote_reader *reader, struct masks *masks,
                       struct quote_source *source) {
    *reader = (struct quote_reader){.masks = masks, .source = *source};
    *source = (struct quote_source){0};
    quote_reader_renew(reader);
}

void quote_reader_close(struct quote_reader *reader) {
    for (int i = 0; i < reader->n_levels; i++) {
        threads_free(reader->levels[i]);
        free(reader->levels[i]);
    }
    for (int i = 0; i < QUOTE_SLOTS; i++) free(reader->slots[i].bits);
    free((void *)(uintptr_t)reader->levels);
    threads_free(&reader->now);
    threads_free(&reader->next);
    free(reader->records);
    free(reader->spare);
    quote_source_close(&reader->source);
    *reader = (struct quote_reader){0};
}

void quote_reader_renew(struct quote_reader *reader) {
    for (int i = 0; i < QUOTE_SLOTS; i++) reader->slots[i].config = -1;
}

void quote_reader_start(struct quote_reader *reader) {
    quote_reader_renew(reader);
    threads_clear(&reader->now);
    reader->at = 0;
    reader->n_records = 0;
    reader->ambiguous = false;
    add_outside(reader, &reader->now, automaton_start(&reader->masks->automaton), -1);
}
