/* retro/text/tokenizer_unigram.c: Unigram of tokenizer.json: of all ways to cut a word into pieces,
 * the one with the largest sum of scores. libsentencepiece is not used here: it adds scores as
 * float, the tokenizers library as double, and between equal sums ("00"+"0" and "0"+"00") the
 * rounding decides. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "retro/text/tokenizer_private.h"

static const double unknown_penalty = 10; /* below the smallest score of the vocabulary */

enum { TRIE_MAX_NODES = 1 << 24 };
/* A trie of pieces as one table: the node reached from another by a byte. Node 0 is the root. */
struct trie {
    struct trie_edge {
        uint32_t key; /* node << 8 | byte */
        uint32_t to;  /* 0: free, because no edge leads to the root */
    } * edges;
    size_t mask;
    int32_t *ids; /* by node: the piece that ends there, or -1 */
    int n, capacity;
};

struct unigram {
    struct trie trie;
    struct pretokenizer pre;
    double *scores; /* of every id of model.vocab */
    double unknown_score;
    int32_t unknown;
    int32_t
        byte_ids[256]; /* what unknown characters become; byte_ids[0] == -1: the unknown token */
    struct decoder decoder;
};

/* The best way to a byte of the word. */
struct unigram_node {
    double score;
    uint32_t start; /* where the last piece begins */
    int32_t id;     /* the last piece; -1: not reached */
};
struct unigram_call {
    const struct tokenizer *t;
    struct tokens *out;
    struct unigram_node *nodes;
    uint32_t *cuts; /* ends of the pieces of the best way, last first */
    size_t capacity;
};

static size_t trie_slot(const struct trie *trie, uint32_t key) {
    size_t at = (key * 0x9E3779B97F4A7C15u) >> 32 & trie->mask;
    while (trie->edges[at].to != 0 && trie->edges[at].key != key) at = (at + 1) & trie->mask;
    return at;
}

/* The node after `node` and a byte; 0 when there is none. */
static uint32_t trie_step(const struct trie *trie, uint32_t node, char byte) {
    uint32_t key = node << 8 | (uint8_t)byte;
    return trie->edges[trie_slot(trie, key)].to;
}

static void trie_grow_edges(struct trie *trie, size_t slots) {
    struct trie_edge *old = trie->edges;
    size_t n = old == NULL ? 0 : trie->mask + 1;
    trie->edges = xcalloc(slots, sizeof *trie->edges);
    trie->mask = slots - 1;
    for (size_t i = 0; i < n; i++)
        if (old[i].to != 0) trie->edges[trie_slot(trie, old[i].key)] = old[i];
    free(old);
}

static uint32_t trie_add_node(struct trie *trie) {
    trie->ids = xgrow(trie->ids, trie->n, &trie->capacity, sizeof *trie->ids);
    uint32_t node = (uint32_t)trie->n;
    trie->ids[node] = -1;
    trie->n++;
    return node;
}

static void trie_open(struct trie *trie) {
    trie_grow_edges(trie, 1024);
    trie_add_node(trie);
}

static enum status trie_insert(struct trie *trie, const struct piece *piece, int32_t id,
                               struct error *e) {
    uint32_t node = 0;
    for (uint32_t i = 0; i < piece->size; i++) {
        uint32_t key = node << 8 | (uint8_t)piece->bytes[i],
                 next = trie_step(trie, node, piece->bytes[i]);
        if (next == 0) {
            if (trie->n == TRIE_MAX_NODES)
                return error_set(e, STATUS_UNSUPPORTED, "the pieces have more than %d prefixes",
                                 TRIE_MAX_NODES);
            if ((size_t)trie->n * 2 > trie->mask) trie_grow_edges(trie, (trie->mask + 1) * 2);
            next = trie_add_node(trie);
            trie->edges[trie_slot(trie, key)] = (struct trie_edge){key, next};
        }
        node = next;
    }
    if (node != 0) trie->ids[node] = id;
    return STATUS_OK;
}

