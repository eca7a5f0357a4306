/* retro/text/tokenizer_decoder.c: from pieces back to text. See tokenizer_decoder.h. */
#include "retro/text/tokenizer_decoder.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retro/text/tokenizer_private.h"

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

int piece_byte(struct text_span piece) {
    if (piece.size != 6 || memcmp(piece.text, "<0x", 3) != 0 || piece.text[5] != '>') return -1;
    int high = hex_value(piece.text[3]), low = hex_value(piece.text[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* A decoder being read. */
struct decoder_reading {
    struct decoder *decoder;
    bool fused; /* Fuse has joined the tokens: what follows sees the text, not a token */
};

static enum status add_step(struct decoder *d, struct decoder_step **out, struct error *e) {
    if (d->n == DECODER_STEPS) return error_set(e, STATUS_UNSUPPORTED, "more than %d steps", DECODER_STEPS);
    *out = &d->steps[d->n];
    d->n++;
    return STATUS_OK;
}

static enum status open_metaspace(struct decoder *d, const struct json *j, struct error *e) {
    struct pretokenizer_step symbol;
    struct decoder_step *step = NULL;
    if (json_read_metaspace(j, &symbol, e) || add_step(d, &step, e)) return e->status;
    step->content = xstrndup(" ", 1);
    step->size = 1;
    step->first_removes = symbol.prepend != METASPACE_NEVER;
    return regex_open(&step->regex, (struct text_span){symbol.symbol, symbol.symbol_size}, true, e);
}

static enum status open_replace(struct decoder *d, const struct json *j, struct error *e) {
    struct decoder_step *step = NULL;
    if (add_step(d, &step, e)) return e->status;
    return json_read_replace(j, &step->regex, &step->content, &step->size, e);
}

/* Only a single character of the beginning of the whole text: that is what has been prepended before encoding, and
 * the end of a text is not known while tokens stream. */
static enum status open_strip(struct decoder_reading *r, const struct json *j, struct error *e) {
    const struct json *start = json_member(j, "start"), *stop = json_member(j, "stop");
    struct text_span content = json_text(json_member(j, "content"));
    if (content.size == 0 || content.size > sizeof r->decoder->strip ||
        utf8_length(content.text, content.size) != (int)content.size)
        return error_set(e, STATUS_INVALID, "Strip: content: expected one character");
    if (!json_is_int(start) || !json_is_int(stop) || json_int(stop) != 0 || json_int(start) < 0 || json_int(start) > 1)
        return error_set(e, STATUS_UNSUPPORTED, "Strip: expected start 0 or 1 and stop 0");
    if (!r->fused || r->decoder->strip_size > 0)
        return error_set(e, STATUS_UNSUPPORTED, "Strip: expected once, after Fuse");
    if (json_int(start) == 0) return STATUS_OK;
    memcpy(r->decoder->strip, content.text, content.size);
    r->decoder->strip_size = content.size;
    return STATUS_OK;
}

static enum status open_part(struct decoder_reading *r, const struct json *j, int depth, struct error *e) {
    const char *type = json_type_name(j);
    if (strcmp(type, "Sequence") == 0 && depth < 8) {
        const struct json *list = json_member(j, "decoders");
        if (!json_is_list(list)) return error_set(e, STATUS_INVALID, "decoders: expected a list");
        enum status status = STATUS_OK;
        for (size_t i = 0; i < json_count(list) && status == STATUS_OK; i++)
            status = open_part(r, json_item(list, i), depth + 1, e);
        return status;
    }
    if (strcmp(type, "Strip") == 0) return open_strip(r, j, e);
    if (strcmp(type, "Fuse") == 0) {
        r->fused = true;
        return STATUS_OK;
    }
    if (strcmp(type, "Metaspace") == 0 && !r->fused) return open_metaspace(r->decoder, j, e);
    if (strcmp(type, "Replace") == 0 && !r->fused) return open_replace(r->decoder, j, e);
    if (strcmp(type, "ByteFallback") == 0 && !r->fused) {
        r->decoder->bytes = true;
        return STATUS_OK;
    }
    return error_set(e, STATUS_UNSUPPORTED,
                     "type \"%.40s\"%s is not supported: expected Sequence, Metaspace, Replace, ByteFallback, Fuse or "
                     "Strip",
                     type, r->fused ? " after Fuse" : "");
}

enum status decoder_open(struct decoder *d, const struct json *j, struct error *e) {
    struct decoder_reading r = {d, false};
    if (json_is_absent(j)) {
        error_set(e, STATUS_UNSUPPORTED, "there is none, and the pieces of this model are joined by one");
        return error_prefix(e, "decoder");
    }
    if (open_part(&r, j, 0, e) == STATUS_OK) return STATUS_OK;
    return error_prefix(e, "decoder");
}

void decoder_close(struct decoder *d) {
    for (int i = 0; i < d->n; i++) {
        regex_close(d->steps[i].regex);
        free(d->steps[i].content);
    }
    d->n = 0;
}

/* *text becomes the text after one step. The pieces are short: matching cannot fail on them, and where it does, the
 * piece stays as it is. */
static void run_step(const struct decoder_step *step, bool first, struct buffer *text) {
    struct span_list matches = {0};
    struct error ignored;
    struct buffer written = {0};
    size_t at = 0;
    if (regex_find(step->regex, (struct text_span){text->data, text->size}, &matches, &ignored) == STATUS_OK &&
        matches.n > 0) {
        for (size_t i = 0; i < matches.n; i++) {
            buffer_append(&written, text->data + at, matches.spans[i].start - at);
            if (!first || !step->first_removes) buffer_append(&written, step->content, step->size);
            at = matches.spans[i].end;
        }
        buffer_append(&written, text->data + at, text->size - at);
        buffer_free(text);
        *text = written;
    }
    free(matches.spans);
}

void decoder_write(const struct decoder *d, struct text_span piece, bool *started, struct buffer *out) {
    int byte = d->bytes ? piece_byte(piece) : -1;
    bool first = !*started;
    struct buffer text = {0};
    if (byte >= 0) {
        char c = (char)byte;
        buffer_append(&text, &c, 1);
    } else {
        buffer_append(&text, piece.text, piece.size);
        for (int i = 0; i < d->n && text.size > 0; i++) run_step(&d->steps[i], first, &text);
    }

    size_t skip = 0;
    if (first && d->strip_size > 0 && text.size >= d->strip_size && memcmp(text.data, d->strip, d->strip_size) == 0)
        skip = d->strip_size;
    /* Without Strip the first token counts, and with it the first text: an empty piece changes nothing. */
    if (d->strip_size == 0 || text.size > 0) *started = true;
    buffer_append(out, text.data ? text.data + skip : "", text.size - skip);
    buffer_free(&text);
}
