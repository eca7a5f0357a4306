/* retro/text/tokenizer_bpe.c: byte-level BPE of tokenizer.json: every byte is a symbol, and the pair with the lowest
 * rank is merged until none is left. A heap of pairs over a linked list makes a word of n bytes cost n log n. */
#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "retro/text/tokenizer_private.h"

struct merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: free slot */
    uint32_t rank;
    int32_t id;
};

struct bpe {
    struct pretokenizer pre;
    int32_t byte_ids[256]; /* -1: the vocabulary lacks the byte */
    int32_t unknown;       /* -1: such bytes vanish, as in the reference */
    bool fuse_unknown, ignore_merges;
    struct merge *merges;
    size_t mask;
    struct piece_table words;
};

enum { CACHE_SLOTS = 4096, CACHE_WORD = 24, CACHE_IDS = 8, CACHE_MIN_TEXT = 4096 };
/* A word met before in the same text and the tokens it became. */
struct cached_word {
    uint8_t size; /* 0: free */
    uint8_t n;
    uint8_t starts[CACHE_IDS];
    char word[CACHE_WORD];
    int32_t ids[CACHE_IDS];
};

struct heap_entry {
    uint32_t rank, at;
    int32_t id;
};
struct symbol {
    int32_t id; /* -1: merged into the symbol before it */
    int32_t previous, next;
    uint32_t start;
};
struct bpe_call {
    const struct tokenizer *t;
    const struct bpe *bpe;
    struct tokens *out;
    struct symbol *symbols;
    struct heap_entry *heap;
    size_t capacity, heap_size;
    struct cached_word *cache; /* NULL for short texts */
};

/* GPT-2 writes the byte b as a printable character: itself, or U+0100 + how many unprintable bytes come before it. */
static int32_t byte_character(int b) {
    bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    if (printable) return b;
    return 0x100 + (b <= ' ' ? b : b <= 0xA0 ? b - 0x7F + 33 : 67);
}

/* Bytes of a vocabulary entry; false when it has a character that stands for no byte (then it is text as it is). */
static bool entry_bytes(struct text_span entry, struct buffer *out) {
    buffer_clear(out);
    for (size_t i = 0; i < entry.size;) {
        int32_t c;
        i += (size_t)utf8_read(entry.text + i, entry.size - i, &c);
        int byte = c >= 0 && c < 0x100 ? c : c <= 0x120 ? c - 0x100 : c <= 0x142 ? c - 0x121 + 0x7F : 0xAD;
        if (c < 0 || byte_character(byte) != c) return false;
        char b = (char)byte;
        buffer_append(out, &b, 1);
    }
    return true;
}

static size_t merge_slot(const struct bpe *b, uint64_t pair) {
    size_t at = (pair * 0x9E3779B97F4A7C15u) >> 20 & b->mask;
    while (b->merges[at].pair != UINT64_MAX && b->merges[at].pair != pair) at = (at + 1) & b->mask;
    return at;
}

static const struct merge *merge_find(const struct bpe *b, int32_t left, int32_t right) {
    const struct merge *m = &b->merges[merge_slot(b, (uint64_t)left << 32 | (uint32_t)right)];
    return m->pair == UINT64_MAX ? NULL : m;
}

static enum status open_vocabulary(struct tokenizer *t, struct bpe *b, const struct json *vocab, struct error *e) {
    if (json_kind(vocab) != JSON_KIND_OBJECT || json_count(vocab) == 0)
        return error_set(e, STATUS_INVALID, "model.vocab: expected an object of tokens");
    struct buffer bytes = {0};
    bool *is_bytes = xcalloc(TOKENIZER_MAX_ID, 1);
    enum status status = STATUS_OK;
    for (struct json_entry it = {0}; json_next(vocab, &it);) {
        struct text_span key = it.name;
        const struct json *id = it.value;
        if (!json_is_int(id)) {
            status = error_set(e, STATUS_INVALID, "model.vocab: \"%.60s\": expected an integer", key.text);
            break;
        }
        bool known = entry_bytes(key, &bytes);
        struct text_span piece = known ? (struct text_span){bytes.data ? bytes.data : "", bytes.size} : key;
        status = pieces_set(t, json_int(id), piece, e);
        if (status != STATUS_OK) break;
        is_bytes[json_int(id)] = known;
    }
    if (status == STATUS_OK) {
        piece_table_open(&b->words, t, is_bytes);
        for (int k = 0; k < 256; k++) {
            char byte = (char)k;
            b->byte_ids[k] = piece_table_find(&b->words, t, &byte, 1);
        }
    }
    free(is_bytes);
    buffer_free(&bytes);
    return status;
}

