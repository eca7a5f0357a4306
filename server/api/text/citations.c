/* server/api/text/citations.c: see citations.h. */
#include "server/api/text/citations.h"

#include <stdlib.h>

#include "server/api/text/cited_numbers.h"
#include "server/api/text/neighbor_json.h"

static bool may_quote(const struct sequence *sequence) {
    return sequence->asked.grammar && grammar_quotes(sequence->asked.grammar);
}

static bool names_passages(const struct sequence *sequence, const struct progress *progress) {
    return sequence->answer.n_searches > 0 && progress->n_found > 0;
}

bool citations_may_be(const struct sequence *sequence, const struct progress *progress) {
    return may_quote(sequence) || names_passages(sequence, progress);
}

/* Where brackets stand in the answer, in characters. */
struct cited_place {
    int64_t start, end;
};

/* The search whose passages stood in the prompt when byte `at` of the answer was written. Bytes are
 * asked for in rising order: *token is 0 at first, and then the last one's. */
static int search_at(const struct told_answer *told_answer, size_t at, int *token) {
    const struct sequence_answer *answer = &told_answer->sequence->answer;
    int every = told_answer->sequence->asked.choice.every,
        latest = min_int(told_answer->progress->n_found, answer->n_searches) - 1;
    size_t written = at + (told_answer->said ? told_answer->said->content_start
                                             : 0); /* thoughts come before the text */
    if (every == 0) return 0;
    while (*token < told_answer->progress->n_ids && answer->text_ends[*token] <= written)
        (*token)++;
    return min_int(*token / every, latest);
}

/* The places of the passages that were cited so far: an answer may cite one again and again, and a
 * place in a large document takes its time. */
struct cited_passage {
    const struct hit *passage;
    struct document_place place;
};

struct cited_passages {
    struct cited_passage *list; /* [n] */
    int n, capacity;
};

static const struct document_place *know_place(struct cited_passages *known,
                                               const struct hit *passage) {
    for (int i = 0; i < known->n; i++)
        if (known->list[i].passage == passage) return &known->list[i].place;
    known->list = xgrow(known->list, known->n, &known->capacity, sizeof *known->list);
    known->list[known->n] = (struct cited_passage){passage, neighbor_find_place(passage)};
    known->n++;
    return &known->list[known->n - 1].place;
}

static void write_citation(struct json_writer *w, const struct told_answer *answer,
                           const struct hit *passage, struct cited_place place,
                           struct cited_passages *known) {
    put_object(w);
    put_key_int(w, "index", answer->index);
    put_key_int(w, "number", passage->number);
    neighbor_write_place(w, passage, know_place(known, passage),
                         principal_filter(&answer->sequence->asked.principal));
    if (answer->asked->boxes) hit_put_boxes(w, passage);
    put_key_int(w, "answer_start", place.start);
    put_key_int(w, "answer_end", place.end);
    put_object_end(w);
}

static void write_numbers(struct json_writer *w, const struct told_answer *answer) {
    struct text_span text = answer->text;
    int64_t characters = answer->before;
    struct cited_passages known = {0};
    int token = 0;
    if (!names_passages(answer->sequence, answer->progress)) return;
    for (size_t at = 0; at < text.size; at++) {
        size_t end = text.text[at] == '[' ? cited_end(text, at) : 0;
        struct cited_place place = {characters, characters + (int64_t)(end - at)};
        int search = end > 0 ? search_at(answer, at, &token) : 0;
        size_t next = at;
        for (int number; end > 0 && (number = cited_next(text, &next, end)) > 0;) {
            const struct hit *passage = sequence_passage(answer->sequence, search, number);
            if (passage) write_citation(w, answer, passage, place, &known);
        }
        characters += (text.text[at] & 0xC0) != 0x80;
    }
    free(known.list);
}

/* Quotes. */

/* The passage of a quote, cut down to the quote. */
static struct hit quoted_hit(const struct sequence *sequence, const struct sequence_quote *quote) {
    struct hit hit = {0};
    if (quote->entry == QUOTES_GIVEN) {
        hit.text = sequence->asked.neighbors.given[quote->hit];
    } else {
        hit = quote->entry == QUOTES_EARLIER
                  ? sequence->answer.earlier[quote->hit]
                  : sequence->answer.found[quote->entry].list[quote->hit];
        if (hit.source.text) hit.text.text = hit.source.text + hit.start;
    }
    hit.text = (struct text_span){hit.text.text + quote->start, quote->end - quote->start};
    hit.end = hit.start + quote->end;
    hit.start += quote->start;
    return hit;
}

/* How far the told text was read: quotes come in its order. */
struct quote_places {
    size_t at;
    int64_t characters;
};

static int64_t places_to(struct quote_places *places, struct text_span text, size_t end) {
    for (; places->at < end; places->at++)
        places->characters += (text.text[places->at] & 0xC0) != 0x80;
    return places->characters;
}

static size_t told_place(const struct told_answer *answer, size_t written) {
    return answer->said ? chat_reply_place(answer->said, written) : written;
}

/* Of a quote that is no part of the told text, as those in calls of tools: null. */
static void write_answer_place(struct json_writer *w, const struct told_answer *answer,
                               const struct sequence_quote *quote, struct quote_places *places) {
    size_t start = told_place(answer, quote->text_start), end = told_place(answer, quote->text_end);
    if (end > answer->text.size || end - start != quote->text_end - quote->text_start) {
        put_key_null(w, "answer_start");
        put_key_null(w, "answer_end");
        return;
    }
    put_key_int(w, "answer_start", places_to(places, answer->text, start));
    put_key_int(w, "answer_end", places_to(places, answer->text, end));
}

/* A text that came with the request has no document, but places. */
static void write_given_place(struct json_writer *w, const struct hit *hit) {
    put_key_null(w, "id");
    put_key_null(w, "document");
    put_key_null(w, "title");
    put_key_int(w, "start", (int64_t)hit->start);
    put_key_int(w, "end", (int64_t)hit->end);
    put_key_null(w, "page");
    put_key_null(w, "line");
    put_key_array(w, "heading");
    put_array_end(w);
}

static void write_quote(struct json_writer *w, const struct told_answer *answer,
                        const struct sequence_quote *quote, struct quote_places *places) {
    struct hit hit = quoted_hit(answer->sequence, quote);
    int n_searches = answer->sequence->answer.n_searches;
    int entry = quote->entry == QUOTES_GIVEN ? n_searches : max_int(quote->entry, 0);
    put_object(w);
    put_key_int(w, "index", answer->index);
    put_key_int(w, "chunk", entry < n_searches ? entry : entry - n_searches);
    put_key_int(w, "position", sequence_found_row(answer->sequence, entry));
    put_key_int(w, "number", hit.number > 0 ? hit.number : quote->hit + 1);
    struct document_place place = neighbor_find_place(&hit);
    if (hit.path)
        neighbor_write_place(w, &hit, &place, principal_filter(&answer->sequence->asked.principal));
    else
        write_given_place(w, &hit);
    if (answer->asked->boxes) hit_put_boxes(w, &hit);
    put_key_string_n(w, "quote", hit.text.text, hit.text.size);
    write_answer_place(w, answer, quote, places);
    put_object_end(w);
}

void citations_write(struct json_writer *w, const struct told_answer *answer) {
    const struct sequence_answer *written = &answer->sequence->answer;
    struct quote_places places = {.characters = answer->before};
    write_numbers(w, answer);
    for (int i = 0; i < written->n_quotes; i++)
        write_quote(w, answer, &written->quotes[i], &places);
}
