/* retro/grammar/vocab.c: see vocab.h. */
#include "retro/grammar/vocab.h"

#include <stdlib.h>
#include <string.h>

/* Longer tokens are never written under a grammar: runs of hundreds of blanks or dashes. */
enum { MOST_SYMBOLS = 256 };

static const char *const mark_texts[] = {"<think>",      "</think>", "<tool_call>",   "</tool_call>",
                                         "[TOOL_CALLS]", "[ARGS]",   "<|python_tag|>"};
_Static_assert(ARRAY_COUNT(mark_texts) == MARK_KINDS && (int)MARK_KINDS <= (int)GRAMMAR_MARKS, "marks");

const char *grammar_mark_text(enum grammar_mark mark) { return mark_texts[mark]; }

/* A token and its text; a mark's is the mark alone. */
struct vocab_entry {
    int32_t id;
    const char *text;
    size_t size;
    int mark; /* -1: it is text */
};

static int entry_symbol(const struct vocab_entry *x, size_t i) {
    return x->mark >= 0 ? GRAMMAR_BYTES + x->mark : (unsigned char)x->text[i];
}

static int compare_entries(const void *a, const void *b) {
    const struct vocab_entry *x = a, *y = b;
    size_t n = x->size < y->size ? x->size : y->size;
    if (x->mark != y->mark) return x->mark - y->mark;
    int order = x->mark >= 0 ? 0 : memcmp(x->text, y->text, n);
    if (order != 0) return order;
    if (x->size != y->size) return x->size < y->size ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static bool is_among(const int32_t *ids, int n, int32_t id) {
    for (int i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* The tokens with their texts, sorted; the texts are in *text. */
static struct vocab_entry *list_entries(struct vocab *v, const struct tokenizer *t, const bool *never,
                                        struct buffer *text, int *n) {
    struct vocab_entry *all = xcalloc((size_t)v->n_ids + 1, sizeof *all);
    size_t *starts = xcalloc((size_t)v->n_ids + 1, sizeof *starts);
    *n = 0;
    for (int32_t id = 0; id < v->n_ids; id++) {
        int mark = -1;
        size_t before = text->size;
        for (int i = 0; i < MARK_KINDS; i++)
            if (v->marks[i] == id) mark = i;
        if (mark < 0 && never[id]) continue;
        if (mark < 0) tokenizer_piece(t, id, text);
        size_t size = mark >= 0 ? 1 : text->size - before;
        if (size == 0 || size > MOST_SYMBOLS) continue;
        starts[*n] = before;
        all[*n] = (struct vocab_entry){.id = id, .size = size, .mark = mark};
        (*n)++;
    }
    for (int i = 0; i < *n; i++) all[i].text = text->data + starts[i];
    free(starts);
    if (*n > 1) qsort(all, (size_t)*n, sizeof *all, compare_entries);
    return all;
}

/* The trie so far, and the nodes from its root to the latest entry. */
struct vocab_build {
    struct vocab *v;
    int capacity;
    int path[MOST_SYMBOLS + 1], depth;
};

static void end_nodes(struct vocab_build *b, int depth) {
    for (; b->depth > depth; b->depth--) b->v->nodes[b->path[b->depth]].end = b->v->n_nodes;
}

static void add_node(struct vocab_build *b, int symbol, int n_tokens) {
    struct vocab *v = b->v;
    int up = v->n_nodes > 0 ? b->path[b->depth] : -1;
    if (up >= 0) b->depth++;
    v->nodes = xgrow(v->nodes, v->n_nodes, &b->capacity, sizeof *v->nodes);
    v->nodes[v->n_nodes] =
        (struct vocab_node){.symbol = (uint16_t)symbol, .depth = (uint16_t)b->depth, .up = up, .first_token = n_tokens};
    b->path[b->depth] = v->n_nodes;
    v->n_nodes++;
}

static void add_entry(struct vocab_build *b, const struct vocab_entry *x, int n_tokens) {
    struct vocab *v = b->v;
    size_t shared = 0;
    while (shared < x->size && shared < (size_t)b->depth &&
           v->nodes[b->path[shared + 1]].symbol == entry_symbol(x, shared))
        shared++;
    end_nodes(b, (int)shared);
    for (size_t i = shared; i < x->size; i++) add_node(b, entry_symbol(x, i), n_tokens);
    v->depth = max_int(v->depth, b->depth);
    v->node_of[x->id] = b->path[b->depth];
    v->tokens[n_tokens] = x->id;
}

void vocab_open(struct vocab *v, const struct tokenizer *t, int n_ids, const int32_t *ends, int n_ends) {
    struct vocab_build b = {.v = v};
    struct buffer text = {0};
    int n;
    *v = (struct vocab){.n_ids = min_int(n_ids, tokenizer_vocab_size(t))};
    bool *never = xcalloc((size_t)v->n_ids + 1, sizeof *never);
    for (int i = 0; i < MARK_KINDS; i++) {
        int32_t id = tokenizer_added_id(t, (struct text_span){mark_texts[i], strlen(mark_texts[i])});
        v->marks[i] = id < v->n_ids ? id : -1;
    }
    for (int32_t id = 0; id < v->n_ids; id++) never[id] = tokenizer_is_special(t, id) || is_among(ends, n_ends, id);
    struct vocab_entry *entries = list_entries(v, t, never, &text, &n);

    v->node_of = xmalloc(((size_t)v->n_ids + 1) * sizeof *v->node_of);
    for (int i = 0; i < v->n_ids; i++) v->node_of[i] = -1;
    v->tokens = xcalloc((size_t)n + 1, sizeof *v->tokens);
    add_node(&b, 0, 0);
    for (int i = 0; i < n; i++) add_entry(&b, &entries[i], i);
    end_nodes(&b, -1);
    v->nodes = xrealloc(v->nodes, ((size_t)v->n_nodes + 1) * sizeof *v->nodes);
    v->nodes[v->n_nodes] = (struct vocab_node){.first_token = n};
    buffer_free(&text);
    free(entries);
    free(never);
}

void vocab_close(struct vocab *v) {
    free(v->nodes);
    free(v->tokens);
    free(v->node_of);
    *v = (struct vocab){0};
}

int expr_of_mark(struct grammar_draft *d, const struct vocab *v, enum grammar_mark mark) {
    return v->marks[mark] >= 0 ? expr_mark(d, mark) : expr_word(d, grammar_mark_text(mark));
}
