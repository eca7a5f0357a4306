/* retro/grammar/automaton_closure.c: places that are reached from a place without reading: through alternatives, around
 * rules that may be empty, through counters, and into the members of objects. See automaton.h. */
#include <stdlib.h>
#include <string.h>

#include "retro/grammar/automaton.h"

/* A closure of more places is a grammar that counts too many things at once. */
enum { MAX_PLACES = 20000 };

static bool closure_has(const struct automaton *m, struct automaton_place place) {
    for (int i = 0; i < m->n_closure; i++)
        if (m->closure[i].node == place.node && m->closure[i].value == place.value) return true;
    return false;
}

/* Places are looked into in the order in which they are added. */
static void closure_add(struct automaton *m, int node, int value) {
    struct automaton_place place = {node, value};
    if (m->full || closure_has(m, place)) return;
    if (m->n_closure == MAX_PLACES) {
        m->ambiguous = m->full = true;
        return;
    }
    m->closure = xgrow(m->closure, m->n_closure, &m->closure_capacity, sizeof *m->closure);
    m->closure[m->n_closure] = place;
    m->n_closure++;
}

/* A count that has no end stays at the least that is needed. */
static void add_count(struct automaton *m, const struct program_counter *counter, int count) {
    if (counter->max < 0 || count < counter->max)
        closure_add(m, counter->body, counter->max < 0 && count >= counter->min ? count : count + 1);
    if (count >= counter->min) closure_add(m, counter->exit, 0);
}

/* Objects. */

static const uint64_t *seen_set(const struct automaton *m, int seen) {
    return m->seen + (size_t)seen * (size_t)m->seen_words;
}

/* The first member that may come next, where they come in order. */
static int object_next(const struct automaton *m, const struct program_object *o, int seen) {
    int next = o->n;
    if (!o->ordered) return 0;
    while (next > 0 && !class_in(seen_set(m, seen), next - 1)) next--;
    return next;
}

static bool object_complete(const struct automaton *m, const struct program_object *o, int seen) {
    for (int i = 0; i < o->n; i++)
        if (m->program->members[o->first + i].required && !class_in(seen_set(m, seen), i)) return false;
    return true;
}

static void add_member(struct automaton *m, const struct program_object *o, int seen, int i) {
    uint64_t set[(GRAMMAR_MAX_MEMBERS + 63) / 64];
    memcpy(set, seen_set(m, seen), (size_t)m->seen_words * sizeof *set);
    set[i / 64] |= (uint64_t)1 << (i % 64);
    closure_add(m, m->program->members[o->first + i].start, automaton_intern_seen(m, set));
}

/* The members that may come next; where none are wanted, whether there is one. */
static bool add_members(struct automaton *m, const struct program_object *o, int seen, bool wanted) {
    bool any = false, may_be_more = true;
    for (int i = object_next(m, o, seen); i < o->n; i++) {
        const struct program_member *member = &m->program->members[o->first + i];
        bool may = member->start >= 0 && !class_in(seen_set(m, seen), i);
        any = any || may;
        if (may && wanted) add_member(m, o, seen, i);
        if (o->ordered && member->required && may) {
            may_be_more = false;
            break;
        }
    }
    if (o->more < 0 || !may_be_more) return any;
    if (wanted) closure_add(m, o->more, seen);
    return true;
}

static void add_object(struct automaton *m, enum node_kind kind, const struct program_object *o, int seen) {
    if (kind != NODE_PICK && object_complete(m, o, seen)) closure_add(m, o->close, 0);
    if (kind != NODE_AFTER)
        add_members(m, o, seen, true);
    else if (add_members(m, o, seen, false))
        closure_add(m, o->separator, seen);
}

/* Everything. */

static void look_into(struct automaton *m, struct automaton_place place) {
    const struct program *p = m->program;
    const struct program_node *node = &p->nodes[place.node];
    switch (node->kind) {
        case NODE_SPLIT:
            for (int i = 0; i < node->b; i++) closure_add(m, p->targets[node->a + i], place.value);
            break;
        case NODE_CALL:
            if (p->rules[node->a].nullable) closure_add(m, node->b, place.value);
            break;
        case NODE_COUNT: add_count(m, &p->counters[node->a], place.value); break;
        case NODE_MEMBERS:
        case NODE_AFTER:
        case NODE_PICK: add_object(m, node->kind, &p->objects[node->a], place.value); break;
        default: break;
    }
}

void automaton_close_over(struct automaton *m, struct automaton_place place) {
    int first = m->n_closure;
    closure_add(m, place.node, place.value);
    for (int i = first; i < m->n_closure; i++) look_into(m, m->closure[i]);
}
