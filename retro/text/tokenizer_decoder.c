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

static enum status add_step(struct decoder *decoder, struct decoder_step **out, struct error *e) {
    if (decoder->n == DECODER_STEPS)
        return error_set(e, STATUS_UNSUPPORTED, "more than %d steps", DECODER_STEPS);
    *out = &decoder->steps[decoder->n];
    decoder->n++;
    return STATUS_OK;
}

static enum status open_metaspace(struct decoder *decoder, const struct json *json,
                                  struct error *e) {
    struct pretokenizer_step symbol;
    struct decoder_step *step = NULL;
    if (json_read_metaspace(json, &symbol, e) || add_step(decoder, &step, e)) return e->status;
    step->content = xstrndup(" ", 1);
    step->size = 1;
    step->first_removes = symbol.prepend != METASPACE_NEVER;
    return regex_open(&step->regex, (struct text_span){symbol.symbol, symbol.symbol_size}, true, e);
}

static enum status open_replace(struct decoder *decoder, const struct json *json, struct error *e) {
    struct decoder_step *step = NULL;
    if (add_step(decoder, &step, e)) return e->status;
    return json_read_replace(json, &step->regex, &step->content, &step->size, e);
}

/* Only a single character of the beginning of the whole text: that is what has been prepended
 * before encoding, and the end of a text is not known while tokens stream. */
static enum status open_strip(struct decoder_reading *reading, const struct json *json,
                              struct error *e) {
    const struct json *start = json_member(json, "start"), *stop = json_member(json, "stop");
    struct text_span content = json_text(json_member(json, "content"));
    if (content.size == 0 || content.size > sizeof reading->decoder->strip ||
        utf8_length(content.text, content.size) != (int)content.size)
        return error_set(e, STATUS_INVALID, "Strip: content: expected one character");
    if (!json_is_int(start) || !json_is_int(stop) || json_int(stop) != 0 || json_int(start) < 0 ||
        json_int(start) > 1)
        return error_set(e, STATUS_UNSUPPORTED, "Strip: expected start 0 or 1 and stop 0");
    if (!reading->fused || reading->decoder->strip_size > 0)
        return error_set(e, STATUS_UNSUPPORTED, "Strip: expected once, after Fuse");
    if (json_int(start) == 0) return STATUS_OK;
    memcpy(reading->decoder->strip, content.text, content.size);
    reading->decoder->strip_size = content.size;
    return STATUS_OK;
}

static enum status open_part(struct decoder_reading *reading, const struct json *json, int depth,
                             struct error *e) {
    const char *type = json_type_name(json);
    if (strcmp(type, "Sequence") == 0 && depth < 8) {
        const struct json *list = json_member(json, "decoders");
        if (!json_is_list(list)) return error_set(e, STATUS_INVALID, "decoders: expected a list");
        enum status status = STATUS_OK;
        for (size_t i = 0; i < json_count(list) && status == STATUS_OK; i++)
            status = open_part(reading, json_item(list, i), depth + 1, e);
        return status;
    }
    if (strcmp(type, "Strip") == 0) return open_strip(reading, json, e);
    if (strcmp(type, "Fuse") == 0) {
        reading->fused = true;
        return STATUS_OK;
    }
    if (strcmp(type, "Metaspace") == 0 && !reading->fused)
        return open_metaspace(reading->decoder, json, e);
    if (strcmp(type, "Replace") == 0 && !reading->fused)
        return open_replace(reading->decoder, json, e);
    if (strcmp(type, "ByteFallback") == 0 && !reading->fused) {
        reading->decoder->bytes = true;
        return STATUS_OK;
    }
    return error_set(e, STATUS_UNSUPPORTED,
                     "type \"%.40s\"%s is not supported: expected Sequence, Metaspace, Replace, "
                     "ByteFallback, Fuse or "
                     "Strip",
                     type, reading->fused ? " after Fuse" : "");
}

enum status decoder_open(struct decoder *decoder, const struct json *json, struct error *e) {
    struct decoder_reading reading = {decoder, false};
    if (json_is_absent(json)) {
        error_set(e, STATUS_UNSUPPORTED,
                  "there is none, and the pieces of this model are joined by one");
        return error_prefix(e, "decoder");
    }
    if (open_part(&reading, json, 0, e) == STATUS_OK) return STATUS_OK;
    return error_prefix(e, "decoder");
}

void decoder_close(struct decoder *decoder) {
    for (int i = 0; i < decoder->n; i++) {
        regex_close(decoder->steps[i].regex);
        free(decoder->steps[i].content);
    }
    decoder->n = 0;
}

/* *text becomes the text after one step. The pieces are short: matching cannot fail on them, and
 * where it does, the piece stays as it is. */
static void run_step(const struct decoder_step *step, bool first, struct buffer *text) {
    struct span_list matches = {0};
    struct error ignored;
    struct buffer written = {0};
    size_t at = 0;
    if (regex_find(step->regex, (struct text_span){text->data, text->size}, &matches, &ignored) ==
            STATUS_OK &&
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

void decoder_write(const struct decoder *decoder, struct text_span piece, bool *started,
                   struct buffer *out) {
    int byte = decoder->bytes ? piece_byte(piece) : -1;
    bool first = !*started;
    struct buffer text = {0};
    if (byte >= 0) {
        char c = (char)byte;
        buffer_append(&text, &c, 1);
    } else {
        buffer_append(&text, piece.text, piece.size);
        for (int i = 0; i < decoder->n && text.size > 0; i++)
            run_step(&decoder->steps[i], first, &text);
    }

    size_t skip = 0;
    if (first && decoder->strip_size > 0 && text.size >= decoder->strip_size &&
        memcmp(text.data, decoder->strip, decoder->strip_size) == 0)
        skip = decoder->strip_size;
    /* Without Strip the first token counts, and with it the first text: an empty piece changes
     * nothing. */
    if (decoder->strip_size == 0 || text.size > 0) *started = true;
    buffer_append(out, text.data ? text.data + skip : "", text.size - skip);
    buffer_free(&text);
}