static void node_reach(struct unigram_node *node, double score, size_t start, int32_t id) {
    if (node->id >= 0 && score <= node->score) return;
    *node = (struct unigram_node){score, (uint32_t)start, id};
}

/* Fills the call's nodes for a word. Special tokens and marks are never made of text. */
static void find_ways(struct unigram_call *call, const struct mapped_text *word) {
    const struct unigram *unigram = call->t->model;
    for (size_t i = 1; i <= word->size; i++) call->nodes[i].id = -1;
    call->nodes[0] = (struct unigram_node){0, 0, 0};

    for (size_t start = 0; start < word->size;) {
        double score = call->nodes[start].score;
        size_t character = (size_t)utf8_length(word->text + start, word->size - start);
        bool single = false;
        uint32_t node = 0;
        for (size_t end = start; end < word->size;) {
            node = trie_step(&unigram->trie, node, word->text[end]);
            if (node == 0) break;
            end++;
            int32_t id = unigram->trie.ids[node];
            if (id < 0 || call->t->pieces[id].special || call->t->pieces[id].mark) continue;
            node_reach(&call->nodes[end], unigram->scores[id] + score, start, id);
            single = single || end == start + character;
        }
        if (!single)
            node_reach(&call->nodes[start + character], unigram->unknown_score + score, start,
                       unigram->unknown);
        start += character;
    }
}

static void append_unknown(struct unigram_call *call, const struct mapped_text *word, size_t start,
                           size_t end) {
    const struct unigram *unigram = call->t->model;
    if (unigram->byte_ids[0] < 0) {
        tokens_append(call->out, unigram->unknown, mapped_origin(word, start));
        return;
    }
    for (size_t i = start; i < end; i++)
        tokens_append(call->out, unigram->byte_ids[(uint8_t)word->text[i]], mapped_origin(word, i));
}

/* Neighbouring unknown characters are one token. */
static void append_best(struct unigram_call *call, const struct mapped_text *word) {
    const struct unigram *unigram = call->t->model;
    size_t n = 0;
    for (size_t end = word->size; end > 0; end = call->nodes[end].start) {
        call->cuts[n] = (uint32_t)end;
        n++;
    }

    size_t start = 0;
    while (n > 0) {
        n--;
        size_t end = call->cuts[n];
        int32_t id = call->nodes[end].id;
        if (id == unigram->unknown) {
            for (; n > 0 && call->nodes[call->cuts[n - 1]].id == unigram->unknown; n--)
                end = call->cuts[n - 1];
            append_unknown(call, word, start, end);
        } else {
            tokens_append(call->out, id, mapped_origin(word, start));
        }
        start = end;
    }
}

static enum status take_word(void *context, const struct mapped_text *word, struct error *e) {
    (void)e;
    struct unigram_call *call = context;
    if (word->size >= call->capacity) {
        call->capacity = word->size * 2 + 64;
        call->nodes = xrealloc(call->nodes, call->capacity * sizeof *call->nodes);
        call->cuts = xrealloc(call->cuts, call->capacity * sizeof *call->cuts);
    }
    find_ways(call, word);
    append_best(call, word);
    return STATUS_OK;
}

static void *unigram_begin(const struct tokenizer *tokenizer, size_t size) {
    (void)size;
    struct unigram_call *call = xcalloc(1, sizeof *call);
    call->t = tokenizer;
    return call;
}

static void unigram_end(void *call) {
    struct unigram_call *unigram_call = call;
    free(unigram_call->nodes);
    free(unigram_call->cuts);
    free(unigram_call);
}

static enum status unigram_encode(const struct tokenizer *tokenizer, void *call,
                                  const struct mapped_text *text, struct tokens *out,
                                  struct error *e) {
    struct unigram_call *unigram_call = call;
    const struct unigram *unigram = tokenizer->model;
    unigram_call->out = out;
    return pretokenizer_run(&unigram->pre, text, &(struct piece_sink){take_word, unigram_call}, e);
}

static void unigram_piece(const struct tokenizer *tokenizer, int32_t id, bool *started,
                          struct buffer *out) {
    const struct unigram *unigram = tokenizer->model;
    decoder_write(&unigram->decoder,
                  (struct text_span){tokenizer->pieces[id].bytes, tokenizer->pieces[id].size},
                  started, out);
}

