/* retro/grammar/automaton.c: what a symbol makes of states, frames and configurations. See automaton.h. */
#include "retro/grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

void automaton_open(struct automaton *m, const struct program *p, int reach, size_t most_bytes) {
    int most_members = 0;
    uint64_t none[(GRAMMAR_MAX_MEMBERS + 63) / 64] = {0};
    *m = (struct automaton){.program = p, .reach = reach, .most_bytes = most_bytes};
    for (int i = 0; i < p->n_objects; i++) most_members = max_int(most_members, p->objects[i].n);
    m->seen_words = max_int(1, (most_members + 63) / 64);
    automaton_intern_seen(m, none);
    m->rule_states = xmalloc((size_t)p->n_rules * sizeof *m->rule_states);
    for (int i = 0; i < p->n_rules; i++) m->rule_states[i] = -1;
    automaton_intern_state(m); /* 0: no place */
    /* 0: below every stack. It is found by no search: its state is never that of a frame. */
    automaton_intern_frame(m, 0, FRAME_BOTTOM);
    automaton_intern_config(m); /* CONFIG_DEAD */
}

void automaton_close(struct automaton *m) {
    for (int i = 0; i < m->n_states; i++) free(m->states[i].next);
    for (int i = 0; i < m->n_configs; i++) free(m->configs[i].next);
    free(m->states);
    free(m->frames);
    free(m->configs);
    free(m->places);
    free(m->calls);
    free(m->stacks);
    free(m->seen);
    automaton_table_free(&m->state_table);
    automaton_table_free(&m->frame_table);
    automaton_table_free(&m->config_table);
    automaton_table_free(&m->seen_table);
    free(m->rule_states);
    free(m->closure);
    free(m->gathered);
    *m = (struct automaton){0};
}

/* States. */

static int compare_places(const void *x, const void *y) {
    const struct automaton_place *a = x, *b = y;
    if (a->node != b->node) return a->node < b->node ? -1 : 1;
    return (a->value > b->value) - (a->value < b->value);
}

/* The state of the places in m->closure: those that read, call or accept; the others have done their work. */
static int take_state(struct automaton *m) {
    int n = 0;
    for (int i = 0; i < m->n_closure; i++) {
        enum node_kind kind = m->program->nodes[m->closure[i].node].kind;
        if (kind != NODE_SET && kind != NODE_CALL && kind != NODE_ACCEPT) continue;
        m->closure[n] = m->closure[i];
        n++;
    }
    if (n > 1) qsort(m->closure, (size_t)n, sizeof *m->closure, compare_places);
    m->n_closure = n;
    return automaton_intern_state(m);
}

static int state_of_rule(struct automaton *m, int rule) {
    if (m->rule_states[rule] >= 0) return m->rule_states[rule];
    m->n_closure = 0;
    automaton_close_over(m, (struct automaton_place){m->program->rules[rule].start, 0});
    m->rule_states[rule] = take_state(m);
    return m->rule_states[rule];
}

/* The state behind a symbol that is read within the rule; 0: there is none. */
static int state_next(struct automaton *m, int state, int class) {
    int known = m->states[state].next[class];
    if (known >= 0) return known;
    const struct program *p = m->program;
    m->n_closure = 0;
    for (int i = 0; i < m->states[state].n; i++) {
        struct automaton_place place = m->places[m->states[state].first + i];
        const struct program_node *node = &p->nodes[place.node];
        if (node->kind == NODE_SET && class_in(program_set(p, node->a), class))
            automaton_close_over(m, (struct automaton_place){node->b, place.value});
    }
    int next = take_state(m);
    m->states[state].next[class] = next;
    return next;
}

static int compare_calls(const void *x, const void *y) {
    const struct automaton_place *a = x, *b = y;
    return (a->node > b->node) - (a->node < b->node);
}

/* The calls of a state by rule, those of one rule with one state behind them. */
static void find_calls(struct automaton *m, int state) {
    const struct program *p = m->program;
    int n = m->states[state].n, first = m->n_calls;
    struct automaton_place *called = xcalloc((size_t)n + 1, sizeof *called); /* rule, and which place calls it */
    int n_called = 0;
    for (int i = 0; i < n; i++) {
        struct automaton_place place = m->places[m->states[state].first + i];
        if (p->nodes[place.node].kind != NODE_CALL) continue;
        called[n_called] = (struct automaton_place){p->nodes[place.node].a, m->states[state].first + i};
        n_called++;
    }
    if (n_called > 1) qsort(called, (size_t)n_called, sizeof *called, compare_calls);
    for (int i = 0; i < n_called;) {
        int rule = called[i].node;
        m->n_closure = 0;
        for (; i < n_called && called[i].node == rule; i++) {
            struct automaton_place place = m->places[called[i].value];
            automaton_close_over(m, (struct automaton_place){p->nodes[place.node].b, place.value});
        }
        int back = take_state(m);
        m->calls = xgrow(m->calls, m->n_calls, &m->calls_capacity, sizeof *m->calls);
        m->calls[m->n_calls] = (struct automaton_call){rule, back};
        m->n_calls++;
    }
    free(called);
    m->states[state].first_call = first;
    m->states[state].n_calls = m->n_calls - first;
    m->states[state].calls_known = true;
}

