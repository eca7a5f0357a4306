/* server/api/text/neighbor_json.c: neighbours as JSON. See neighbor_json.h. */
#include "server/api/text/neighbor_json.h"

#include <math.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/filter/scope.h"
#include "retrieval/picture_document.h"

/* Headings and titles come back with every neighbour: a foreign file may have one of any length,
 * which an answer does not repeat in full. */
enum { SHOWN_BYTES = 400 };

void neighbor_write_shown(struct json_writer *w, struct text_span text) {
    static const char ellipsis[] = "\xe2\x80\xa6";
    char shown[SHOWN_BYTES + sizeof ellipsis];
    if (text.size <= SHOWN_BYTES) {
        put_string_n(w, text.text, text.size);
        return;
    }
    size_t n = utf8_prefix(text.text, text.size, SHOWN_BYTES);
    memcpy(shown, text.text, n);
    memcpy(shown + n, ellipsis, sizeof ellipsis - 1);
    put_string_n(w, shown, n + sizeof ellipsis - 1);
}

struct document_place neighbor_find_place(const struct hit *hit) {
    if (hit->source.text == NULL) return (struct document_place){0};
    return place_find_passage(hit->marks, hit->source, hit->start, hit->end);
}

static void write_marks(struct json_writer *w, const struct hit *hit,
                        const struct document_place *place) {
    if (place->page > 0)
        put_key_int(w, "page", place->page);
    else
        put_key_null(w, "page");
    if (place->line > 0)
        put_key_int(w, "line", place->line);
    else
        put_key_null(w, "line");
    put_key_array(w, "heading");
    for (int i = 0; i < place->n_headings; i++) neighbor_write_shown(w, place->headings[i]);
    put_array_end(w);
    if (hit->confidence > 0) put_key_int(w, "confidence", hit->confidence);
}

void neighbor_write_marks(struct json_writer *w, const struct hit *hit) {
    struct document_place place = neighbor_find_place(hit);
    write_marks(w, hit, &place);
}

/* A text that came with the request has no path. */
void neighbor_write_place(struct json_writer *w, const struct hit *hit,
                          const struct document_place *place, const struct filter *viewer) {
    static const char *const keys[] = {"id",  "document", "title", "start",
                                       "end", "page",     "line",  "heading"};
    for (size_t i = 0; hit->path == NULL && i < ARRAY_COUNT(keys); i++) put_key_null(w, keys[i]);
    if (hit->path == NULL) return;
    put_key_string(w, "id", scope_show(viewer, hit->document));
    put_key_string(w, "document", hit->path);
    put_key(w, "title");
    neighbor_write_shown(w, (struct text_span){hit->title, strlen(hit->title)});
    put_key_int(w, "start", (int64_t)hit->start);
    put_key_int(w, "end", (int64_t)hit->end);
    write_marks(w, hit, place);
}

