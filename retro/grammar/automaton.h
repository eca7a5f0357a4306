/* retro/grammar/automaton.h: a program at work, and everything that was found out about it. The
 * place in a text is a configuration: a set of stacks. Each stack is a frame on another, each frame
 * a state: the places within one rule where a walk may be. States, frames and configurations are
 * numbered as they are met, and the effect of a symbol on each is computed once: then a symbol is
 * one look into a table.
 *
 * One thread at a time. Memory is bounded: where a new number would exceed it, the memo is `full`,
 * and the results from then on are wrong; whoever finds it so begins a new one. */
#pragma once

#include "retro/grammar/program.h"

enum { CONFIG_DEAD = 0, FRAME_BOTTOM = 0 };

/* Configurations of more stacks are refused: a grammar that needs them is too ambiguous. */
enum { MEMO_MAX_STACKS = 1024 };

struct lookup_table;

/* A place: a node, and the register of its walk. */
struct automaton_place {
    int node, value;
};

/* A rule that a state may call, and the state behind the call. */
struct automaton_call {
    int rule, back;
};

struct automaton_state {
    int first, n; /* of automaton.places */
    int first_call, n_calls;
    bool calls_known;
    bool accepts; /* the rule may be over */
    bool over;    /* and nothing else is possible */
    int near;  /* the state of its kind that has the same texts as far as a token reaches; -1: not
                  known */
    int *next; /* [n_classes] state within the rule, -1: not known, 0: none */
};

/* A state, and the frame that goes on when its rule is over; FRAME_BOTTOM: none does. */
struct automaton_frame {
    int state, below;
    bool finishes; /* all of its stack may be over */
    int near;      /* the frame of near states; -1: not known */
};

struct automaton_config {
    int first, n; /* of automaton.stacks: frames, rising */
    bool finishes;
    int near;
    int *next; /* [n_classes] -1: not known */
};

/* Numbers by what they stand for: open addressing, -1: free. */
struct automaton_table {
    int *slots;
    size_t size, used;
};

struct automaton {
    const struct program *program;
    int reach; /* symbols of the longest token */
    size_t bytes, most_bytes;
    bool full;      /* too much memory is used */
    bool ambiguous; /* a configuration had too many stacks */
    struct automaton_state *states;
    int n_states, states_capacity;
    struct automaton_frame *frames;
    int n_frames, frames_capacity;
    struct automaton_config *configs;
    int n_configs, configs_capacity;
    struct automaton_place *places;
    int n_places, places_capacity;
    struct automaton_call *calls;
    int n_calls, calls_capacity;
    int *stacks;
    int n_stacks, stacks_capacity;
    uint64_t *seen; /* [n_seen][seen_words] sets of members of objects; the first is empty */
    int n_seen, seen_words, seen_capacity;
    struct automaton_table state_table, frame_table, config_table, seen_table;
    int *rule_states; /* [n_rules] the state at a rule's beginning, -1: not known */
    /* The working space of a step. */
    struct automaton_place *closure;
    int n_closure, closure_capacity;
    struct lookup_table *closure_at; /* the first n_indexed of it; NULL: it is short */
    int n_indexed;
    int *gathered; /* frames */
    int n_gathered, gathered_capacity;
};

/* `reach` symbols at most are read at a time where configurations are taken for near ones. */
void automaton_open(struct automaton *automaton, const struct program *program, int reach,
                    size_t most_bytes);
void automaton_close(struct automaton *automaton);

/* The configuration at the beginning of the root rule. */
int automaton_start(struct automaton *automaton);
/* That of one state with nothing below. */
int automaton_config_of_state(struct automaton *automaton, int state);
/* That of one stack. */
int automaton_config_of_frame(struct automaton *automaton, int frame);
/* One with the same texts for `reach` symbols: repetitions that are far from their bounds count as
 * one. */
int automaton_near(struct automaton *automaton, int config);

int automaton_compute(struct automaton *automaton, int config, int class);
/* The configuration behind a symbol of the class; CONFIG_DEAD: no text goes on with it. */
static inline int automaton_next(struct automaton *automaton, int config, int class) {
    int next = automaton->configs[config].next[class];
    return next >= 0 ? next : automaton_compute(automaton, config, class);
}

/* automaton_intern.c: numbers for places that stand sorted in automaton->closure, for a frame, and
 * for frames in automaton->gathered.
 */
int automaton_intern_state(struct automaton *automaton);
int automaton_intern_frame(struct automaton *automaton, int state, int below);
int automaton_intern_config(struct automaton *automaton);
int automaton_intern_seen(struct automaton *automaton, const uint64_t *seen);
void automaton_table_free(struct automaton_table *table);

/* automaton_closure.c: empties automaton->closure. */
void automaton_closure_clear(struct automaton *automaton);
/* Adds a place and all that is reached from it without a symbol to automaton->closure. */
void automaton_close_over(struct automaton *automaton, struct automaton_place place);
