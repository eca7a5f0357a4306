/* retro/text/tokenizer.c: the pipeline every tokenizer shares: repair UTF-8, cut out added tokens,
 * normalise, let the model encode the rest; and back to text. See tokenizer.h. */
#include "retro/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "retro/text/tokenizer_private.h"

void tokens_append(struct tokens *tokens, int32_t id, uint32_t start) {
    if (tokens->n == tokens->capacity) {
        CHECK(tokens->n < INT32_MAX / 2);
        tokens->capacity = tokens->capacity * 2 + 64;
        tokens->ids = xrealloc(tokens->ids, (size_t)tokens->capacity * sizeof *tokens->ids);
        tokens->starts =
            xrealloc(tokens->starts, (size_t)tokens->capacity * sizeof *tokens->starts);
    }
    tokens->ids[tokens->n] = id;
    tokens->starts[tokens->n] = start;
    tokens->n++;
}

void tokens_free(struct tokens *tokens) {
    free(tokens->ids);
    free(tokens->starts);
    *tokens = (struct tokens){0};
}

enum status pieces_set(struct tokenizer *tokenizer, int64_t id, struct text_span bytes,
                       struct error *e) {
    if (id < 0 || id >= TOKENIZER_MAX_ID)
        return error_set(e, STATUS_INVALID, "token id %lld: expected 0 to %d", (long long)id,
                         TOKENIZER_MAX_ID - 1);
    if (id >= tokenizer->piece_capacity) {
        int capacity =
            max_int((int)id + 1, min_int(tokenizer->piece_capacity * 2, TOKENIZER_MAX_ID));
        tokenizer->pieces =
            xrealloc(tokenizer->pieces, (size_t)capacity * sizeof *tokenizer->pieces);
        memset(tokenizer->pieces + tokenizer->piece_capacity, 0,
               (size_t)(capacity - tokenizer->piece_capacity) * sizeof *tokenizer->pieces);
        tokenizer->piece_capacity = capacity;
    }
    struct piece *piece = &tokenizer->pieces[id];
    if (piece->bytes != NULL)
        return error_set(
            e, STATUS_INVALID, "token id %lld belongs to two tokens: \"%.40s\" and \"%.*s\"",
            (long long)id, piece->bytes, (int)(bytes.size < 40 ? bytes.size : 40), bytes.text);
    piece->bytes = xstrndup(bytes.text, bytes.size);
    piece->size = (uint32_t)bytes.size;
    tokenizer->vocab_size = max_int(tokenizer->vocab_size, (int)id + 1);
    return STATUS_OK;
}

void piece_table_open(struct piece_table *table, const struct tokenizer *tokenizer,
                      const bool *include) {
    size_t slots = 64;
    while (slots < (size_t)tokenizer->vocab_size * 2) slots *= 2;
    table->mask = slots - 1;
    table->slots = xmalloc(slots * sizeof *table->slots);
    memset(table->slots, 0xFF, slots * sizeof *table->slots);
    for (int id = 0; id < tokenizer->vocab_size; id++) {
        const struct piece *piece = &tokenizer->pieces[id];
        if (piece->bytes == NULL || (include != NULL && !include[id])) continue;
        size_t at = hash_bytes(piece->bytes, piece->size, 0) & table->mask;
        while (table->slots[at] >= 0) at = (at + 1) & table->mask;
        table->slots[at] = id;
    }
}

int32_t piece_table_find(const struct piece_table *table, const struct tokenizer *tokenizer,
                         const char *bytes, size_t n) {
    for (size_t at = hash_bytes(bytes, n, 0) & table->mask; table->slots[at] >= 0;
         at = (at + 1) & table->mask) {
        const struct piece *piece = &tokenizer->pieces[table->slots[at]];
        if (piece->size == n && memcmp(piece->bytes, bytes, n) == 0) return table->slots[at];
    }
    return -1;
}

int32_t pieces_find(const struct tokenizer *tokenizer, const char *bytes, size_t n) {
    for (int id = 0; id < tokenizer->vocab_size; id++)
        if (tokenizer->pieces[id].bytes != NULL && tokenizer->pieces[id].size == n &&
            memcmp(tokenizer->pieces[id].bytes, bytes, n) == 0)
            return id;
    return -1;
}

