/* server/host/passages.c: passages by the template, within their budget of tokens. See passages.h. */
#include "server/host/passages.h"

#include <stdlib.h>
#include <string.h>

#include "server/host/passage_list.h"

enum placeholder { PLACE_NONE, PLACE_NUMBER, PLACE_TITLE, PLACE_TEXT };

/* The placeholder that `at` begins with; *size is its length. */
static enum placeholder read_placeholder(const char *at, size_t *size) {
    static const char *const names[] = {
        [PLACE_NUMBER] = "{number}", [PLACE_TITLE] = "{title}", [PLACE_TEXT] = "{text}"};
    for (int i = PLACE_NUMBER; i <= PLACE_TEXT; i++) {
        *size = strlen(names[i]);
        if (strncmp(at, names[i], *size) == 0) return (enum placeholder)i;
    }
    return PLACE_NONE;
}

enum status passages_check(const char *template, struct error *e) {
    bool has_text = false;
    for (const char *at = template; *at; at++) {
        size_t size;
        enum placeholder found = read_placeholder(at, &size);
        has_text = has_text || found == PLACE_TEXT;
        if (*at == '{' && found == PLACE_NONE)
            return error_set(e, STATUS_INVALID,
                             "retrieval.template: \"%.20s\" is no placeholder; known are {number}, {title} and {text}",
                             at);
    }
    if (has_text) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "retrieval.template: {text}, the passage itself, is missing");
}

static void write_passage(const char *template, int number, const struct hit *hit, struct buffer *out) {
    while (*template) {
        size_t size = 1;
        switch (read_placeholder(template, &size)) {
            case PLACE_NUMBER: buffer_printf(out, "%d", number); break;
            case PLACE_TITLE: buffer_append_string(out, hit->title); break;
            case PLACE_TEXT: buffer_append(out, hit->text.text, hit->text.size); break;
            case PLACE_NONE: size = 1; buffer_append(out, template, 1);
        }
        template += size;
    }
}

void passages_free(struct passages *p) {
    buffer_free(&p->text);
    tokens_free(&p->ids);
    free(p->list);
    free(p->ends);
    *p = (struct passages){0};
}

/* Passages of the first n_hits of widened ones. */
static enum status write_first(const struct passage_options *o, const struct tokenizer *t, const struct hit *hits,
                               int n_hits, struct passages *out, struct error *e) {
    enum status status = STATUS_OK;
    out->n = out->ids.n = 0;
    buffer_clear(&out->text);
    for (int i = 0; i < n_hits; i++) out->n = passage_list_add(out->list, out->n, hits[i]);
    for (int i = 0; i < out->n && status == STATUS_OK; i++) {
        size_t before = out->text.size;
        write_passage(o->template, i + 1, &out->list[i], &out->text);
        status = tokenizer_encode(t, out->text.data + before, out->text.size - before, TOKENIZER_PLAIN, &out->ids, e);
        out->ends[i] = out->ids.n;
    }
    return status;
}

enum status passages_write(const struct passage_options *o, const struct tokenizer *t, const struct hits *hits,
                           int room, struct passages *out, struct error *e) {
    int fitting = 0, beyond = hits->n + 1, written = hits->n, budget = max_int(0, min_int(o->max_tokens, room));
    struct hit *widened = xcalloc((size_t)hits->n, sizeof *widened);
    for (int i = 0; i < hits->n; i++) {
        widened[i] = hits->list[i];
        passage_widen(&widened[i]);
    }
    out->list = xrealloc(out->list, (size_t)hits->n * sizeof *out->list);
    out->ends = xrealloc(out->ends, (size_t)hits->n * sizeof *out->ends);

    /* The span between hits that fit and hits that do not is halved: few texts are encoded, whatever k is. */
    enum status status = write_first(o, t, widened, written, out, e);
    while (status == STATUS_OK) {
        if (out->ids.n <= budget)
            fitting = written;
        else
            beyond = written;
        if (fitting == written && fitting + 1 == beyond) break;
        written = (fitting + beyond) / 2;
        status = write_first(o, t, widened, written, out, e);
    }
    free(widened);
    return status;
}