/* As a part of a URL: RFC 3986, 2.3. */
static void append_escaped(struct buffer *url, const char *id) {
    static const char kept[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (const char *at = id; *at; at++) {
        if (strchr(kept, *at))
            buffer_append(url, at, 1);
        else
            buffer_printf(url, "%%%02X", (unsigned char)*at);
    }
}

/* Where the picture of a chunk is to be had, if the document is one. */
static void write_picture(struct json_writer *w, const struct hit *hit,
                          const struct filter *viewer) {
    struct picture_document picture;
    struct buffer url = {0};
    if (hit->source.text == NULL || !picture_document_read(&picture, hit->source)) return;
    buffer_append_string(&url, "/v1/pictures/");
    append_escaped(&url, scope_show(viewer, hit->document));
    put_key_string_n(w, "picture", url.data, url.size);
    buffer_free(&url);
}

void neighbor_write(struct json_writer *w, const struct hit *hit, const struct filter *viewer) {
    struct document_place place = neighbor_find_place(hit);
    neighbor_write_place(w, hit, &place, viewer);
    if (hit->path)
        put_key_float(w, "similarity", fminf(1, hit->similarity));
    else
        put_key_null(w, "similarity");
    if (hit->path && hit->relevance >= 0) put_key_float(w, "relevance", hit->relevance);
    hit_put_lists(w, hit);
    put_key_string_n(w, "text", hit->text.text, hit->text.size);
    write_picture(w, hit, viewer);
}

void neighbor_write_given(struct json_writer *w, struct text_span text) {
    neighbor_write(w, &(struct hit){.text = text}, NULL);
}

bool found_is_told(const struct sequence *sequence) {
    const struct sequence_neighbors *neighbors = &sequence->asked.neighbors;
    return neighbors->search || neighbors->given_k > 0 || sequence_reads_passages(&sequence->asked);
}

/* Whether the model sees the picture of a passage, and if not, why. */
static void write_sight(struct json_writer *w, const struct found_pictures *seen,
                        const char *document) {
    const struct found_picture *picture = found_pictures_find(seen, document);
    if (picture == NULL) return;
    put_key_bool(w, "picture_read", picture->problem == NULL);
    if (picture->problem) put_key_string(w, "picture_problem", picture->problem);
}

/* Passage i of search j, which stands in the prompt. */
static void write_passage(struct json_writer *w, const struct told_answer *told, int j, int i) {
    const struct sequence *sequence = told->sequence;
    const struct hits *hits = &sequence->answer.found[j];
    const struct hit *hit = &hits->list[i];
    put_object(w);
    put_key_int(w, "number", hit->number);
    if (i >= hits->n - hits->n_again) put_key_bool(w, "again", true);
    neighbor_write(w, hit, principal_filter(&sequence->asked.principal));
    write_sight(w, &sequence->answer.seen[j], hit->document);
    if (told->asked->boxes) hit_put_boxes(w, hit);
    put_object_end(w);
}

static void write_hit(struct json_writer *w, const struct told_answer *told,
                      const struct hit *hit) {
    put_object(w);
    neighbor_write(w, hit, principal_filter(&told->sequence->asked.principal));
    if (told->asked->boxes) hit_put_boxes(w, hit);
    put_object_end(w);
}

/* Passages of earlier turns that stand in the prompt beside those of the first search. */
static void write_earlier(struct json_writer *w, const struct told_answer *told) {
    const struct sequence_answer *answer = &told->sequence->answer;
    if (answer->n_earlier == 0) return;
    put_key_array(w, "earlier");
    for (int i = 0; i < answer->n_earlier; i++) {
        put_object(w);
        put_key_int(w, "number", answer->earlier[i].number);
        neighbor_write(w, &answer->earlier[i], principal_filter(&told->sequence->asked.principal));
        if (told->asked->boxes) hit_put_boxes(w, &answer->earlier[i]);
        put_object_end(w);
    }
    put_array_end(w);
}

/* The query of the first search, where the model was to rewrite the question. */
static void write_query(struct json_writer *w, const struct sequence_place *place) {
    if (place->rewritten) put_key_string_n(w, "query", place->query.text, place->query.size);
    if (place->query_problem) put_key_string(w, "query_problem", place->query_problem);
}

void found_write(struct json_writer *w, const struct told_answer *told, int j) {
    const struct sequence *sequence = told->sequence;
    const struct sequence_answer *answer = &sequence->answer;
    bool in_prompt = j < answer->n_searches;
    if (!found_is_told(sequence)) return;
    put_object(w);
    put_key_int(w, "index", told->index);
    put_key_int(w, "chunk", in_prompt ? j : j - answer->n_searches);
    put_key_int(w, "position", sequence_found_row(sequence, j));
    if (in_prompt && j == 0) write_query(w, &sequence->asked.place);
    put_key_array(w, "neighbors");
    for (int i = 0; j < answer->found_room && i < answer->found[j].n; i++) {
        if (in_prompt)
            write_passage(w, told, j, i);
        else
            write_hit(w, told, &answer->found[j].list[i]);
    }
    for (int i = 0; !in_prompt && i < sequence->asked.neighbors.given_k; i++) {
        put_object(w);
        neighbor_write_given(w, told->asked->neighbors.all[i]);
        put_object_end(w);
    }
    put_array_end(w);
    if (in_prompt && j == 0) write_earlier(w, told);
    put_object_end(w);
}
