/* retro/grammar/automaton.c: what a symbol makes of states, frames and configurations. See
 * automaton.h. */
#include "retro/grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

void automaton_open(struct automaton *automaton, const struct program *program, int reach,
                    size_t most_bytes) {
    int most_members = 0;
    uint64_t none[(GRAMMAR_MAX_MEMBERS + 63) / 64] = {0};
    *automaton = (struct automaton){.program = program, .reach = reach, .most_bytes = most_bytes};
    for (int i = 0; i < program->n_objects; i++)
        most_members = max_int(most_members, program->objects[i].n);
    automaton->seen_words = max_int(1, (most_members + 63) / 64);
    automaton_intern_seen(automaton, none);
    automaton->rule_states = xmalloc((size_t)program->n_rules * sizeof *automaton->rule_states);
    for (int i = 0; i < program->n_rules; i++) automaton->rule_states[i] = -1;
    automaton_intern_state(automaton); /* 0: no place */
    /* 0: below every stack. It is found by no search: its state is never that of a frame. */
    automaton_intern_frame(automaton, 0, FRAME_BOTTOM);
    automaton_intern_config(automaton); /* CONFIG_DEAD */
}

void automaton_close(struct automaton *automaton) {
    for (int i = 0; i < automaton->n_states; i++) free(automaton->states[i].next);
    for (int i = 0; i < automaton->n_configs; i++) free(automaton->configs[i].next);
    free(automaton->states);
    free(automaton->frames);
    free(automaton->configs);
    free(automaton->places);
    free(automaton->calls);
    free(automaton->stacks);
    free(automaton->seen);
    automaton_table_free(&automaton->state_table);
    automaton_table_free(&automaton->frame_table);
    automaton_table_free(&automaton->config_table);
    automaton_table_free(&automaton->seen_table);
    free(automaton->rule_states);
    automaton_closure_clear(automaton);
    free(automaton->closure);
    free(automaton->gathered);
    *automaton = (struct automaton){0};
}

/* States. */

static int compare_places(const void *x, const void *y) {
    const struct automaton_place *left = x, *right = y;
    if (left->node != right->node) return left->node < right->node ? -1 : 1;
    return (left->value > right->value) - (left->value < right->value);
}

/* The state of the places in automaton->closure: those that read, call or accept; the others have
 * done their work. */
static int take_state(struct automaton *automaton) {
    int n = 0;
    for (int i = 0; i < automaton->n_closure; i++) {
        enum node_kind kind = automaton->program->nodes[automaton->closure[i].node].kind;
        if (kind != NODE_SET && kind != NODE_CALL && kind != NODE_ACCEPT) continue;
        automaton->closure[n] = automaton->closure[i];
        n++;
    }
    if (n > 1) qsort(automaton->closure, (size_t)n, sizeof *automaton->closure, compare_places);
    automaton->n_closure = n;
    return automaton_intern_state(automaton);
}

static int state_of_rule(struct automaton *automaton, int rule) {
    if (automaton->rule_states[rule] >= 0) return automaton->rule_states[rule];
    automaton_closure_clear(automaton);
    automaton_close_over(automaton,
                         (struct automaton_place){automaton->program->rules[rule].start, 0});
    automaton->rule_states[rule] = take_state(automaton);
    return automaton->rule_states[rule];
}

/* The state behind a symbol that is read within the rule; 0: there is none. */
static int state_next(struct automaton *automaton, int state, int class) {
    int known = automaton->states[state].next[class];
    if (known >= 0) return known;
    const struct program *program = automaton->program;
    automaton_closure_clear(automaton);
    for (int i = 0; i < automaton->states[state].n; i++) {
        struct automaton_place place = automaton->places[automaton->states[state].first + i];
        const struct program_node *node = &program->nodes[place.node];
        if (node->kind == NODE_SET && class_in(program_set(program, node->a), class))
            automaton_close_over(automaton, (struct automaton_place){node->b, place.value});
    }
    int next = take_state(automaton);
    automaton->states[state].next[class] = next;
    return next;
}

static int compare_calls(const void *x, const void *y) {
    const struct automaton_place *left = x, *right = y;
    return (left->node > right->node) - (left->node < right->node);
}

/* The calls of a state by rule, those of one rule with one state behind them. */
static void find_calls(struct automaton *automaton, int state) {
    const struct program *program = automaton->program;
    int n = automaton->states[state].n, first = automaton->n_calls;
    struct automaton_place *called =
        xcalloc((size_t)n + 1, sizeof *called); /* rule, and which place calls it */
    int n_called = 0;
    for (int i = 0; i < n; i++) {
        struct automaton_place place = automaton->places[automaton->states[state].first + i];
        if (program->nodes[place.node].kind != NODE_CALL) continue;
        called[n_called] = (struct automaton_place){program->nodes[place.node].a,
                                                    automaton->states[state].first + i};
        n_called++;
    }
    if (n_called > 1) qsort(called, (size_t)n_called, sizeof *called, compare_calls);
    for (int i = 0; i < n_called;) {
        int rule = called[i].node;
        automaton_closure_clear(automaton);
        for (; i < n_called && called[i].node == rule; i++) {
            struct automaton_place place = automaton->places[called[i].value];
            automaton_close_over(
                automaton, (struct automaton_place){program->nodes[place.node].b, place.value});
        }
        int back = take_state(automaton);
        automaton->calls = xgrow(automaton->calls, automaton->n_calls, &automaton->calls_capacity,
                                 sizeof *automaton->calls);
        automaton->calls[automaton->n_calls] = (struct automaton_call){rule, back};
        automaton->n_calls++;
    }
    free(called);
    automaton->states[state].first_call = first;
    automaton->states[state].n_calls = automaton->n_calls - first;
    automaton->states[state].calls_known = true;
}

