/* retro/grammar/vocab.c: see vocab.h. */
#include "retro/grammar/vocab.h"

#include <stdlib.h>
#include <string.h>

/* Longer tokens are never written under a grammar: runs of hundreds of blanks or dashes. */
enum { MOST_SYMBOLS = 256 };

static const char *const mark_texts[] = {"<think>",
                                         "</think>",
                                         "<|channel>",
                                         "<channel|>",
                                         "[THINK]",
                                         "[/THINK]",
                                         "<|inner_prefix|>",
                                         "<|inner_suffix|>",
                                         "<tool_call>",
                                         "</tool_call>",
                                         "[TOOL_CALLS]",
                                         "[ARGS]",
                                         "<|python_tag|>",
                                         "<|start|>",
                                         "<|channel|>",
                                         "<|message|>",
                                         "<|constrain|>",
                                         "<|end|>",
                                         "<|call|>",
                                         "<|return|>",
                                         "<minimax:tool_call>",
                                         "</minimax:tool_call>",
                                         "<|tool_call_start|>",
                                         "<|tool_call_end|>",
                                         "<｜tool▁calls▁begin｜>",
                                         "<｜tool▁calls▁end｜>",
                                         "<｜tool▁call▁begin｜>",
                                         "<｜tool▁call▁end｜>",
                                         "<｜tool▁sep｜>",
                                         "<|tool_call>",
                                         "<tool_call|>",
                                         "<|\"|>",
                                         "<|tool_call|>",
                                         "<function_calls>",
                                         "</function_calls>",
                                         "<|tools_prefix|>",
                                         "<|tools_suffix|>"};
_Static_assert(ARRAY_COUNT(mark_texts) == MARK_KINDS && (int)MARK_KINDS <= (int)GRAMMAR_MARKS,
               "marks");

const char *grammar_mark_text(enum grammar_mark mark) { return mark_texts[mark]; }

/* A token and its text; a mark's is the mark alone. */
struct vocab_entry {
    int32_t id;
    const char *text;
    size_t size;
    int mark; /* -1: it is text */
};

static int entry_symbol(const struct vocab_entry *entry, size_t i) {
    return entry->mark >= 0 ? GRAMMAR_BYTES + entry->mark : (unsigned char)entry->text[i];
}

static int compare_entries(const void *a, const void *b) {
    const struct vocab_entry *entry = a, *vocab_entry = b;
    size_t n = entry->size < vocab_entry->size ? entry->size : vocab_entry->size;
    if (entry->mark != vocab_entry->mark) return entry->mark - vocab_entry->mark;
    int order = entry->mark >= 0 ? 0 : memcmp(entry->text, vocab_entry->text, n);
    if (order != 0) return order;
    if (entry->size != vocab_entry->size) return entry->size < vocab_entry->size ? -1 : 1;
    return (entry->id > vocab_entry->id) - (entry->id < vocab_entry->id);
}