static int32_t vocabulary_id(const struct json *vocab, struct text_span key) {
    const struct json *id = json_member_n(vocab, key);
    return id ? (int32_t)json_int(id) : -1;
}

/* "a b" or ["a", "b"] */
static bool merge_parts(const struct json *j, struct text_span *left, struct text_span *right) {
    if (json_is_list(j) && json_count(j) == 2 && json_is_text(json_item(j, 0)) && json_is_text(json_item(j, 1))) {
        *left = json_text(json_item(j, 0));
        *right = json_text(json_item(j, 1));
        return true;
    }
    if (!json_is_text(j)) return false;
    struct text_span both = json_text(j);
    const char *space = memchr(both.text, ' ', both.size);
    if (space == NULL || memchr(space + 1, ' ', (size_t)(both.text + both.size - space - 1)) != NULL) return false;
    *left = (struct text_span){both.text, (size_t)(space - both.text)};
    *right = (struct text_span){space + 1, both.size - left->size - 1};
    return true;
}

static enum status open_merge(struct bpe *b, const struct json *vocab, const struct json *j, uint32_t rank,
                              struct error *e) {
    struct text_span left, right;
    if (!merge_parts(j, &left, &right)) return error_set(e, STATUS_INVALID, "expected \"a b\" or [\"a\", \"b\"]");
    struct buffer whole = {0};
    buffer_append(&whole, left.text, left.size);
    buffer_append(&whole, right.text, right.size);
    int32_t l = vocabulary_id(vocab, left), r = vocabulary_id(vocab, right);
    int32_t id = vocabulary_id(vocab, (struct text_span){whole.data ? whole.data : "", whole.size});
    buffer_free(&whole);
    if (l < 0 || r < 0 || id < 0)
        return error_set(e, STATUS_INVALID, "\"%.60s\" + \"%.60s\": the %s is not in the vocabulary", left.text,
                         right.text,
                         l < 0   ? "left part"
                         : r < 0 ? "right part"
                                 : "result");
    uint64_t pair = (uint64_t)l << 32 | (uint32_t)r;
    b->merges[merge_slot(b, pair)] = (struct merge){pair, rank, id}; /* of two equal merges the later counts */
    return STATUS_OK;
}

static enum status open_merges(struct bpe *b, const struct json *vocab, const struct json *merges, struct error *e) {
    if (!json_is_list(merges)) return error_set(e, STATUS_INVALID, "model.merges: expected a list");
    size_t n = json_count(merges), slots = 64;
    if (n > TOKENIZER_MAX_ID) return error_set(e, STATUS_INVALID, "model.merges: more than %d", TOKENIZER_MAX_ID);
    while (slots < n * 2) slots *= 2;
    b->mask = slots - 1;
    b->merges = xmalloc(slots * sizeof *b->merges);
    memset(b->merges, 0xFF, slots * sizeof *b->merges);
    for (size_t i = 0; i < n; i++)
        if (open_merge(b, vocab, json_item(merges, i), (uint32_t)i, e) != STATUS_OK)
            return error_prefix(e, "model.merges[%zu]", i);
    return STATUS_OK;
}

/* Options that change ids and that byte-level BPE does not use must be off. */
static enum status open_options(struct bpe *b, const struct json *model, struct error *e) {
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const struct json *dropout = json_member(model, "dropout");
    if (!json_is_absent(dropout) && json_double(dropout) != 0)
        return error_set(e, STATUS_UNSUPPORTED, "model.dropout: expected null: tokens would be random");
    for (size_t i = 0; i < ARRAY_COUNT(affixes); i++) {
        const struct json *v = json_member(model, affixes[i]);
        if (!json_is_absent(v) && json_text(v).size != 0)
            return error_set(e, STATUS_UNSUPPORTED, "model.%s: expected null or \"\"", affixes[i]);
    }
    bool byte_fallback;
    enum status status = json_get_bool(model, "byte_fallback", false, &byte_fallback, e);
    if (status == STATUS_OK && byte_fallback)
        status = error_set(e, STATUS_UNSUPPORTED, "model.byte_fallback: not supported with byte-level BPE");
    if (status == STATUS_OK) status = json_get_bool(model, "fuse_unk", false, &b->fuse_unknown, e);
    if (status == STATUS_OK) status = json_get_bool(model, "ignore_merges", false, &b->ignore_merges, e);
    return status;
}

