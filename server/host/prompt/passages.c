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

/* Whether the template has `wanted`, and no braces that are none of the placeholders. */
static enum status check_template(const char *option, const char *template, enum placeholder wanted,
                                  bool *has, struct error *e) {
    *has = false;
    for (const char *at = template; *at; at++) {
        size_t size;
        enum placeholder found = read_placeholder(at, &size);
        *has = *has || found == wanted;
        if (*at == '{' && found == PLACE_NONE)
            return error_set(e, STATUS_INVALID,
                             "%s: \"%.20s\" is no placeholder; known are {number}, "
                             "{title} and {text}",
                             option, at);
    }
    return STATUS_OK;
}

enum status passages_check(const char *template, const char *again, struct error *e) {
    bool has_text, has_number;
    if (check_template("retrieval.template", template, PLACE_TEXT, &has_text, e) ||
        check_template("retrieval.again", again, PLACE_NUMBER, &has_number, e))
        return e->status;
    if (!has_text)
        return error_set(e, STATUS_INVALID,
                         "retrieval.template: {text}, the passage itself, is missing");
    if (has_number) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "retrieval.again: {number}, by which the passage is named, is missing");
}

/* One passages_write. */
struct passage_writer {
    const struct passage_options *o;
    const struct tokenizer *tokenizer;
    const struct passage_sources *from;
    struct hit *widened; /* [n_widened] hits that no earlier turn has */
    int n_widened;
    const struct hit *again; /* [n_again] passages of earlier turns that have the others */
    int n_again;
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
    for (int i = 0; writer->from && i < writer->from->n_pictures; i++) {
        const struct passage_picture *picture = &writer->from->pictures[i];
        if (!picture->stands || strcmp(picture->document, hit->document) != 0) continue;
        for (int j = 0; j < writer->out->n_pictures; j++)
            if (writer->out->pictures[j] == i) return -1;
        return i;
    }
    return -1;
}