void tokenizer_close(struct tokenizer *tokenizer) {
    if (tokenizer == NULL) return;
    if (tokenizer->model != NULL) tokenizer->ops->close(tokenizer->model);
    for (int i = 0; i < tokenizer->n_normalizers; i++) {
        regex_close(tokenizer->normalizers[i].regex);
        free(tokenizer->normalizers[i].content);
        charsmap_close(tokenizer->normalizers[i].charsmap);
    }
    added_set_free(&tokenizer->added_raw);
    added_set_free(&tokenizer->added_normalised);
    for (int i = 0; i < tokenizer->vocab_size; i++) free(tokenizer->pieces[i].bytes);
    free(tokenizer->pieces);
    free(tokenizer);
}

int tokenizer_vocab_size(const struct tokenizer *tokenizer) { return tokenizer->vocab_size; }
int tokenizer_eod(const struct tokenizer *tokenizer) { return tokenizer->eod; }
int tokenizer_bos(const struct tokenizer *tokenizer) { return tokenizer->bos; }
int tokenizer_pad(const struct tokenizer *tokenizer) { return tokenizer->pad; }
bool tokenizer_is_filler(const struct tokenizer *tokenizer, int32_t id) {
    return id == tokenizer->cls || id == tokenizer->eod || id == tokenizer->pad ||
           id == tokenizer->unknown;
}
int tokenizer_suffix(const struct tokenizer *tokenizer) { return tokenizer->suffix.n; }

bool tokenizer_lowercases(const struct tokenizer *tokenizer) {
    for (int i = 0; i < tokenizer->n_normalizers; i++) {
        const struct normalizer_step *step = &tokenizer->normalizers[i];
        if (step->kind == NORMALIZER_LOWERCASE ||
            (step->kind == NORMALIZER_BERT && step->bert.lowercase))
            return true;
    }
    return false;
}

int tokenizer_sentinel(const struct tokenizer *tokenizer, int number) {
    return number >= 0 && number < TOKENIZER_MAX_SENTINELS ? tokenizer->sentinels[number] : -1;
}
uint64_t tokenizer_hash(const struct tokenizer *tokenizer) { return tokenizer->hash; }

static bool id_known(const struct tokenizer *tokenizer, int32_t id) {
    return id >= 0 && id < tokenizer->vocab_size && tokenizer->pieces[id].bytes != NULL;
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id) {
    return id_known(tokenizer, id) && tokenizer->pieces[id].special;
}

static const struct added_token *added_at(const struct tokenizer *tokenizer, int i) {
    if (i < tokenizer->added_raw.n) return &tokenizer->added_raw.tokens[i];
    i -= tokenizer->added_raw.n;
    return i < tokenizer->added_normalised.n ? &tokenizer->added_normalised.tokens[i] : NULL;
}

bool tokenizer_added(const struct tokenizer *tokenizer, int i, struct text_span *content,
                     bool *mark) {
    const struct added_token *token = added_at(tokenizer, i);
    if (token == NULL) return false;
    *content = (struct text_span){token->content, token->size};
    *mark = token->mark;
    return true;
}

int tokenizer_added_count(const struct tokenizer *tokenizer) {
    return tokenizer->added_raw.n + tokenizer->added_normalised.n;
}

size_t tokenizer_added_at(const struct tokenizer *tokenizer, struct text_span text,
                          const bool *counts) {
    size_t raw = added_set_at(&tokenizer->added_raw, text, counts);
    size_t normalised =
        added_set_at(&tokenizer->added_normalised, text, counts + tokenizer->added_raw.n);
    return raw > normalised ? raw : normalised;
}

int32_t tokenizer_added_id(const struct tokenizer *tokenizer, struct text_span content) {
    const struct added_token *token = added_set_get(&tokenizer->added_raw, content);
    if (token == NULL) token = added_set_get(&tokenizer->added_normalised, content);
    return token ? token->id : -1;
}

static enum status run_replace(const struct normalizer_step *step, const struct mapped_text *text,
                               struct mapped_buffer *out, struct error *e) {
    struct span_list matches = {0};
    enum status status =
        regex_find(step->regex, (struct text_span){text->text, text->size}, &matches, e);
    size_t at = 0;
    for (size_t k = 0; k <= matches.n; k++) {
        struct span span = k < matches.n ? matches.spans[k] : (struct span){text->size, text->size};
        for (; at < span.start; at++)
            mapped_append(out, text->text + at, 1, mapped_origin(text, at));
        if (k < matches.n)
            mapped_append(out, step->content, step->content_size, mapped_origin(text, span.start));
        at = span.end;
    }
    free(matches.spans);
    return status;
}