/* Stacks. */

static void gather(struct automaton *m, int frame) {
    if (m->n_gathered >= 4 * MEMO_MAX_STACKS) {
        m->ambiguous = m->full = true;
        return;
    }
    m->gathered = xgrow(m->gathered, m->n_gathered, &m->gathered_capacity, sizeof *m->gathered);
    m->gathered[m->n_gathered] = frame;
    m->n_gathered++;
}

/* Reads a symbol in the state, which stands on `below`, or in rules that it calls. Their chain is bounded
 * (program_first.c). */
static void read_symbol(struct automaton *m, int state, int below, int class) {
    int next = state_next(m, state, class);
    if (next > 0) gather(m, automaton_intern_frame(m, next, below));
    if (!m->states[state].calls_known) find_calls(m, state);
    for (int i = 0; i < m->states[state].n_calls && !m->full; i++) {
        struct automaton_call call = m->calls[m->states[state].first_call + i];
        if (!class_in(m->program->rules[call.rule].first, class)) continue;
        int back = automaton_intern_frame(m, call.back, below);
        read_symbol(m, state_of_rule(m, call.rule), back, class);
    }
}

/* Reads a symbol at the top of the stack, or below where the rules above may be over. */
static void step_stack(struct automaton *m, int frame, int class) {
    for (;;) {
        struct automaton_frame f = m->frames[frame];
        read_symbol(m, f.state, f.below, class);
        if (f.below == FRAME_BOTTOM || !m->states[f.state].accepts || m->full) return;
        frame = f.below;
    }
}

int automaton_compute(struct automaton *m, int config, int class) {
    m->n_gathered = 0;
    for (int i = 0; i < m->configs[config].n && !m->full; i++)
        step_stack(m, m->stacks[m->configs[config].first + i], class);
    if (m->full) return CONFIG_DEAD;
    int next = automaton_intern_config(m);
    if (m->configs[next].n > MEMO_MAX_STACKS) m->ambiguous = m->full = true;
    m->configs[config].next[class] = next;
    return next;
}

int automaton_config_of_frame(struct automaton *m, int frame) {
    m->n_gathered = 0;
    gather(m, frame);
    return automaton_intern_config(m);
}

int automaton_config_of_state(struct automaton *m, int state) {
    return automaton_config_of_frame(m, automaton_intern_frame(m, state, FRAME_BOTTOM));
}

int automaton_start(struct automaton *m) { return automaton_config_of_state(m, state_of_rule(m, 0)); }

/* Near configurations. */

/* A count with the same texts for `reach` symbols; each repetition reads one at least. */
static int near_count(const struct program_counter *counter, int count, int reach) {
    if (count + reach < counter->min) return 0;
    if (count >= counter->min && counter->max >= 0 && count + reach < counter->max) return counter->min;
    return count;
}

static int near_state(struct automaton *m, int state) {
    const struct program *p = m->program;
    if (m->states[state].near >= 0) return m->states[state].near;
    m->n_closure = 0;
    for (int i = 0; i < m->states[state].n; i++) {
        struct automaton_place place = m->places[m->states[state].first + i];
        int counter = p->nodes[place.node].counter;
        if (counter >= 0) place.value = near_count(&p->counters[counter], place.value, m->reach);
        m->closure = xgrow(m->closure, m->n_closure, &m->closure_capacity, sizeof *m->closure);
        m->closure[m->n_closure] = place;
        m->n_closure++;
    }
    int near = take_state(m);
    m->states[state].near = near;
    m->states[near].near = near;
    return near;
}

static int near_frame(struct automaton *m, int frame) {
    int known = frame, last = FRAME_BOTTOM;
    struct expr_list above = {0};
    while (known != FRAME_BOTTOM && m->frames[known].near < 0) {
        expr_list_add(&above, known);
        known = m->frames[known].below;
    }
    last = known == FRAME_BOTTOM ? FRAME_BOTTOM : m->frames[known].near;
    for (int i = above.n - 1; i >= 0; i--) {
        last = automaton_intern_frame(m, near_state(m, m->frames[above.items[i]].state), last);
        m->frames[above.items[i]].near = last;
    }
    free(above.items);
    return last;
}

int automaton_near(struct automaton *m, int config) {
    if (m->configs[config].near >= 0) return m->configs[config].near;
    m->n_gathered = 0;
    struct expr_list frames = {0};
    for (int i = 0; i < m->configs[config].n; i++)
        expr_list_add(&frames, near_frame(m, m->stacks[m->configs[config].first + i]));
    for (int i = 0; i < frames.n; i++) gather(m, frames.items[i]);
    free(frames.items);
    int near = automaton_intern_config(m);
    m->configs[config].near = near;
    return near;
}