static bool is_among(const int32_t *ids, int n, int32_t id) {
    for (int i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* The tokens with their texts, sorted; the texts are in *text. */
static struct vocab_entry *list_entries(struct vocab *vocab, const struct tokenizer *tokenizer,
                                        const bool *never, struct buffer *text, int *n) {
    struct vocab_entry *all = xcalloc((size_t)vocab->n_ids + 1, sizeof *all);
    size_t *starts = xcalloc((size_t)vocab->n_ids + 1, sizeof *starts);
    *n = 0;
    for (int32_t id = 0; id < vocab->n_ids; id++) {
        int mark = -1;
        size_t before = text->size;
        for (int i = 0; i < MARK_KINDS; i++)
            if (vocab->marks[i] == id) mark = i;
        if (mark < 0 && never[id]) continue;
        if (mark < 0) tokenizer_piece(tokenizer, id, text);
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

static void end_nodes(struct vocab_build *build, int depth) {
    for (; build->depth > depth; build->depth--)
        build->v->nodes[build->path[build->depth]].end = build->v->n_nodes;
}

static void add_node(struct vocab_build *build, int symbol, int n_tokens) {
    struct vocab *vocab = build->v;
    int up = vocab->n_nodes > 0 ? build->path[build->depth] : -1;
    if (up >= 0) build->depth++;
    vocab->nodes = xgrow(vocab->nodes, vocab->n_nodes, &build->capacity, sizeof *vocab->nodes);
    vocab->nodes[vocab->n_nodes] = (struct vocab_node){.symbol = (uint16_t)symbol,
                                                       .depth = (uint16_t)build->depth,
                                                       .up = up,
                                                       .first_token = n_tokens};
    build->path[build->depth] = vocab->n_nodes;
    vocab->n_nodes++;
}

static void add_entry(struct vocab_build *build, const struct vocab_entry *entry, int n_tokens) {
    struct vocab *vocab = build->v;
    size_t shared = 0;
    while (shared < entry->size && shared < (size_t)build->depth &&
           vocab->nodes[build->path[shared + 1]].symbol == entry_symbol(entry, shared))
        shared++;
    end_nodes(build, (int)shared);
    for (size_t i = shared; i < entry->size; i++) add_node(build, entry_symbol(entry, i), n_tokens);
    vocab->depth = max_int(vocab->depth, build->depth);
    vocab->node_of[entry->id] = build->path[build->depth];
    vocab->tokens[n_tokens] = entry->id;
}

static bool has_token(const struct vocab_node *node) {
    return node[1].first_token > node->first_token;
}

static void find_single_bytes(struct vocab *vocab) {
    for (int i = 1; i < vocab->n_nodes; i = vocab->nodes[i].end)
        if (vocab->nodes[i].symbol < GRAMMAR_BYTES && has_token(&vocab->nodes[i]))
            vocab->writes[vocab->nodes[i].symbol] = true;
}

/* The node below `node` with this symbol, -1: there is none. */
static int find_child(const struct vocab *vocab, int node, int symbol) {
    for (int i = node + 1; i < vocab->nodes[node].end; i = vocab->nodes[i].end)
        if (vocab->nodes[i].symbol == symbol) return i;
    return -1;
}

bool vocab_writes(const struct vocab *vocab, const char *bytes, size_t size, bool character) {
    size_t single = 0;
    int node = 0;
    while (single < size && vocab->writes[(unsigned char)bytes[single]]) single++;
    if (single == size) return true;
    for (size_t i = 0; character && i < size && node >= 0; i++)
        node = find_child(vocab, node, (unsigned char)bytes[i]);
    return character && node > 0 && has_token(&vocab->nodes[node]);
}

void vocab_open(struct vocab *vocab, const struct tokenizer *tokenizer, int n_ids,
                const int32_t *ends, int n_ends) {
    struct vocab_build build = {.v = vocab};
    struct buffer text = {0};
    int n;
    *vocab = (struct vocab){.n_ids = min_int(n_ids, tokenizer_vocab_size(tokenizer))};
    bool *never = xcalloc((size_t)vocab->n_ids + 1, sizeof *never);
    for (int i = 0; i < MARK_KINDS; i++) {
        int32_t id =
            tokenizer_added_id(tokenizer, (struct text_span){mark_texts[i], strlen(mark_texts[i])});
        vocab->marks[i] = id < vocab->n_ids ? id : -1;
    }
    for (int32_t id = 0; id < vocab->n_ids; id++)
        never[id] = tokenizer_is_special(tokenizer, id) || is_among(ends, n_ends, id);
    struct vocab_entry *entries = list_entries(vocab, tokenizer, never, &text, &n);

    vocab->node_of = xmalloc(((size_t)vocab->n_ids + 1) * sizeof *vocab->node_of);
    for (int i = 0; i < vocab->n_ids; i++) vocab->node_of[i] = -1;
    vocab->tokens = xcalloc((size_t)n + 1, sizeof *vocab->tokens);
    add_node(&build, 0, 0);
    for (int i = 0; i < n; i++) add_entry(&build, &entries[i], i);
    end_nodes(&build, -1);
    vocab->nodes = xrealloc(vocab->nodes, ((size_t)vocab->n_nodes + 1) * sizeof *vocab->nodes);
    vocab->nodes[vocab->n_nodes] = (struct vocab_node){.first_token = n};
    find_single_bytes(vocab);
    buffer_free(&text);
    free(entries);
    free(never);
}

void vocab_close(struct vocab *vocab) {
    free(vocab->nodes);
    free(vocab->tokens);
    free(vocab->node_of);
    *vocab = (struct vocab){0};
}

int expr_of_mark(struct grammar_draft *draft, const struct vocab *vocab, enum grammar_mark mark) {
    return vocab->marks[mark] >= 0 ? expr_mark(draft, mark)
                                   : expr_word(draft, grammar_mark_text(mark));
}
