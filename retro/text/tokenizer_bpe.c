/* retro/text/tokenizer_bpe.c: BPE of tokenizer.json: every byte or every character is a symbol, and
 * the pair with the lowest rank is merged until none is left. A heap of pairs over a linked list
 * makes a word of n bytes cost n log n. See tokenizer_bpe.h. */
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

static const struct merge *merge_find(const struct bpe *bpe, int32_t left, int32_t right) {
    const struct merge *merge =
        &bpe->merges[picture_rows_slot(bpe, (uint64_t)left << 32 | (uint32_t)right)];
    return merge->pair == UINT64_MAX ? NULL : merge;
}

static void heap_push(struct bpe_call *call, struct heap_entry entry) {
    size_t i = call->heap_size;
    call->heap_size++;
    for (; i > 0; i = (i - 1) / 2) {
        const struct heap_entry *up = &call->heap[(i - 1) / 2];
        if (up->rank < entry.rank || (up->rank == entry.rank && up->at < entry.at)) break;
        call->heap[i] = *up;
    }
    call->heap[i] = entry;
}

static struct heap_entry heap_pop(struct bpe_call *call) {
    call->heap_size--;
    struct heap_entry top = call->heap[0], last = call->heap[call->heap_size];
    size_t i = 0;
    for (size_t k = 1; k < call->heap_size; k = 2 * i + 1) {
        const struct heap_entry *entry = call->heap;
        if (k + 1 < call->heap_size &&
            (entry[k + 1].rank < entry[k].rank ||
             (entry[k + 1].rank == entry[k].rank && entry[k + 1].at < entry[k].at)))
            k++;
        if (last.rank < entry[k].rank || (last.rank == entry[k].rank && last.at <= entry[k].at))
            break;
        call->heap[i] = call->heap[k];
        i = k;
    }
    call->heap[i] = last;
    return top;
}

static void push_pair(struct bpe_call *call, int32_t at) {
    int32_t next = at >= 0 ? call->symbols[at].next : -1;
    if (next < 0) return;
    const struct merge *merge = merge_find(call->bpe, call->symbols[at].id, call->symbols[next].id);
    if (merge != NULL) heap_push(call, (struct heap_entry){merge->rank, (uint32_t)at, merge->id});
}

static void merge_symbols(struct bpe_call *call, int n) {
    call->heap_size = 0;
    for (int i = 0; i + 1 < n; i++) push_pair(call, i);
    while (call->heap_size > 0) {
        struct heap_entry top = heap_pop(call);
        struct symbol *symbol = &call->symbols[top.at];
        if (symbol->id < 0 || symbol->next < 0) continue;
        struct symbol *right = &call->symbols[symbol->next];
        /* An entry is stale once either of its symbols has been merged into something else. */
        const struct merge *merge = merge_find(call->bpe, symbol->id, right->id);
        if (merge == NULL || merge->id != top.id) continue;
        symbol->id = top.id;
        right->id = -1;
        symbol->next = right->next;
        if (symbol->next >= 0) call->symbols[symbol->next].previous = (int32_t)top.at;
        push_pair(call, symbol->previous);
        push_pair(call, (int32_t)top.at);
    }
}

static void append_symbol(struct bpe_call *call, int *n, int32_t id, size_t start) {
    call->symbols[*n] = (struct symbol){id, *n - 1, *n + 1, (uint32_t)start};
    (*n)++;
}

/* One symbol per byte the vocabulary has; the rest is unknown. Returns their number. */
static int split_bytes(struct bpe_call *call, const struct mapped_text *word) {
    int n = 0;
    bool unknown = false;
    for (size_t i = 0; i < word->size; i++) {
        const int32_t *ids = i + 1 < word->size ? call->bpe->byte_ids : call->bpe->last_ids;
        int32_t id = ids[(uint8_t)word->text[i]];
        bool was = unknown;
        unknown = id < 0;
        if (unknown) id = call->bpe->unknown;
        if (id < 0 || (unknown && was && call->bpe->fuse_unknown)) continue;
        append_symbol(call, &n, id, i);
    }
    return n;
}

/* Whether the vocabulary has the bytes of a character as <0xNN>. */
static bool has_fallback(const struct bpe *bpe, struct text_span character) {
    for (size_t i = 0; i < character.size; i++)
        if (bpe->byte_ids[(uint8_t)character.text[i]] < 0) return false;
    return true;
}

/* One symbol per character the vocabulary has; the rest becomes bytes, or is unknown. Returns their
 * number. An unknown token waits for the next known character, because others may join it; as in
 * the reference, bytes pass it by. */
static int split_characters(struct bpe_call *call, const struct mapped_text *word) {
    const struct bpe *bpe = call->bpe;
    int n = 0;
    bool waits = false;
    size_t unknown_at = 0;
    for (size_t i = 0; i < word->size;) {
        const char *text = word->text + i;
        size_t size = (size_t)utf8_length(text, word->size - i);
        bool ascii = (uint8_t)*text < 0x80;
        int32_t id = ascii ? bpe->ascii_ids[(uint8_t)*text]
                           : piece_table_find(&bpe->words, call->t, text, size);
        if (id >= 0) {
            if (waits) append_symbol(call, &n, bpe->unknown, unknown_at);
            waits = false;
            append_symbol(call, &n, id, i);
        } else if (has_fallback(bpe, (struct text_span){text, size})) {
            for (size_t k = 0; k < size; k++)
                append_symbol(call, &n, bpe->byte_ids[(uint8_t)text[k]], i + k);
        } else if (bpe->unknown >= 0 && !(waits && bpe->fuse_unknown)) {
            if (waits) append_symbol(call, &n, bpe->unknown, unknown_at);
            waits = true;
            unknown_at = i;
        }
        i += size;
    }
    if (waits) append_symbol(call, &n, bpe->unknown, unknown_at);
    return n;
}

