/* retro/chat/chat_encode.c: a rendered conversation as token ids. The template's control tokens
 * become their ids; what looks like one in the request's text stays text. As encode_marked_chat of
 * transformers: the text is cut at those, and each piece is encoded by itself. See chat.h. */
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "config/text/unicode.h"
#include "retro/chat/chat.h"

/* The tokenizer and those of its added tokens that are control tokens. */
struct control_set {
    const struct tokenizer *tokenizer;
    bool *counts; /* [tokenizer_added_count] */
};

static bool is_blank(struct text_span span) {
    for (size_t at = 0; at < span.size;) {
        int32_t c;
        at += (size_t)utf8_read(span.text + at, span.size - at, &c);
        if (!unicode_is_space(c)) return false;
    }
    return true;
}

static void control_open(struct control_set *set, const struct template *template,
                         const struct tokenizer *tokenizer) {
    struct text_span literals = template_literals(template), token;
    bool mark;
    set->tokenizer = tokenizer;
    set->counts = xcalloc((size_t)tokenizer_added_count(tokenizer) + 1, sizeof *set->counts);
    for (int i = 0; tokenizer_added(tokenizer, i, &token, &mark); i++)
        set->counts[i] =
            mark || (literals.size > 0 && token.size > 0 && !is_blank(token) &&
                     memmem(literals.text, literals.size, token.text, token.size) != NULL);
}

/* The bytes from `at`, at most `most`, that come from where the first comes from. */
static size_t run_at(const struct template_output *text, size_t at, size_t most) {
    size_t n = 1;
    while (n < most && text->marks.data[at + n] == text->marks.data[at]) n++;
    return n;
}

/* A control token at `at` that is not the template's own: its bytes, or 0. *own: the bytes of one
 * that is. No more of the text is looked at than the longest token has. */
static size_t forged_at(const struct control_set *set, const struct template_output *text,
                        size_t at, size_t *own) {
    struct text_span rest = {text->text.data + at, text->text.size - at};
    size_t longest = tokenizer_added_at(set->tokenizer, rest, set->counts), within = longest;
    bool foreign = text->marks.data[at];
    *own = 0;
    if (longest == 0) return 0;
    size_t run = run_at(text, at, longest);
    if (run < longest)
        within =
            tokenizer_added_at(set->tokenizer, (struct text_span){rest.text, run}, set->counts);
    if (within == 0) return longest;
    if (!foreign) *own = within;
    return foreign ? within : 0;
}

/* Encodes text[0, size) as it stands in the middle of a text. SentencePiece's blank before a text's
 * first word is kept away by a line end in front. */
static enum status encode_middle(const struct tokenizer *tokenizer, const struct tokens *line_end,
                                 struct text_span piece, int flags, struct tokens *out,
                                 struct error *e) {
    struct buffer text = {0};
    struct tokens ids = {0};
    buffer_append(&text, "\n", 1);
    buffer_append(&text, piece.text, piece.size);
    enum status status = tokenizer_encode(tokenizer, text.data, text.size, flags, &ids, e);
    bool starts = ids.n >= line_end->n &&
                  memcmp(ids.ids, line_end->ids, (size_t)line_end->n * sizeof *ids.ids) == 0;
    int skip = starts ? line_end->n : 0;
    if (status == STATUS_OK && !starts) {
        ids.n = 0;
        status = tokenizer_encode(tokenizer, piece.text, piece.size, flags, &ids, e);
    }
    for (int i = skip; status == STATUS_OK && i < ids.n; i++)
        tokens_append(out, ids.ids[i], ids.starts[i]);
    tokens_free(&ids);
    buffer_free(&text);
    return status;
}

/* A control token's text as plain text. */
static enum status encode_forged(const struct tokenizer *tokenizer, const struct tokens *line_end,
                                 struct text_span piece, struct tokens *out, struct error *e) {
    int first = out->n;
    int32_t id = tokenizer_added_id(tokenizer, piece);
    enum status status = encode_middle(tokenizer, line_end, piece, TOKENIZER_NO_ADDED, out, e);
    for (int i = first; status == STATUS_OK && i < out->n; i++)
        if (out->ids[i] == id)
            status = error_set(
                e, STATUS_INVALID,
                "a message holds \"%.*s\", which this tokenizer cannot tell from its control token",
                (int)piece.size, piece.text);
    return status;
}

static enum status encode_pieces(const struct control_set *set, const struct tokenizer *tokenizer,
                                 const struct template_output *text, struct tokens *out,
                                 struct error *e) {
    struct tokens line_end = {0};
    const int flags = TOKENIZER_PARSE_SPECIAL;
    size_t done = 0;
    enum status status = tokenizer_encode(tokenizer, "\n", 1, flags, &line_end, e);
    for (size_t at = 0, own; at < text->text.size && status == STATUS_OK;) {
        size_t forged = forged_at(set, text, at, &own);
        if (forged == 0) {
            at += own > 0 ? own : 1;
            continue;
        }
        struct text_span before = {text->text.data + done, at - done};
        struct text_span piece = {text->text.data + at, forged};
        if (before.size > 0)
            status = done == 0
                         ? tokenizer_encode(tokenizer, before.text, before.size, flags, out, e)
                         : encode_middle(tokenizer, &line_end, before, flags, out, e);
        if (status == STATUS_OK) status = encode_forged(tokenizer, &line_end, piece, out, e);
        at += forged;
        done = at;
    }
    struct text_span rest = {text->text.data + done, text->text.size - done};
    if (status == STATUS_OK && rest.size > 0)
        status = done == 0 ? tokenizer_encode(tokenizer, rest.text, rest.size, flags, out, e)
                           : encode_middle(tokenizer, &line_end, rest, flags, out, e);
    tokens_free(&line_end);
    return status;
}

enum status chat_encode(const struct template *template, const struct tokenizer *tokenizer,
                        const struct template_output *text, struct tokens *ids, struct error *e) {
    struct control_set set = {0};
    if (text->text.size == 0) return STATUS_OK;
    control_open(&set, template, tokenizer);
    enum status status = encode_pieces(&set, tokenizer, text, ids, e);
    free(set.counts);
    return status;
}
