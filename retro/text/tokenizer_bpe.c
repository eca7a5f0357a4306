/* retro/text/tokenizer_bpe.c: BPE of tokenizer.json: every byte or every character is a symbol, and the pair with the
 * lowest rank is merged until none is left. A heap of pairs over a linked list makes a word of n bytes cost n log n.
 * See tokenizer_bpe.h. */
#include "retro/text/tokenizer_bpe.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"

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

static const struct merge *merge_find(const struct bpe *b, int32_t left, int32_t right) {
    const struct merge *m = &b->merges[picture_rows_slot(b, (uint64_t)left << 32 | (uint32_t)right)];
    return m->pair == UINT64_MAX ? NULL : m;
}

static void heap_push(struct bpe_call *c, struct heap_entry entry) {
    size_t i = c->heap_size;
    c->heap_size++;
    for (; i > 0; i = (i - 1) / 2) {
        const struct heap_entry *up = &c->heap[(i - 1) / 2];
        if (up->rank < entry.rank || (up->rank == entry.rank && up->at < entry.at)) break;
        c->heap[i] = *up;
    }
    c->heap[i] = entry;
}

static struct heap_entry heap_pop(struct bpe_call *c) {
    c->heap_size--;
    struct heap_entry top = c->heap[0], last = c->heap[c->heap_size];
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

static void append_symbol(struct bpe_call *c, int *n, int32_t id, size_t start) {
    c->symbols[*n] = (struct symbol){id, *n - 1, *n + 1, (uint32_t)start};
    (*n)++;
}

/* One symbol per byte the vocabulary has; the rest is unknown. Returns their number. */
static int split_bytes(struct bpe_call *c, const struct mapped_text *word) {
    int n = 0;
    bool unknown = false;
    for (size_t i = 0; i < word->size; i++) {
        const int32_t *ids = i + 1 < word->size ? c->bpe->byte_ids : c->bpe->last_ids;
        int32_t id = ids[(uint8_t)word->text[i]];
        bool was = unknown;
        unknown = id < 0;
        if (unknown) id = c->bpe->unknown;
        if (id < 0 || (unknown && was && c->bpe->fuse_unknown)) continue;
        append_symbol(c, &n, id, i);
    }
    return n;
}

/* Whether the vocabulary has the bytes of a character as <0xNN>. */
static bool has_fallback(const struct bpe *b, struct text_span character) {
    for (size_t i = 0; i < character.size; i++)
        if (b->byte_ids[(uint8_t)character.text[i]] < 0) return false;
    return true;
}

/* One symbol per character the vocabulary has; the rest becomes bytes, or is unknown. Returns their number. An unknown
 * token waits for the next known character, because others may join it; as in the reference, bytes pass it by. */
static int split_characters(struct bpe_call *c, const struct mapped_text *word) {
    const struct bpe *b = c->bpe;
    int n = 0;
    bool waits = false;
    size_t unknown_at = 0;
    for (size_t i = 0; i < word->size;) {
        const char *text = word->text + i;
        size_t size = (size_t)utf8_length(text, word->size - i);
        bool ascii = (uint8_t)*text < 0x80;
        int32_t id = ascii ? b->ascii_ids[(uint8_t)*text] : piece_table_find(&b->words, c->t, text, size);
        if (id >= 0) {
            if (waits) append_symbol(c, &n, b->unknown, unknown_at);
            waits = false;
            append_symbol(c, &n, id, i);
        } else if (has_fallback(b, (struct text_span){text, size})) {
            for (size_t k = 0; k < size; k++) append_symbol(c, &n, b->byte_ids[(uint8_t)text[k]], i + k);
        } else if (b->unknown >= 0 && !(waits && b->fuse_unknown)) {
            if (waits) append_symbol(c, &n, b->unknown, unknown_at);
            waits = true;
            unknown_at = i;
        }
        i += size;
    }
    if (waits) append_symbol(c, &n, b->unknown, unknown_at);
    return n;
}

static void encode_word(struct bpe_call *c, const struct mapped_text *word) {
    int32_t whole = c->bpe->ignore_merges ? piece_table_find(&c->bpe->words, c->t, word->text, word->size) : -1;
    if (whole >= 0 && !c->t->pieces[whole].mark) {
        tokens_append(c->out, whole, mapped_origin(word, 0));
        return;
    }
    if (word->size > c->capacity) {
        c->capacity = word->size * 2;
        c->symbols = xrealloc(c->symbols, c->capacity * sizeof *c->symbols);
        /* n - 1 pairs to begin with, and at most two more for each of at most n - 1 merges. */
        c->heap = xrealloc(c->heap, c->capacity * 3 * sizeof *c->heap);
    }
    int n = c->bpe->byte_level ? split_bytes(c, word) : split_characters(c, word);
    if (n > 0) c->symbols[n - 1].next = -1;
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
    const struct bpe *b = t->model;
    struct text_span piece = {t->pieces[id].bytes, t->pieces[id].size};
    if (!b->byte_level) {
        decoder_write(&b->decoder, piece, started, out);
        return;
    }
    *started = true;
    buffer_append(out, piece.text, piece.size);
}

static void bpe_close(void *model) {
    struct bpe *b = model;
    pretokenizer_close(&b->pre);
    decoder_close(&b->decoder);
    free(b->merges);
    free(b->words.slots);
    free(b);
}

static const struct model_ops bpe_ops = {bpe_encode, bpe_begin, bpe_end, bpe_piece, bpe_close};

enum status bpe_open(struct tokenizer *t, const struct json *root, struct error *e) {
    struct bpe *b = xcalloc(1, sizeof *b);
    t->model = b;
    t->ops = &bpe_ops;
    return bpe_read(t, b, root, e);
}