static void run_prepend(const struct normalizer_step *step, const struct mapped_text *text,
                        struct mapped_buffer *out) {
    if (text->size > 0)
        mapped_append(out, step->content, step->content_size, mapped_origin(text, 0));
    for (size_t i = 0; i < text->size; i++)
        mapped_append(out, text->text + i, 1, mapped_origin(text, i));
}

/* White space at either end goes. */
static void run_strip(const struct normalizer_step *step, const struct mapped_text *text,
                      struct mapped_buffer *out) {
    int32_t c;
    size_t start = 0, end = 0;
    for (size_t i = 0; i < text->size;) {
        int length = utf8_read(text->text + i, text->size - i, &c);
        bool space = unicode_is_space(c);
        if (space && step->strip_left && start == i) start += (size_t)length;
        i += (size_t)length;
        if (!space || !step->strip_right) end = i;
    }
    for (size_t i = start; i < end; i++)
        mapped_append(out, text->text + i, 1, mapped_origin(text, i));
}

/* Replaces *text by its normalised form, which lives in *store. */
enum status normalizers_run(const struct tokenizer *tokenizer, struct mapped_text *text,
                            struct mapped_buffer *store, struct error *e) {
    enum status status = STATUS_OK;
    uint32_t begins = text->size > 0 ? mapped_origin(text, 0) : 0;
    for (int i = 0; i < tokenizer->n_normalizers && status == STATUS_OK; i++) {
        const struct normalizer_step *step = &tokenizer->normalizers[i];
        struct mapped_buffer next = {0};
        switch (step->kind) {
            case NORMALIZER_FORM: unicode_normalise(text, step->form, &next); break;
            case NORMALIZER_LOWERCASE: unicode_lowercase(text, &next); break;
            case NORMALIZER_REPLACE: status = run_replace(step, text, &next, e); break;
            case NORMALIZER_PREPEND: run_prepend(step, text, &next); break;
            case NORMALIZER_STRIP: run_strip(step, text, &next); break;
            case NORMALIZER_CHARSMAP: charsmap_normalise(step->charsmap, text, &next); break;
            case NORMALIZER_BERT: unicode_normalise_bert(text, &step->bert, &next); break;
        }
        mapped_free(store);
        *store = next;
        *text = mapped_view(store);
    }
    /* Characters removed from the beginning belong to the first token, as in the reference. */
    if (tokenizer->n_normalizers > 0 && store->size > 0) store->origin[0] = begins;
    return status;
}

/* One tokenizer_encode under way. */
struct encoding {
    const struct tokenizer *t;
    void *call;
    bool skip_marks, skip_added;
    struct tokens *out;
};

/* Cuts the added tokens of *set out of text and hands what lies between to `rest`. */
static enum status cut_added(const struct encoding *encoding, const struct added_set *set,
                             const struct mapped_text *text,
                             enum status (*rest)(const struct encoding *,
                                                 const struct mapped_text *, struct error *),
                             struct error *e) {
    size_t at = 0, done = 0;
    struct added_match match;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && !encoding->skip_added &&
           added_set_find(set, (struct text_span){text->text, text->size}, &at,
                          encoding->skip_marks, &match)) {
        if (match.start < done) match.start = done;
        struct mapped_text before = mapped_slice(text, done, match.start);
        if (before.size > 0) status = rest(encoding, &before, e);
        tokens_append(encoding->out, match.id, mapped_origin(text, match.start));
        done = match.end > done ? match.end : done;
    }
    struct mapped_text after = mapped_slice(text, done, text->size);
    if (status == STATUS_OK && after.size > 0) status = rest(encoding, &after, e);
    return status;
}

static enum status encode_plain(const struct encoding *encoding, const struct mapped_text *text,
                                struct error *e) {
    return encoding->t->ops->encode(encoding->t, encoding->call, text, encoding->out, e);
}

static enum status encode_raw(const struct encoding *encoding, const struct mapped_text *text,
                              struct error *e) {
    if (encoding->t->n_normalizers == 0)
        return cut_added(encoding, &encoding->t->added_normalised, text, encode_plain, e);
    struct mapped_buffer store = {0};
    struct mapped_text normalised = *text;
    enum status status = normalizers_run(encoding->t, &normalised, &store, e);
    if (status == STATUS_OK)
        status = cut_added(encoding, &encoding->t->added_normalised, &normalised, encode_plain, e);
    mapped_free(&store);
    return status;
}

enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t size,
                             int flags, struct tokens *out, struct error *e) {
    if (size > INT32_MAX / 4)
        return error_set(e, STATUS_TOO_LARGE,
                         "text of %zu bytes: at most %d can be encoded at once", size,
                         INT32_MAX / 4);
    struct mapped_buffer repaired = {0};
    struct mapped_text whole = {text, size, NULL, 0};
    if (!utf8_is_valid(text, size)) {
        unicode_repair(text, size, &repaired);
        whole = mapped_view(&repaired);
    }
    struct encoding encoding = {
        tokenizer, tokenizer->ops->begin ? tokenizer->ops->begin(tokenizer, size) : NULL,
        !(flags & TOKENIZER_PARSE_SPECIAL), flags & TOKENIZER_NO_ADDED, out};
    const struct affix none = {0};
    const struct affix *prefix = flags & TOKENIZER_ADD_SPECIAL ? &tokenizer->prefix : &none;
    const struct affix *suffix = flags & TOKENIZER_ADD_SPECIAL ? &tokenizer->suffix : &none;
    for (int i = 0; i < prefix->n; i++) tokens_append(out, prefix->ids[i], 0);
    enum status status =
        size == 0 ? STATUS_OK : cut_added(&encoding, &tokenizer->added_raw, &whole, encode_raw, e);
    for (int i = 0; i < suffix->n; i++) tokens_append(out, suffix->ids[i], (uint32_t)size);
    if (tokenizer->ops->end) tokenizer->ops->end(encoding.call);
    mapped_free(&repaired);
    return status;
}

static void append_piece(const struct tokenizer *tokenizer, int32_t id, bool *started,
                         struct buffer *out) {
    if (!id_known(tokenizer, id)) return;
    tokenizer->ops->piece(tokenizer, id, started, out);
}

void tokenizer_piece(const struct tokenizer *tokenizer, int32_t id, struct buffer *out) {
    bool started = true;
    append_piece(tokenizer, id, &started, out);
}

/* Moves whole characters of bytes[0, n) to *out; an incomplete tail stays in *detokenizer, or
 * becomes U+FFFD when `last`. */
static void bytes_emit(struct detokenizer *detokenizer, const char *bytes, size_t n, bool last,
                       struct buffer *out) {
    int32_t c;
    detokenizer->n_tail = 0;
    for (size_t i = 0; i < n;) {
        size_t whole = i;
        while (i < n && (uint8_t)bytes[i] < 0x80) i++;
        buffer_append(out, bytes + whole, i - whole);
        if (i == n) return;
        int length = utf8_read(bytes + i, n - i, &c);
        if (c == UTF8_INCOMPLETE && !last) {
            memcpy(detokenizer->tail, bytes + i, (size_t)length);
            detokenizer->n_tail = length;
        } else if (c < 0) {
            buffer_append(out, "\xEF\xBF\xBD", 3);
        } else {
            buffer_append(out, bytes + i, (size_t)length);
        }
        i += (size_t)length;
    }
}

void detokenizer_push(struct detokenizer *detokenizer, const struct tokenizer *tokenizer,
                      int32_t id, struct buffer *out) {
    struct buffer bytes = {0};
    buffer_append(&bytes, detokenizer->tail, (size_t)detokenizer->n_tail);
    append_piece(tokenizer, id, &detokenizer->started, &bytes);
    bytes_emit(detokenizer, bytes.data, bytes.size, false, out);
    buffer_free(&bytes);
}

void detokenizer_finish(struct detokenizer *detokenizer, struct buffer *out) {
    char tail[4];
    int n = detokenizer->n_tail;
    memcpy(tail, detokenizer->tail, sizeof tail);
    bytes_emit(detokenizer, tail, (size_t)n, true, out);
    *detokenizer = (struct detokenizer){0};
}

void tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, int n,
                      bool skip_special, struct buffer *out) {
    struct detokenizer detokenizer = {0};
    for (int i = 0; i < n; i++)
        if (!skip_special || !tokenizer_is_special(tokenizer, ids[i]))
            detokenizer_push(&detokenizer, tokenizer, ids[i], out);
    detokenizer_finish(&detokenizer, out);
}