static enum status write_passage(struct passage_writer *writer, const char *template,
                                 const struct hit *hit, struct error *e) {
    struct buffer *text = &writer->out->text;
    enum status status = STATUS_OK;
    while (*template && status == STATUS_OK) {
        size_t size = 1;
        enum placeholder place = read_placeholder(template, &size);
        int picture = place == PLACE_TEXT ? picture_of(writer, hit) : -1;
        if (picture >= 0) status = write_picture(writer, picture, e);
        switch (place) {
            case PLACE_NUMBER: buffer_printf(text, "%d", hit->number); break;
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

static void clear_text(struct passage_writer *writer) {
    struct passages *out = writer->out;
    out->ids.n = out->n_pictures = out->picture_rows = 0;
    writer->encoded = 0;
    buffer_clear(&out->text);
    buffer_clear(&out->foreign);
}

/* The list, with the pictures that stand. */
static enum status write_list(struct passage_writer *writer, struct error *e) {
    struct passages *out = writer->out;
    enum status status = STATUS_OK;
    clear_text(writer);
    for (int i = 0; i < out->n && status == STATUS_OK; i++) {
        status = write_passage(writer, writer->o->template, &out->list[i], e);
        out->ends[i] = out->ids.n - out->n_pictures + out->picture_rows;
    }
    for (int i = out->n; i < out->n + out->n_again && status == STATUS_OK; i++)
        status = write_passage(writer, writer->o->again, &out->list[i], e);
    return status;
}

/* Passages of the first n_hits of widened ones, and what is found again where there is room. */
static enum status write_first(struct passage_writer *writer, int n_hits, struct error *e) {
    struct passages *out = writer->out;
    out->n = 0;
    for (int i = 0; i < n_hits; i++)
        out->n = passage_list_add(out->list, out->n, writer->widened[i]);
    for (int i = 0; i < out->n; i++) out->list[i].number = writer->from->last_number + 1 + i;
    out->n_again = writer->n_again;
    for (int i = 0; i < out->n_again; i++) out->list[out->n + i] = writer->again[i];
    return write_list(writer, e);
}

/* So many hits as `budget` holds. The span between hits that fit and hits that do not is halved:
 * few texts are encoded, whatever k is. */
static enum status fit_texts(struct passage_writer *writer, int budget, int *n_hits,
                             struct error *e) {
    int fitting = 0, beyond = writer->n_widened + 1, written = writer->n_widened;
    if (writer->n_again > 0 && write_first(writer, 0, e)) return e->status;
    if (writer->n_again > 0 && writer->out->ids.n > budget) writer->n_again = 0;
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

/* Whether a hit before hit i has all of it. */
static bool is_covered(const struct passage_writer *writer, int i) {
    const struct hit *hit = &writer->widened[i];
    for (int j = 0; j < i; j++) {
        const struct hit *other = &writer->widened[j];
        if (other->start <= hit->start && other->end >= hit->end &&
            strcmp(other->document, hit->document) == 0)
            return true;
    }
    return false;
}

static bool same_place(const struct hit *left, const struct hit *right) {
    return left->start == right->start && left->end == right->end;
}

/* Hit i grows by what the budget leaves. A text may have a few tokens more in its passage than by
 * itself: then it grows by less, and what was written with more is written again. */
static enum status grow_hit(struct passage_writer *writer, int budget, int n_hits, int i,
                            struct error *e) {
    const struct passage_growth growth = {.tokenizer = writer->tokenizer,
                                          .earlier = writer->from->earlier,
                                          .n_earlier = writer->from->n_earlier,
                                          .min_confidence = writer->from->min_confidence};
    struct hit *hit = &writer->widened[i];
    const struct hit own = *hit;
    bool over = false;
    for (int room = budget - writer->out->ids.n; room > 0; room /= 2) {
        passage_grow(&growth, hit, room);
        if (same_place(hit, &own)) break;
        if (write_first(writer, n_hits, e)) return e->status;
        over = writer->out->ids.n > budget;
        if (!over) break;
        *hit = own;
    }
    return over ? write_first(writer, n_hits, e) : STATUS_OK;
}

static enum status grow_hits(struct passage_writer *writer, int budget, int n_hits,
                             struct error *e) {
    for (int i = 0; i < n_hits; i++)
        if (!is_covered(writer, i) && grow_hit(writer, budget, n_hits, i, e)) return e->status;
    return STATUS_OK;
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

/* Puts the passages in their order, where relevance leaves a choice. */
static enum status order_list(struct passage_writer *writer, struct error *e) {
    struct passages *out = writer->out;
    passage_order_choose(writer->from->order, out->list, out->n);
    for (int i = 0; i < out->n; i++) out->list[i].number = writer->from->last_number + 1 + i;
    return write_list(writer, e);
}

static bool is_picture(const struct passage_sources *from, const struct hit *hit) {
    for (int i = 0; i < from->n_pictures; i++)
        if (strcmp(from->pictures[i].document, hit->document) == 0) return true;
    return false;
}

/* The passage of an earlier turn that has the widened hit; NULL: none has. A picture is seen in its
 * own turn alone. */
static const struct hit *find_earlier(const struct passage_sources *from, const struct hit *hit) {
    for (int i = 0; i < from->n_earlier; i++) {
        const struct hit *earlier = &from->earlier[i];
        if (hit->start >= earlier->start && hit->end <= earlier->end && hit->source.text &&
            hit->version == earlier->version && strcmp(hit->document, earlier->document) == 0)
            return is_picture(from, hit) ? NULL : earlier;
    }
    return NULL;
}

/* Adds a passage of an earlier turn to again [n] by its number, once; it is as similar as the most
 * similar of its hits. Returns the new n. */
static int add_again(struct hit *again, int n, const struct hit *earlier, const struct hit *hit) {
    int place = n;
    for (int i = 0; i < n; i++)
        if (again[i].number == earlier->number) return n;
    while (place > 0 && again[place - 1].number > earlier->number) place--;
    memmove(again + place + 1, again + place, (size_t)(n - place) * sizeof *again);
    again[place] = *earlier;
    again[place].similarity = hit->similarity;
    again[place].relevance = hit->relevance;
    again[place].by = hit->by;
    return n + 1;
}

/* Hits that are to be put in, widened, and those that an earlier turn has. */
static void part_hits(struct passage_writer *writer, struct hit *again) {
    const struct passage_sources *from = writer->from;
    for (int i = 0; i < from->hits->n; i++) {
        struct hit *hit = &writer->widened[writer->n_widened];
        *hit = from->hits->list[i];
        passage_widen(hit);
        const struct hit *earlier = find_earlier(from, hit);
        if (earlier)
            writer->n_again = add_again(again, writer->n_again, earlier, hit);
        else
            writer->n_widened++;
    }
    writer->again = again;
}

enum status passages_write(const struct passage_options *options, const struct tokenizer *tokenizer,
                           const struct passage_sources *from, int room, struct passages *out,
                           struct error *e) {
    size_t n = (size_t)from->hits->n;
    struct passage_writer writer = {.o = options, .tokenizer = tokenizer, .from = from, .out = out};
    struct hit *again = xcalloc(n, sizeof *again);
    writer.widened = xcalloc(n, sizeof *writer.widened);
    part_hits(&writer, again);
    out->list = xrealloc(out->list, n * sizeof *out->list);
    out->ends = xrealloc(out->ends, n * sizeof *out->ends);
    out->pictures = xrealloc(out->pictures, ((size_t)from->n_pictures + 1) * sizeof *out->pictures);
    for (int i = 0; i < from->n_pictures; i++) from->pictures[i].stands = false;

    int written = 0, budget = max_int(0, min_int(options->max_tokens, room));
    enum status status = fit_texts(&writer, budget, &written, e);
    if (status == STATUS_OK && from->sections) status = grow_hits(&writer, budget, written, e);
    if (status == STATUS_OK && choose_pictures(&writer, room - out->ids.n) > 0)
        status = write_first(&writer, written, e);
    if (status == STATUS_OK && from->order && from->order->known) status = order_list(&writer, e);
    free(writer.widened);
    free(again);
    return status;
}

enum status passages_show(const struct passage_options *options, const struct tokenizer *tokenizer,
                          const struct shown_passages *shown, struct passages *out,
                          struct error *e) {
    struct passage_writer writer = {.o = options, .tokenizer = tokenizer, .out = out};
    size_t bytes = (size_t)(shown->n + shown->n_again) * sizeof *shown->list;
    out->list = xrealloc(out->list, bytes);
    out->ends = xrealloc(out->ends, (size_t)shown->n * sizeof *out->ends);
    if (bytes > 0) memcpy(out->list, shown->list, bytes);
    out->n = shown->n;
    out->n_again = shown->n_again;
    return write_list(&writer, e);
}
