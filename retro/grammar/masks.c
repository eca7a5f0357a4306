/* retro/grammar/masks.c: see masks.h. A walk of the whole trie takes a
 * millisecond for a vocabulary of 150 000 where most tokens are allowed, as within a string, so
 * that it is done once for each state by itself: tokens that stay within the state's rule are
 * allowed whatever is below. The others leave the rule somewhere: from there on they are walked
 * below. Masks of whole configurations are kept too. */
#include <stdlib.h>
#include <string.h>

#include "retro/grammar/masks.h"

enum {
    MEMO_BYTES = 16 << 20,
    MOST_EXITS = 4096,
    FEW_IDS = 1024 /* of a profile without bits */
};

void masks_open(struct masks *masks, const struct program *program, const struct vocab *vocab) {
    *masks = (struct masks){.vocab = vocab, .words = (vocab->n_ids + 31) / 32};
    automaton_open(&masks->automaton, program, vocab->depth, MEMO_BYTES);
    for (int i = 0; i < MASK_SLOTS; i++) masks->slots[i].config = -1;
    for (int i = 0; i < EXIT_SLOTS; i++) masks->exits[i].config = -1;
}

void masks_close(struct masks *masks) {
    for (int i = 0; i < masks->n_profiles; i++) {
        free(masks->profiles[i].ids);
        free(masks->profiles[i].bits);
        free(masks->profiles[i].exits);
    }
    for (int i = 0; i < MASK_SLOTS; i++) free(masks->slots[i].bits);
    for (int i = 0; i < EXIT_SLOTS; i++) free(masks->exits[i].list);
    free(masks->profiles);
    automaton_close(&masks->automaton);
    *masks = (struct masks){0};
}

/* Walks. */

/* Goes through all texts below `node` that the configuration, which has read that node's, goes on
 * with: their tokens are set in `bits`; where a stack may be over, the node is added to `exits`,
 * unless that is NULL. */
