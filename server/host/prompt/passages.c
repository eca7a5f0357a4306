/* server/host/prompt/passages.c: passages by the template, within their budget of tokens. See
 * passages.h. */
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
                             "retrieval.template: \"%.20s\" is no placeholder; known are {number}, "
                             "{title} and {text}",
                             at);
    }
    if (has_text) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "retrieval.template: {text}, the passage itself, is missing");
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

static void mark(struct passages *passages, int foreign) {
    size_t before = passages->foreign.size, n = passages->text.size - before;
    char *marks = xmalloc(n + 1);
    memset(marks, foreign, n);
    buffer_append(&passages->foreign, marks, n);
    free(marks);
}

/* Everything written since, as the tokens of plain text. */
static enum status encode_text(struct passage_writer *writer, struct error *e) {
    struct passages *passages = writer->out;
    struct text_span text = {passages->text.data + writer->encoded,
                             passages->text.size - writer->encoded};
    mark(passages, 1);
    writer->encoded = passages->text.size;
    return text.size > 0 ? tokenizer_encode(writer->tokenizer, text.text, text.size,
                                            TOKENIZER_PLAIN, &passages->ids, e)
                         : STATUS_OK;
}

static enum status write_picture(struct passage_writer *writer, int picture, struct error *e) {
    const struct picture_words *words = writer->o->words;
    struct passages *passages = writer->out;
    if (encode_text(writer, e)) return e->status;
    buffer_append(&passages->text, words->text.data, words->text.size);
    mark(passages, 0);
    writer->encoded = passages->text.size;
    for (int i = 0; i < words->ids.n; i++) tokens_append(&passages->ids, words->ids.ids[i], 0);
    passages->pictures[passages->n_pictures] = picture;
    passages->n_pictures++;
    passages->picture_rows += writer->from->pictures[picture].rows;
    return STATUS_OK;
}

/* The picture that stands in this passage; -1: none does. */
static int picture_of(const struct passage_writer *writer, const struct hit *hit) {
    for (int i = 0; i < writer->from->n_pictures; i++) {
        const struct passage_picture *picture = &writer->from->pictures[i];
        if (!picture->stands || strcmp(picture->document, hit->document) != 0) continue;
        for (int j = 0; j < writer->out->n_pictures; j++)
            if (writer->out->pictures[j] == i) return -1;
        return i;
    }
    return -1;
}

static enum status write_passage(struct passage_writer *writer, int number, const struct hit *hit,
                                 struct error *e) {
    struct buffer *text = &writer->out->text;
    const char *template = writer->o->template;
    enum status status = STATUS_OK;
    while (*template && status == STATUS_OK) {
        size_t size = 1;
        enum placeholder place = read_placeholder(template, &size);
        int picture = place == PLACE_TEXT ? picture_of(writer, hit) : -1;
        if (picture >= 0) status = write_picture(writer, picture, e);
        switch (place) {
            case PLACE_NUMBER: buffer_printf(text, "%d", number); break;
            case PLACE_TITLE: buffer_append_string(text, hit->title); break;
            case PLACE_TEXT: buffer_append(text, hit->text.text, hit->text.size); break;
            case PLACE_NONE: size = 1; buffer_append(text, template, 1);
        }
        template += size;
    }
    return status == STATUS_OK ? encode_text(writer, e) : status;
}

void passages_free(struct passages *passages) {
    buffer_free(&passages->text);
    buffer_free(&passages->foreign);
    tokens_free(&passages->ids);
    free(passages->list);
    free(passages->ends);
    free(passages->pictures);
    *passages = (struct passages){0};
}

/* Passages of the first n_hits of widened ones, with the pictures that stand. */
static enum status write_first(struct passage_writer *writer, int n_hits, struct error *e) {
    struct passages *out = writer->out;
    enum status status = STATUS_OK;
    out->n = out->ids.n = out->n_pictures = out->picture_rows = 0;
    writer->encoded = 0;
    buffer_clear(&out->text);
    buffer_clear(&out->foreign);
    for (int i = 0; i < n_hits; i++)
        out->n = passage_list_add(out->list, out->n, writer->widened[i]);
    for (int i = 0; i < out->n && status == STATUS_OK; i++) {
        status = write_passage(writer, i + 1, &out->list[i], e);
        out->ends[i] = out->ids.n - out->n_pictures + out->picture_rows;
    }
    return status;
}

/* So many hits as `budget` holds. The span between hits that fit and hits that do not is halved:
 * few texts are encoded, whatever k is. */
static enum status fit_texts(struct passage_writer *writer, int budget, int *n_hits,
                             struct error *e) {
    int fitting = 0, beyond = writer->from->hits->n + 1, written = writer->from->hits->n;
    enum status status = write_first(writer, written, e);
    while (status == STATUS_OK) {
        if (writer->out->ids.n <= budget)
            fitting = written;
        else
            beyond = written;
        if (fitting == written && fitting + 1 == beyond) break;
        written = (fitting + beyond) / 2;
        status = write_first(writer, written, e);
    }
    *n_hits = written;
    return status;
}

static bool list_has(const struct passages *passages, const char *document) {
    for (int i = 0; i < passages->n; i++)
        if (strcmp(passages->list[i].document, document) == 0) return true;
    return false;
}

/* Pictures of the passages, the most similar first, so many as `room` holds. */
static int choose_pictures(struct passage_writer *writer, int room) {
    int n = 0;
    for (int i = 0; i < writer->from->n_pictures; i++) {
        struct passage_picture *picture = &writer->from->pictures[i];
        int rows = picture->rows + writer->o->words->ids.n - 1;
        picture->stands = list_has(writer->out, picture->document) && rows <= room;
        if (!picture->stands) continue;
        room -= rows;
        n++;
    }
    return n;
}

enum status passages_write(const struct passage_options *options, const struct tokenizer *tokenizer,
                           const struct passage_sources *from, int room, struct passages *out,
                           struct error *e) {
    size_t n = (size_t)from->hits->n;
    struct passage_writer writer = {.o = options, .tokenizer = tokenizer, .from = from, .out = out};
    writer.widened = xcalloc(n, sizeof *writer.widened);
    for (size_t i = 0; i < n; i++) {
        writer.widened[i] = from->hits->list[i];
        passage_widen(&writer.widened[i]);
    }
    out->list = xrealloc(out->list, n * sizeof *out->list);
    out->ends = xrealloc(out->ends, n * sizeof *out->ends);
    out->pictures = xrealloc(out->pictures, ((size_t)from->n_pictures + 1) * sizeof *out->pictures);
    for (int i = 0; i < from->n_pictures; i++) from->pictures[i].stands = false;

    int written;
    enum status status =
        fit_texts(&writer, max_int(0, min_int(options->max_tokens, room)), &written, e);
    if (status == STATUS_OK && choose_pictures(&writer, room - out->ids.n) > 0)
        status = write_first(&writer, written, e);
    free(writer.widened);
    return status;
}