/* Stacks. */

static void gather(struct automaton *automaton, int frame) {
    if (automaton->n_gathered >= 4 * MEMO_MAX_STACKS) {
        automaton->ambiguous = automaton->full = true;
        return;
    }
    automaton->gathered = xgrow(automaton->gathered, automaton->n_gathered,
                                &automaton->gathered_capacity, sizeof *automaton->gathered);
    automaton->gathered[automaton->n_gathered] = frame;
    automaton->n_gathered++;
}

/* Reads a symbol in the state, which stands on `below`, or in rules that it calls. Their chain is
 * bounded (program_first.c). */
static void read_symbol(struct automaton *automaton, int state, int below, int class) {
    int next = state_next(automaton, state, class);
    if (next > 0) gather(automaton, automaton_intern_frame(automaton, next, below));
    if (!automaton->states[state].calls_known) find_calls(automaton, state);
    for (int i = 0; i < automaton->states[state].n_calls && !automaton->full; i++) {
        struct automaton_call call = automaton->calls[automaton->states[state].first_call + i];
        if (!class_in(automaton->program->rules[call.rule].first, class)) continue;
        int back = automaton_intern_frame(automaton, call.back, below);
        read_symbol(automaton, state_of_rule(automaton, call.rule), back, class);
    }
}

/* Reads a symbol at the top of the stack, or below where the rules above may be over. */
static void step_stack(struct automaton *automaton, int frame, int class) {
    for (;;) {
        struct automaton_frame automaton_frame = automaton->frames[frame];
        read_symbol(automaton, automaton_frame.state, automaton_frame.below, class);
        if (automaton_frame.below == FRAME_BOTTOM ||
            !automaton->states[automaton_frame.state].accepts || automaton->full)
            return;
        frame = automaton_frame.below;
    }
}

int automaton_compute(struct automaton *automaton, int config, int class) {
    automaton->n_gathered = 0;
    for (int i = 0; i < automaton->configs[config].n && !automaton->full; i++)
        step_stack(automaton, automaton->stacks[automaton->configs[config].first + i], class);
    if (automaton->full) return CONFIG_DEAD;
    int next = automaton_intern_config(automaton);
    if (automaton->configs[next].n > MEMO_MAX_STACKS) automaton->ambiguous = automaton->full = true;
    automaton->configs[config].next[class] = next;
    return next;
}

int automaton_config_of_frame(struct automaton *automaton, int frame) {
    automaton->n_gathered = 0;
    gather(automaton, frame);
    return automaton_intern_config(automaton);
}

int automaton_config_of_state(struct automaton *automaton, int state) {
    return automaton_config_of_frame(automaton,
                                     automaton_intern_frame(automaton, state, FRAME_BOTTOM));
}

int automaton_start(struct automaton *automaton) {
    return automaton_config_of_state(automaton, state_of_rule(automaton, 0));
}

/* Near configurations. */

/* A count with the same texts for `reach` symbols; each repetition reads one at least. */
static int near_count(const struct program_counter *counter, int count, int reach) {
    if (count + reach < counter->min) return 0;
    if (count >= counter->min && counter->max >= 0 && count + reach < counter->max)
        return counter->min;
    return count;
}

static int near_state(struct automaton *automaton, int state) {
    const struct program *program = automaton->program;
    if (automaton->states[state].near >= 0) return automaton->states[state].near;
    automaton_closure_clear(automaton);
    for (int i = 0; i < automaton->states[state].n; i++) {
        struct automaton_place place = automaton->places[automaton->states[state].first + i];
        int counter = program->nodes[place.node].counter;
        if (counter >= 0)
            place.value = near_count(&program->counters[counter], place.value, automaton->reach);
        automaton->closure = xgrow(automaton->closure, automaton->n_closure,
                                   &automaton->closure_capacity, sizeof *automaton->closure);
        automaton->closure[automaton->n_closure] = place;
        automaton->n_closure++;
    }
    int near = take_state(automaton);
    automaton->states[state].near = near;
    automaton->states[near].near = near;
    return near;
}

static int near_frame(struct automaton *automaton, int frame) {
    int known = frame, last = FRAME_BOTTOM;
    struct expr_list above = {0};
    while (known != FRAME_BOTTOM && automaton->frames[known].near < 0) {
        expr_list_add(&above, known);
        known = automaton->frames[known].below;
    }
    last = known == FRAME_BOTTOM ? FRAME_BOTTOM : automaton->frames[known].near;
    for (int i = above.n - 1; i >= 0; i--) {
        last = automaton_intern_frame(
            automaton, near_state(automaton, automaton->frames[above.items[i]].state), last);
        automaton->frames[above.items[i]].near = last;
    }
    free(above.items);
    return last;
}

int automaton_near(struct automaton *automaton, int config) {
    if (automaton->configs[config].near >= 0) return automaton->configs[config].near;
    automaton->n_gathered = 0;
    struct expr_list frames = {0};
    for (int i = 0; i < automaton->configs[config].n; i++)
        expr_list_add(&frames, near_frame(automaton,
                                          automaton->stacks[automaton->configs[config].first + i]));
    for (int i = 0; i < frames.n; i++) gather(automaton, frames.items[i]);
    free(frames.items);
    int near = automaton_intern_config(automaton);
    automaton->configs[config].near = near;
    return near;
}
