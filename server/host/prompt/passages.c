/* server/host/prompt/passages.c: passages by the template, within their budget of tokens. See passages.h. */
#include "server/host/prompt/passages.h"

#include <stdlib.h>
#include <string.h>

#include "server/host/prompt/passage_list.h"

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

/* One passages_write. */
struct passage_writer {
    const struct passage_options *o;
    const struct tokenizer *tokenizer;
    const struct passage_sources *from;
    struct hit *widened; /* [from->hits->n] */
    struct passages *out;
    size_t encoded; /* bytes of out->text whose tokens are in out->ids */
};

static void mark(struct passages *p, int foreign) {
    size_t before = p->foreign.size, n = p->text.size - before;
    char *marks = xmalloc(n + 1);
    memset(marks, foreign, n);
    buffer_append(&p->foreign, marks, n);
    free(marks);
}

/* Everything written since, as the tokens of plain text. */
static enum status encode_text(struct passage_writer *w, struct error *e) {
    struct passages *p = w->out;
    struct text_span text = {p->text.data + w->encoded, p->text.size - w->encoded};
    mark(p, 1);
    w->encoded = p->text.size;
    return text.size > 0 ? tokenizer_encode(w->tokenizer, text.text, text.size, TOKENIZER_PLAIN, &p->ids, e)
                         : STATUS_OK;
}

static enum status write_picture(struct passage_writer *w, int picture, struct error *e) {
    const struct picture_words *words = w->o->words;
    struct passages *p = w->out;
    if (encode_text(w, e)) return e->status;
    buffer_append(&p->text, words->text.data, words->text.size);
    mark(p, 0);
    w->encoded = p->text.size;
    for (int i = 0; i < words->ids.n; i++) tokens_append(&p->ids, words->ids.ids[i], 0);
    p->pictures[p->n_pictures] = picture;
    p->n_pictures++;
    p->picture_rows += w->from->pictures[picture].rows;
    return STATUS_OK;
}

/* The picture that stands in this passage; -1: none does. */
static int picture_of(const struct passage_writer *w, const struct hit *hit) {
    for (int i = 0; i < w->from->n_pictures; i++) {
        const struct passage_picture *picture = &w->from->pictures[i];
        if (!picture->stands || strcmp(picture->document, hit->document) != 0) continue;
        for (int j = 0; j < w->out->n_pictures; j++)
            if (w->out->pictures[j] == i) return -1;
        return i;
    }
    return -1;
}

static enum status write_passage(struct passage_writer *w, int number, const struct hit *hit, struct error *e) {
    struct buffer *text = &w->out->text;
    const char *template = w->o->template;
    enum status status = STATUS_OK;
    while (*template && status == STATUS_OK) {
        size_t size = 1;
        enum placeholder place = read_placeholder(template, &size);
        int picture = place == PLACE_TEXT ? picture_of(w, hit) : -1;
        if (picture >= 0) status = write_picture(w, picture, e);
        switch (place) {
            case PLACE_NUMBER: buffer_printf(text, "%d", number); break;
            case PLACE_TITLE: buffer_append_string(text, hit->title); break;
            case PLACE_TEXT: buffer_append(text, hit->text.text, hit->text.size); break;
            case PLACE_NONE: size = 1; buffer_append(text, template, 1);
        }
        template += size;
    }
    return status == STATUS_OK ? encode_text(w, e) : status;
}

void passages_free(struct passages *p) {
    buffer_free(&p->text);
    buffer_free(&p->foreign);
    tokens_free(&p->ids);
    free(p->list);
    free(p->ends);
    free(p->pictures);
    *p = (struct passages){0};
}

/* Passages of the first n_hits of widened ones, with the pictures that stand. */
static enum status write_first(struct passage_writer *w, int n_hits, struct error *e) {
    struct passages *out = w->out;
    enum status status = STATUS_OK;
    out->n = out->ids.n = out->n_pictures = out->picture_rows = 0;
    w->encoded = 0;
    buffer_clear(&out->text);
    buffer_clear(&out->foreign);
    for (int i = 0; i < n_hits; i++) out->n = passage_list_add(out->list, out->n, w->widened[i]);
    for (int i = 0; i < out->n && status == STATUS_OK; i++) {
        status = write_passage(w, i + 1, &out->list[i], e);
        out->ends[i] = out->ids.n - out->n_pictures + out->picture_rows;
    }
    return status;
}

/* So many hits as `budget` holds. The span between hits that fit and hits that do not is halved: few texts are encoded,
 * whatever k is. */
static enum status fit_texts(struct passage_writer *w, int budget, int *n_hits, struct error *e) {
    int fitting = 0, beyond = w->from->hits->n + 1, written = w->from->hits->n;
    enum status status = write_first(w, written, e);
    while (status == STATUS_OK) {
        if (w->out->ids.n <= budget)
            fitting = written;
        else
            beyond = written;
        if (fitting == written && fitting + 1 == beyond) break;
        written = (fitting + beyond) / 2;
        status = write_first(w, written, e);
    }
    *n_hits = written;
    return status;
}

static bool list_has(const struct passages *p, const char *document) {
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->list[i].document, document) == 0) return true;
    return false;
}

/* Pictures of the passages, the most similar first, so many as `room` holds. */
static int choose_pictures(struct passage_writer *w, int room) {
    int n = 0;
    for (int i = 0; i < w->from->n_pictures; i++) {
        struct passage_picture *picture = &w->from->pictures[i];
        int rows = picture->rows + w->o->words->ids.n - 1;
        picture->stands = list_has(w->out, picture->document) && rows <= room;
        if (!picture->stands) continue;
        room -= rows;
        n++;
    }
    return n;
}

enum status passages_write(const struct passage_options *o, const struct tokenizer *t,
                           const struct passage_sources *from, int room, struct passages *out, struct error *e) {
    size_t n = (size_t)from->hits->n;
    struct passage_writer w = {.o = o, .tokenizer = t, .from = from, .out = out};
    w.widened = xcalloc(n, sizeof *w.widened);
    for (size_t i = 0; i < n; i++) {
        w.widened[i] = from->hits->list[i];
        passage_widen(&w.widened[i]);
    }
    out->list = xrealloc(out->list, n * sizeof *out->list);
    out->ends = xrealloc(out->ends, n * sizeof *out->ends);
    out->pictures = xrealloc(out->pictures, ((size_t)from->n_pictures + 1) * sizeof *out->pictures);
    for (int i = 0; i < from->n_pictures; i++) from->pictures[i].stands = false;

    int written;
    enum status status = fit_texts(&w, max_int(0, min_int(o->max_tokens, room)), &written, e);
    if (status == STATUS_OK && choose_pictures(&w, room - out->ids.n) > 0) status = write_first(&w, written, e);
    free(w.widened);
    return status;
}