static void unigram_close(void *model) {
    struct unigram *unigram = model;
    pretokenizer_close(&unigram->pre);
    decoder_close(&unigram->decoder);
    free(unigram->trie.edges);
    free(unigram->trie.ids);
    free(unigram->scores);
    free(unigram);
}

static const struct model_ops unigram_ops = {unigram_encode, unigram_begin, unigram_end,
                                             unigram_piece, unigram_close};

static enum status open_pieces(struct tokenizer *tokenizer, struct unigram *unigram,
                               const struct json *vocab, struct error *e) {
    size_t n = json_count(vocab);
    if (n == 0 || n > TOKENIZER_MAX_ID)
        return error_set(e, STATUS_INVALID, "model.vocab: expected a list of 1 to %d pieces",
                         TOKENIZER_MAX_ID);
    unigram->scores = xcalloc(n, sizeof *unigram->scores);
    trie_open(&unigram->trie);
    double least = INFINITY;
    for (size_t i = 0; i < n; i++) {
        const struct json *entry = json_item(vocab, i), *piece = json_item(entry, 0);
        const struct json *score = json_item(entry, 1);
        if (!json_is_text(piece) || !json_is_numeric(score))
            return error_set(e, STATUS_INVALID, "model.vocab[%zu]: expected [\"piece\", score]", i);
        unigram->scores[i] = json_double(score);
        least = fmin(least, unigram->scores[i]);
        if (pieces_set(tokenizer, (int64_t)i, json_text(piece), e) != STATUS_OK ||
            trie_insert(&unigram->trie, &tokenizer->pieces[i], (int32_t)i, e) != STATUS_OK)
            return error_prefix(e, "model.vocab[%zu]", i);
    }
    unigram->unknown_score = least - unknown_penalty;
    return STATUS_OK;
}

/* Unknown characters become bytes where the vocabulary has all of them. */
static enum status open_bytes(struct tokenizer *tokenizer, struct unigram *unigram,
                              const struct json *model, struct error *e) {
    bool fallback;
    memset(unigram->byte_ids, 0xFF, sizeof unigram->byte_ids);
    if (json_get_bool(model, "byte_fallback", false, &fallback, e) != STATUS_OK) return e->status;
    if (!fallback) return STATUS_OK;
    for (int id = 0; id < tokenizer->vocab_size; id++) {
        int byte =
            piece_byte((struct text_span){tokenizer->pieces[id].bytes, tokenizer->pieces[id].size});
        if (byte >= 0) unigram->byte_ids[byte] = id;
    }
    for (int k = 0; k < 256; k++)
        if (unigram->byte_ids[k] < 0)
            return error_set(e, STATUS_INVALID,
                             "model.byte_fallback: <0x%02X> is not in the vocabulary", k);
    return STATUS_OK;
}

enum status unigram_open(struct tokenizer *tokenizer, const struct json *root, struct error *e) {
    const struct json *model = json_member(root, "model"), *unknown = json_member(model, "unk_id");
    struct unigram *unigram = xcalloc(1, sizeof *unigram);
    tokenizer->model = unigram;
    tokenizer->ops = &unigram_ops;
    if (json_open_pretokenizer(&unigram->pre, json_member(root, "pre_tokenizer"), NULL, e) !=
            STATUS_OK ||
        open_pieces(tokenizer, unigram, json_member(model, "vocab"), e) != STATUS_OK)
        return e->status;
    if (!json_is_int(unknown) || json_int(unknown) < 0 ||
        json_int(unknown) >= tokenizer->vocab_size)
        return error_set(e, STATUS_INVALID,
                         "model.unk_id: expected an id of the vocabulary, 0 to %d",
                         tokenizer->vocab_size - 1);
    unigram->unknown = (int32_t)json_int(unknown);
    if (open_bytes(tokenizer, unigram, model, e) != STATUS_OK) return e->status;
    return decoder_open(&unigram->decoder, json_member(root, "decoder"), e);
}