static void heap_push(struct bpe_call *c, struct heap_entry entry) {
    size_t i = c->heap_size++;
    for (; i > 0; i = (i - 1) / 2) {
        const struct heap_entry *up = &c->heap[(i - 1) / 2];
        if (up->rank < entry.rank || (up->rank == entry.rank && up->at < entry.at)) break;
        c->heap[i] = *up;
    }
    c->heap[i] = entry;
}

static struct heap_entry heap_pop(struct bpe_call *c) {
    struct heap_entry top = c->heap[0], last = c->heap[--c->heap_size];
    size_t i = 0;
    for (size_t k = 1; k < c->heap_size; k = 2 * i + 1) {
        const struct heap_entry *h = c->heap;
        if (k + 1 < c->heap_size &&
            (h[k + 1].rank < h[k].rank || (h[k + 1].rank == h[k].rank && h[k + 1].at < h[k].at)))
            k++;
        if (last.rank < h[k].rank || (last.rank == h[k].rank && last.at <= h[k].at)) break;
        c->heap[i] = c->heap[k];
        i = k;
    }
    c->heap[i] = last;
    return top;
}

static void push_pair(struct bpe_call *c, int32_t at) {
    int32_t next = at >= 0 ? c->symbols[at].next : -1;
    if (next < 0) return;
    const struct merge *m = merge_find(c->bpe, c->symbols[at].id, c->symbols[next].id);
    if (m != NULL) heap_push(c, (struct heap_entry){m->rank, (uint32_t)at, m->id});
}

static void merge_symbols(struct bpe_call *c, int n) {
    c->heap_size = 0;
    for (int i = 0; i + 1 < n; i++) push_pair(c, i);
    while (c->heap_size > 0) {
        struct heap_entry top = heap_pop(c);
        struct symbol *s = &c->symbols[top.at];
        if (s->id < 0 || s->next < 0) continue;
        struct symbol *right = &c->symbols[s->next];
        /* An entry is stale once either of its symbols has been merged into something else. */
        const struct merge *m = merge_find(c->bpe, s->id, right->id);
        if (m == NULL || m->id != top.id) continue;
        s->id = top.id;
        right->id = -1;
        s->next = right->next;
        if (s->next >= 0) c->symbols[s->next].previous = (int32_t)top.at;
        push_pair(c, s->previous);
        push_pair(c, (int32_t)top.at);
    }
}

/* One symbol per byte the vocabulary has; the rest is unknown. Returns their number. */
static int split_bytes(struct bpe_call *c, const struct mapped_text *word) {
    int n = 0;
    bool unknown = false;
    for (size_t i = 0; i < word->size; i++) {
        int32_t id = c->bpe->byte_ids[(uint8_t)word->text[i]];
        bool was = unknown;
        unknown = id < 0;
        if (unknown) id = c->bpe->unknown;
        if (id < 0 || (unknown && was && c->bpe->fuse_unknown)) continue;
        c->symbols[n] = (struct symbol){id, n - 1, n + 1, (uint32_t)i};
        n++;
    }
    if (n > 0) c->symbols[n - 1].next = -1;
    return n;
}

static void encode_word(struct bpe_call *c, const struct mapped_text *word) {
    int32_t whole = c->bpe->ignore_merges ? piece_table_find(&c->bpe->words, c->t, word->text, word->size) : -1;
    if (whole >= 0) {
        tokens_append(c->out, whole, mapped_origin(word, 0));
        return;
    }
    if (word->size > c->capacity) {
        c->capacity = word->size * 2;
        c->symbols = xrealloc(c->symbols, c->capacity * sizeof *c->symbols);
        /* n - 1 pairs to begin with, and at most two more for each of at most n - 1 merges. */
        c->heap = xrealloc(c->heap, c->capacity * 3 * sizeof *c->heap);
    }
    int n = split_bytes(c, word);
    merge_symbols(c, n);
    for (int i = n > 0 ? 0 : -1; i >= 0; i = c->symbols[i].next)
        tokens_append(c->out, c->symbols[i].id, mapped_origin(word, c->symbols[i].start));
}

