/* retro/grammar/automaton_closure.c: places that are reached from a place without reading: through
 * alternatives, around rules that may be empty, through counters, and into the members of objects.
 * See automaton.h. */
#include "retro/grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/lookup.h"

/* A closure of more places is a grammar that counts too many things at once. */
enum { MAX_PLACES = 20000, FEW_PLACES = 32 };

void automaton_closure_clear(struct automaton *automaton) {
    automaton->n_closure = 0;
    if (automaton->closure_at) lookup_free(automaton->closure_at);
    free(automaton->closure_at);
    automaton->closure_at = NULL;
    automaton->n_indexed = 0;
}

static bool is_place(struct automaton_place left, struct automaton_place right) {
    return left.node == right.node && left.value == right.value;
}

static bool closure_has(struct automaton *automaton, struct automaton_place place) {
    const struct automaton_place *closure = automaton->closure;
    if (automaton->n_closure <= FEW_PLACES) {
        for (int i = 0; i < automaton->n_closure; i++)
            if (is_place(closure[i], place)) return true;
        return false;
    }
    if (automaton->closure_at == NULL)
        automaton->closure_at = xcalloc(1, sizeof(struct lookup_table));
    for (; automaton->n_indexed < automaton->n_closure; automaton->n_indexed++) {
        const struct automaton_place *next = &closure[automaton->n_indexed];
        lookup_add(automaton->closure_at, lookup_hash(next, sizeof *next), automaton->n_indexed);
    }
    uint64_t hash = lookup_hash(&place, sizeof place);
    size_t at = 0;
    for (int i; (i = lookup_next(automaton->closure_at, hash, &at)) >= 0;)
        if (is_place(closure[i], place)) return true;
    return false;
}

/* Places are looked into in the order in which they are added. */
static void closure_add(struct automaton *automaton, int node, int value) {
    struct automaton_place place = {node, value};
    if (automaton->full || closure_has(automaton, place)) return;
    if (automaton->n_closure == MAX_PLACES) {
        automaton->ambiguous = automaton->full = true;
        return;
    }
    automaton->closure = xgrow(automaton->closure, automaton->n_closure,
                               &automaton->closure_capacity, sizeof *automaton->closure);
    automaton->closure[automaton->n_closure] = place;
    automaton->n_closure++;
}

/* A count that has no end stays at the least that is needed. */
static void add_count(struct automaton *automaton, const struct program_counter *counter,
                      int count) {
    if (counter->max < 0 || count < counter->max)
        closure_add(automaton, counter->body,
                    counter->max < 0 && count >= counter->min ? count : count + 1);
    if (count >= counter->min) closure_add(automaton, counter->exit, 0);
}

/* Objects. */

static const uint64_t *seen_set(const struct automaton *automaton, int seen) {
    return automaton->seen + (size_t)seen * (size_t)automaton->seen_words;
}

/* The first member that may come next, where they come in order. */
static int object_next(const struct automaton *automaton, const struct program_object *object,
                       int seen) {
    int next = object->n;
    if (!object->ordered) return 0;
    while (next > 0 && !class_in(seen_set(automaton, seen), next - 1)) next--;
    return next;
}

static bool object_complete(const struct automaton *automaton, const struct program_object *object,
                            int seen) {
    for (int i = 0; i < object->n; i++)
        if (automaton->program->members[object->first + i].required &&
            !class_in(seen_set(automaton, seen), i))
            return false;
    return true;
}

static void add_member(struct automaton *automaton, const struct program_object *object, int seen,
                       int i) {
    uint64_t set[(GRAMMAR_MAX_MEMBERS + 63) / 64];
    memcpy(set, seen_set(automaton, seen), (size_t)automaton->seen_words * sizeof *set);
    set[i / 64] |= (uint64_t)1 << (i % 64);
    closure_add(automaton, automaton->program->members[object->first + i].start,
                automaton_intern_seen(automaton, set));
}

/* The members that may come next; where none are wanted, whether there is one. */
static bool add_members(struct automaton *automaton, const struct program_object *object, int seen,
                        bool wanted) {
    bool any = false, may_be_more = true;
    for (int i = object_next(automaton, object, seen); i < object->n; i++) {
        const struct program_member *member = &automaton->program->members[object->first + i];
        bool may = member->start >= 0 && !class_in(seen_set(automaton, seen), i);
        any = any || may;
        if (may && wanted) add_member(automaton, object, seen, i);
        if (object->ordered && member->required && may) {
            may_be_more = false;
            break;
        }
    }
    if (object->more < 0 || !may_be_more) return any;
    if (wanted) closure_add(automaton, object->more, seen);
    return true;
}

static void add_object(struct automaton *automaton, enum node_kind kind,
                       const struct program_object *object, int seen) {
    if (kind != NODE_PICK && object_complete(automaton, object, seen))
        closure_add(automaton, object->close, 0);
    if (kind != NODE_AFTER)
        add_members(automaton, object, seen, true);
    else if (add_members(automaton, object, seen, false))
        closure_add(automaton, object->separator, seen);
}

/* Everything. */

static void look_into(struct automaton *automaton, struct automaton_place place) {
    const struct program *program = automaton->program;
    const struct program_node *node = &program->nodes[place.node];
    switch (node->kind) {
        case NODE_SPLIT:
            for (int i = 0; i < node->b; i++)
                closure_add(automaton, program->targets[node->a + i], place.value);
            break;
        case NODE_CALL:
            if (program->rules[node->a].nullable) closure_add(automaton, node->b, place.value);
            break;
        case NODE_COUNT: add_count(automaton, &program->counters[node->a], place.value); break;
        case NODE_MEMBERS:
        case NODE_AFTER:
        case NODE_PICK:
            add_object(automaton, node->kind, &program->objects[node->a], place.value);
            break;
        default: break;
    }
}

void automaton_close_over(struct automaton *automaton, struct automaton_place place) {
    int first = automaton->n_closure;
    closure_add(automaton, place.node, place.value);
    for (int i = first; i < automaton->n_closure; i++) look_into(automaton, automaton->closure[i]);
}
