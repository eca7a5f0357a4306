/* retro/grammar/masks.c: which tokens a configuration allows. A walk of the whole trie takes a millisecond for a
 * vocabulary of 150 000 where most tokens are allowed, as within a string, so that it is done once for each state by
 * itself: tokens that stay within the state's rule are allowed whatever is below. The others leave the rule somewhere:
 * from there on they are walked below. Masks of whole configurations are kept too. */
#include <stdlib.h>
#include <string.h>

#include "retro/grammar/grammar.h"

enum {
    MEMO_BYTES = 16 << 20,
    MOST_EXITS = 4096,
    FEW_IDS = 1024 /* of a profile without bits */
};

void masks_open(struct masks *k, const struct program *p, const struct vocab *v) {
    *k = (struct masks){.vocab = v, .words = (v->n_ids + 31) / 32};
    automaton_open(&k->automaton, p, v->depth, MEMO_BYTES);
    for (int i = 0; i < MASK_SLOTS; i++) k->slots[i].config = -1;
}

void masks_close(struct masks *k) {
    for (int i = 0; i < k->n_profiles; i++) {
        free(k->profiles[i].ids);
        free(k->profiles[i].bits);
        free(k->profiles[i].exits);
    }
    for (int i = 0; i < MASK_SLOTS; i++) free(k->slots[i].bits);
    free(k->profiles);
    automaton_close(&k->automaton);
    *k = (struct masks){0};
}

static void set_bit(uint32_t *bits, int32_t id) { bits[id / 32] |= (uint32_t)1 << (id % 32); }

/* Walks. */

/* Goes through all texts below `node` that the configuration, which has read that node's, goes on with: their tokens
 * are set in `bits`; where a stack may be over, the node is added to `exits`, unless that is NULL. */
static void walk(struct masks *k, int node, int config, uint32_t *bits, struct expr_list *exits) {
    const struct vocab *v = k->vocab;
    const uint16_t *class_of = k->automaton.program->class_of;
    int path[UINT8_MAX + 2], end = v->nodes[node].end;
    path[v->nodes[node].depth] = config;
    for (int i = node + 1; i < end;) {
        const struct vocab_node *n = &v->nodes[i];
        int next = automaton_next(&k->automaton, path[n->depth - 1], class_of[n->symbol]);
        if (next == CONFIG_DEAD) {
            i = n->end;
            continue;
        }
        path[n->depth] = next;
        for (int t = n->first_token; t < n[1].first_token; t++) set_bit(bits, v->tokens[t]);
        if (exits && n->end > i + 1 && k->automaton.configs[next].finishes) expr_list_add(exits, i);
        i++;
    }
}

/* Profiles. */

static int count_bits(const uint32_t *bits, int words) {
    int n = 0;
    for (int i = 0; i < words; i++) n += __builtin_popcount(bits[i]);
    return n;
}

/* The bits as they are, or as a list of ids where they are few. */
static void keep_bits(struct masks *k, struct mask_profile *p, uint32_t *bits) {
    int n = count_bits(bits, k->words);
    if (n > FEW_IDS) {
        p->bits = bits;
        k->automaton.bytes += (size_t)k->words * sizeof *bits;
        return;
    }
    p->ids = xmalloc(((size_t)n + 1) * sizeof *p->ids);
    for (int i = 0; i < k->words; i++) {
        for (uint32_t left = bits[i]; left; left &= left - 1) {
            p->ids[p->n_ids] = 32 * i + __builtin_ctz(left);
            p->n_ids++;
        }
    }
    free(bits);
}

static void make_profile(struct masks *k, int state) {
    struct expr_list exits = {0};
    struct mask_profile p = {.known = true};
    uint32_t *bits = xcalloc((size_t)k->words + 1, sizeof *bits);
    walk(k, 0, automaton_config_of_state(&k->automaton, state), bits, &exits);
    if (exits.n > MOST_EXITS) {
        p.many = true;
        free(bits);
        free(exits.items);
    } else {
        keep_bits(k, &p, bits);
        p.exits = exits.items;
        p.n_exits = exits.n;
        k->automaton.bytes += (size_t)exits.n * sizeof(int);
    }
    k->profiles[state] = p;
}

static const struct mask_profile *find_profile(struct masks *k, int state) {
    if (state >= k->n_profiles) {
        int n = max_int(state + 1, 2 * k->n_profiles);
        k->profiles = xrealloc(k->profiles, (size_t)n * sizeof *k->profiles);
        memset(k->profiles + k->n_profiles, 0, (size_t)(n - k->n_profiles) * sizeof *k->profiles);
        k->n_profiles = n;
    }
    if (!k->profiles[state].known) make_profile(k, state);
    return &k->profiles[state];
}

/* Masks. */

static void add_profile(const struct masks *k, const struct mask_profile *p, uint32_t *bits) {
    for (int i = 0; p->bits && i < k->words; i++) bits[i] |= p->bits[i];
    for (int i = 0; i < p->n_ids; i++) set_bit(bits, p->ids[i]);
}

/* The tokens of one stack. */
static void add_stack(struct masks *k, int frame, uint32_t *bits) {
    bool more = true;
    while (more && !k->automaton.full) {
        struct automaton_frame f = k->automaton.frames[frame];
        const struct mask_profile *p = find_profile(k, f.state);
        if (p->many) {
            walk(k, 0, automaton_config_of_frame(&k->automaton, frame), bits, NULL);
            return;
        }
        add_profile(k, p, bits);
        if (f.below == FRAME_BOTTOM) return;
        int below = automaton_config_of_frame(&k->automaton, f.below);
        for (int i = 0; i < p->n_exits; i++) walk(k, p->exits[i], below, bits, NULL);
        more = k->automaton.states[f.state].accepts;
        frame = f.below;
    }
}

static struct mask_slot *take_slot(struct masks *k) {
    struct mask_slot *slot = &k->slots[k->next_slot];
    k->next_slot = (k->next_slot + 1) % MASK_SLOTS;
    if (slot->bits == NULL) slot->bits = xmalloc(((size_t)k->words + 1) * sizeof *slot->bits);
    memset(slot->bits, 0, (size_t)k->words * sizeof *slot->bits);
    slot->config = -1;
    return slot;
}

const uint32_t *masks_find(struct masks *k, int config, bool *any) {
    int near = automaton_near(&k->automaton, config);
    for (int i = 0; i < MASK_SLOTS; i++) {
        if (k->slots[i].config != near) continue;
        *any = k->slots[i].any;
        return k->slots[i].bits;
    }
    struct mask_slot *slot = take_slot(k);
    for (int i = 0; i < k->automaton.configs[near].n && !k->automaton.full; i++)
        add_stack(k, k->automaton.stacks[k->automaton.configs[near].first + i], slot->bits);
    if (k->automaton.full) return NULL;
    slot->config = near;
    slot->any = false;
    for (int i = 0; i < k->words; i++) slot->any = slot->any || slot->bits[i];
    *any = slot->any;
    return slot->bits;
}