static void walk(struct masks *masks, int node, int config, uint32_t *bits,
                 struct expr_list *exits) {
    const struct vocab *vocab = masks->vocab;
    const uint16_t *class_of = masks->automaton.program->class_of;
    int path[UINT8_MAX + 2], end = vocab->nodes[node].end;
    path[vocab->nodes[node].depth] = config;
    for (int i = node + 1; i < end;) {
        const struct vocab_node *vocab_node = &vocab->nodes[i];
        int next = automaton_next(&masks->automaton, path[vocab_node->depth - 1],
                                  class_of[vocab_node->symbol]);
        if (next == CONFIG_DEAD) {
            i = vocab_node->end;
            continue;
        }
        path[vocab_node->depth] = next;
        for (int t = vocab_node->first_token; t < vocab_node[1].first_token; t++)
            masks_set_bit(bits, vocab->tokens[t]);
        if (exits && vocab_node->end > i + 1 && masks->automaton.configs[next].finishes)
            expr_list_add(exits, i);
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
static void keep_bits(struct masks *masks, struct mask_profile *profile, uint32_t *bits) {
    int n = count_bits(bits, masks->words);
    if (n > FEW_IDS) {
        profile->bits = bits;
        masks->automaton.bytes += (size_t)masks->words * sizeof *bits;
        return;
    }
    profile->ids = xmalloc(((size_t)n + 1) * sizeof *profile->ids);
    for (int i = 0; i < masks->words; i++) {
        for (uint32_t left = bits[i]; left; left &= left - 1) {
            profile->ids[profile->n_ids] = 32 * i + __builtin_ctz(left);
            profile->n_ids++;
        }
    }
    free(bits);
}

static void make_profile(struct masks *masks, int state) {
    struct expr_list exits = {0};
    struct mask_profile profile = {.known = true};
    uint32_t *bits = xcalloc((size_t)masks->words + 1, sizeof *bits);
    walk(masks, 0, automaton_config_of_state(&masks->automaton, state), bits, &exits);
    if (exits.n > MOST_EXITS) {
        profile.many = true;
        free(bits);
        free(exits.items);
    } else {
        keep_bits(masks, &profile, bits);
        profile.exits = exits.items;
        profile.n_exits = exits.n;
        masks->automaton.bytes += (size_t)exits.n * sizeof(int);
    }
    masks->profiles[state] = profile;
}

static const struct mask_profile *find_profile(struct masks *masks, int state) {
    if (state >= masks->n_profiles) {
        int n = max_int(state + 1, 2 * masks->n_profiles);
        masks->profiles = xrealloc(masks->profiles, (size_t)n * sizeof *masks->profiles);
        memset(masks->profiles + masks->n_profiles, 0,
               (size_t)(n - masks->n_profiles) * sizeof *masks->profiles);
        masks->n_profiles = n;
    }
    if (!masks->profiles[state].known) make_profile(masks, state);
    return &masks->profiles[state];
}

/* Masks. */

static void add_profile(const struct masks *masks, const struct mask_profile *profile,
                        uint32_t *bits) {
    for (int i = 0; profile->bits && i < masks->words; i++) bits[i] |= profile->bits[i];
    for (int i = 0; i < profile->n_ids; i++) masks_set_bit(bits, profile->ids[i]);
}

/* The tokens of one stack. */
static void add_stack(struct masks *masks, int frame, uint32_t *bits) {
    bool more = true;
    while (more && !masks->automaton.full) {
        struct automaton_frame automaton_frame = masks->automaton.frames[frame];
        const struct mask_profile *profile = find_profile(masks, automaton_frame.state);
        if (profile->many) {
            walk(masks, 0, automaton_config_of_frame(&masks->automaton, frame), bits, NULL);
            return;
        }
        add_profile(masks, profile, bits);
        if (automaton_frame.below == FRAME_BOTTOM) return;
        int below = automaton_config_of_frame(&masks->automaton, automaton_frame.below);
        for (int i = 0; i < profile->n_exits; i++)
            walk(masks, profile->exits[i], below, bits, NULL);
        more = masks->automaton.states[automaton_frame.state].accepts;
        frame = automaton_frame.below;
    }
}

static struct mask_slot *take_slot(struct masks *masks) {
    struct mask_slot *slot = &masks->slots[masks->next_slot];
    masks->next_slot = (masks->next_slot + 1) % MASK_SLOTS;
    if (slot->bits == NULL) slot->bits = xmalloc(((size_t)masks->words + 1) * sizeof *slot->bits);
    memset(slot->bits, 0, (size_t)masks->words * sizeof *slot->bits);
    slot->config = -1;
    return slot;
}

const uint32_t *masks_find(struct masks *masks, int config, bool *any) {
    int near = automaton_near(&masks->automaton, config);
    for (int i = 0; i < MASK_SLOTS; i++) {
        if (masks->slots[i].config != near) continue;
        *any = masks->slots[i].any;
        return masks->slots[i].bits;
    }
    struct mask_slot *slot = take_slot(masks);
    for (int i = 0; i < masks->automaton.configs[near].n && !masks->automaton.full; i++)
        add_stack(masks, masks->automaton.stacks[masks->automaton.configs[near].first + i],
                  slot->bits);
    if (masks->automaton.full) return NULL;
    slot->config = near;
    slot->any = false;
    for (int i = 0; i < masks->words; i++) slot->any = slot->any || slot->bits[i];
    *any = slot->any;
    return slot->bits;
}

/* Quotes. */

static bool may_quote(struct masks *masks, int config) {
    for (int writing = 0; writing < QUOTE_WRITINGS; writing++) {
        int class = masks->automaton.program->class_of[GRAMMAR_QUOTES + writing];
        if (automaton_next(&masks->automaton, config, class) != CONFIG_DEAD) return true;
    }
    return false;
}

static void exits_add(struct masks *masks, struct quote_exits *exits, int node, int config) {
    exits->list = xgrow(exits->list, exits->n, &exits->capacity, sizeof *exits->list);
    exits->list[exits->n] = (struct quote_exit){node, config};
    exits->n++;
    masks->automaton.bytes += sizeof *exits->list;
}

/* Behind a node without children no token has the beginning of a quote. */
static void find_exits(struct masks *masks, struct quote_exits *exits, int config) {
    const struct vocab *vocab = masks->vocab;
    const uint16_t *class_of = masks->automaton.program->class_of;
    int path[UINT8_MAX + 2] = {config};
    if (may_quote(masks, config)) exits_add(masks, exits, 0, config);
    for (int i = 1; i < vocab->n_nodes && !masks->automaton.full;) {
        const struct vocab_node *node = &vocab->nodes[i];
        int next = automaton_next(&masks->automaton, path[node->depth - 1], class_of[node->symbol]);
        if (next == CONFIG_DEAD || node->end == i + 1) {
            i = node->end;
            continue;
        }
        path[node->depth] = next;
        if (may_quote(masks, next)) exits_add(masks, exits, i, next);
        i++;
    }
}

const struct quote_exits *masks_quote_exits(struct masks *masks, int config) {
    for (int i = 0; i < EXIT_SLOTS; i++)
        if (masks->exits[i].config == config) return &masks->exits[i];
    struct quote_exits *exits = &masks->exits[masks->next_exits];
    masks->next_exits = (masks->next_exits + 1) % EXIT_SLOTS;
    exits->config = -1;
    exits->n = 0;
    find_exits(masks, exits, config);
    if (masks->automaton.full) return NULL;
    exits->config = config;
    return exits;
}