static enum status take_word(void *context, const struct mapped_text *word, struct error *e) {
    (void)e;
    struct bpe_call *c = context;
    if (c->cache == NULL || word->size > CACHE_WORD) {
        encode_word(c, word);
        return STATUS_OK;
    }
    struct cached_word *w = &c->cache[hash_bytes(word->text, word->size, 0) % CACHE_SLOTS];
    if (w->size == word->size && memcmp(w->word, word->text, word->size) == 0) {
        for (int i = 0; i < w->n; i++) tokens_append(c->out, w->ids[i], mapped_origin(word, w->starts[i]));
        return STATUS_OK;
    }
    int before = c->out->n;
    encode_word(c, word);
    int n = c->out->n - before;
    /* Offsets inside the word can be kept only where it is contiguous in the original text. */
    if (n > CACHE_IDS || word->origin != NULL) return STATUS_OK;
    w->size = (uint8_t)word->size;
    w->n = (uint8_t)n;
    memcpy(w->word, word->text, word->size);
    for (int i = 0; i < n; i++) {
        w->ids[i] = c->out->ids[before + i];
        w->starts[i] = (uint8_t)(c->out->starts[before + i] - word->base);
    }
    return STATUS_OK;
}

static void *bpe_begin(const struct tokenizer *t, size_t size) {
    struct bpe_call *c = xcalloc(1, sizeof *c);
    c->t = t;
    c->bpe = t->model;
    if (size >= CACHE_MIN_TEXT) c->cache = xcalloc(CACHE_SLOTS, sizeof *c->cache);
    return c;
}

static void bpe_end(void *call) {
    struct bpe_call *c = call;
    free(c->symbols);
    free(c->heap);
    free(c->cache);
    free(c);
}

static enum status bpe_encode(const struct tokenizer *t, void *call, const struct mapped_text *text, struct tokens *out,
                              struct error *e) {
    struct bpe_call *c = call;
    const struct bpe *b = t->model;
    c->out = out;
    return pretokenizer_run(&b->pre, text, &(struct piece_sink){take_word, c}, e);
}

static void bpe_piece(const struct tokenizer *t, int32_t id, bool *started, struct buffer *out) {
    *started = true;
    buffer_append(out, t->pieces[id].bytes, t->pieces[id].size);
}

static void bpe_close(void *model) {
    struct bpe *b = model;
    pretokenizer_close(&b->pre);
    free(b->merges);
    free(b->words.slots);
    free(b);
}

static const struct model_ops bpe_ops = {bpe_encode, bpe_begin, bpe_end, bpe_piece, bpe_close};

enum status bpe_open(struct tokenizer *t, const struct json *root, struct error *e) {
    const struct json *model = json_member(root, "model");
    const struct json *vocab = json_member(model, "vocab");
    const struct json *unknown = json_member(model, "unk_token"), *decoder = json_member(root, "decoder");
    struct bpe *b = xcalloc(1, sizeof *b);
    t->model = b;
    t->ops = &bpe_ops;
    enum status status = open_options(b, model, e);
    if (status == STATUS_OK) status = json_open_pretokenizer(&b->pre, json_member(root, "pre_tokenizer"), true, e);
    if (status == STATUS_OK) status = open_vocabulary(t, b, vocab, e);
    if (status == STATUS_OK) status = open_merges(b, vocab, json_member(model, "merges"), e);
    if (status != STATUS_OK) return status;
    b->unknown = json_is_text(unknown) ? vocabulary_id(vocab, json_text(unknown)) : -1;
    if (json_is_text(unknown) && b->unknown < 0)
        return error_set(e, STATUS_INVALID, "model.unk_token: \"%.60s\" is not in the vocabulary",
                         json_text(unknown).text);
    if (strcmp(json_type_name(decoder), "ByteLevel") != 0)
        return error_set(e, STATUS_UNSUPPORTED, "decoder: type \"%.40s\": expected ByteLevel", json_type_name(decoder));
    return STATUS_OK;
}