static void encode_word(struct bpe_call *call, const struct mapped_text *word) {
    int32_t whole = call->bpe->ignore_merges
                        ? piece_table_find(&call->bpe->words, call->t, word->text, word->size)
                        : -1;
    if (whole >= 0 && !call->t->pieces[whole].mark) {
        tokens_append(call->out, whole, mapped_origin(word, 0));
        return;
    }
    if (word->size > call->capacity) {
        call->capacity = word->size * 2;
        call->symbols = xrealloc(call->symbols, call->capacity * sizeof *call->symbols);
        /* n - 1 pairs to begin with, and at most two more for each of at most n - 1 merges. */
        call->heap = xrealloc(call->heap, call->capacity * 3 * sizeof *call->heap);
    }
    int n = call->bpe->byte_level ? split_bytes(call, word) : split_characters(call, word);
    if (n > 0) call->symbols[n - 1].next = -1;
    merge_symbols(call, n);
    for (int i = n > 0 ? 0 : -1; i >= 0; i = call->symbols[i].next)
        tokens_append(call->out, call->symbols[i].id, mapped_origin(word, call->symbols[i].start));
}

static enum status take_word(void *context, const struct mapped_text *word, struct error *e) {
    (void)e;
    struct bpe_call *call = context;
    if (call->cache == NULL || word->size > CACHE_WORD) {
        encode_word(call, word);
        return STATUS_OK;
    }
    struct cached_word *cached_word =
        &call->cache[hash_bytes(word->text, word->size, 0) % CACHE_SLOTS];
    if (cached_word->size == word->size && memcmp(cached_word->word, word->text, word->size) == 0) {
        for (int i = 0; i < cached_word->n; i++)
            tokens_append(call->out, cached_word->ids[i],
                          mapped_origin(word, cached_word->starts[i]));
        return STATUS_OK;
    }
    int before = call->out->n;
    encode_word(call, word);
    int n = call->out->n - before;
    /* Offsets inside the word can be kept only where it is contiguous in the original text. */
    if (n > CACHE_IDS || word->origin != NULL) return STATUS_OK;
    cached_word->size = (uint8_t)word->size;
    cached_word->n = (uint8_t)n;
    memcpy(cached_word->word, word->text, word->size);
    for (int i = 0; i < n; i++) {
        cached_word->ids[i] = call->out->ids[before + i];
        cached_word->starts[i] = (uint8_t)(call->out->starts[before + i] - word->base);
    }
    return STATUS_OK;
}

static void *bpe_begin(const struct tokenizer *tokenizer, size_t size) {
    struct bpe_call *call = xcalloc(1, sizeof *call);
    call->t = tokenizer;
    call->bpe = tokenizer->model;
    if (size >= CACHE_MIN_TEXT) call->cache = xcalloc(CACHE_SLOTS, sizeof *call->cache);
    return call;
}

static void bpe_end(void *call) {
    struct bpe_call *bpe_call = call;
    free(bpe_call->symbols);
    free(bpe_call->heap);
    free(bpe_call->cache);
    free(bpe_call);
}

static enum status bpe_encode(const struct tokenizer *tokenizer, void *call,
                              const struct mapped_text *text, struct tokens *out, struct error *e) {
    struct bpe_call *bpe_call = call;
    const struct bpe *bpe = tokenizer->model;
    bpe_call->out = out;
    return pretokenizer_run(&bpe->pre, text, &(struct piece_sink){take_word, bpe_call}, e);
}

static void bpe_piece(const struct tokenizer *tokenizer, int32_t id, bool *started,
                      struct buffer *out) {
    const struct bpe *bpe = tokenizer->model;
    struct text_span piece = {tokenizer->pieces[id].bytes, tokenizer->pieces[id].size};
    if (!bpe->byte_level) {
        decoder_write(&bpe->decoder, piece, started, out);
        return;
    }
    *started = true;
    buffer_append(out, piece.text, piece.size);
}

static void bpe_close(void *model) {
    struct bpe *bpe = model;
    pretokenizer_close(&bpe->pre);
    decoder_close(&bpe->decoder);
    free(bpe->merges);
    free(bpe->words.slots);
    free(bpe);
}

static const struct model_ops bpe_ops = {bpe_encode, bpe_begin, bpe_end, bpe_piece, bpe_close};

enum status bpe_open(struct tokenizer *tokenizer, const struct json *root, struct error *e) {
    struct bpe *bpe = xcalloc(1, sizeof *bpe);
    tokenizer->model = bpe;
    tokenizer->ops = &bpe_ops;
    return bpe_read(tokenizer, bpe, root, e);
}
