/* server/doors/responses/responses_search.c: the tool file_search: a retrieval whose passages stand
 * in the prompt by their numbers, and whose citations are these numbers in brackets. */
#include <string.h>

#include "retrieval/filter/scope.h"
#include "server/api/text/cited_numbers.h"
#include "server/doors/responses/responses.h"

/* Asking. */

bool responses_read_search(struct responses_answer *answer, const struct json *tool,
                           struct failure *failure) {
    const struct door_table rows = {"responses", &file_search_table};
    if (answer->searches)
        return failure_set(failure, 400, "invalid_value", "tools",
                           "tools: there is more than one file_search");
    answer->searches = true;
    return door_read_json(answer->api, &rows, tool, &answer->search, failure) &&
           stores_find(answer->api, &answer->chat.principal, answer->search.stores,
                       "vector_store_ids", &answer->stores, failure);
}

bool responses_put_search(const struct responses_answer *answer, struct chat_body *body,
                          struct failure *failure) {
    const struct file_search_tool *tool = &answer->search;
    const struct store_choice choice = {.stores = &answer->stores,
                                        .owner = store_owner(&answer->chat.principal),
                                        .filters = tool->filters,
                                        .max_num_results = tool->max_num_results,
                                        .ranking_options = tool->ranking_options};
    put_key_object(&body->w, "retrieval");
    put_key_bool(&body->w, "enabled", true);
    put_key_string(&body->w, "mode", "prompt");
    if (!store_put_choice(&body->w, &choice, "tools.filters", failure)) return false;
    put_object_end(&body->w);
    return true;
}

/* Telling. */

/* The passages of the prompt; NULL: none were found yet. */
static const struct hits *passages_of(const struct responses_told *told) {
    const struct choice *choice = &told->choice->chat.base;
    bool found = choice->sequence->answer.n_searches > 0 && choice->progress.n_found > 0;
    return told->answer->searches && found ? &choice->sequence->answer.found[0] : NULL;
}

static const struct filter *viewer_of(const struct responses_told *told) {
    return principal_filter(&told->answer->chat.principal);
}

static void put_file(struct json_writer *w, const struct responses_told *told,
                     const struct hit *hit) {
    file_put_id(w, "file_id", scope_show(viewer_of(told), hit->document));
    put_key_string(w, "filename", hit->path);
}

static void put_results(struct json_writer *w, const struct responses_told *told,
                        const struct hits *passages) {
    double score = 1;
    put_key_array(w, "results");
    for (int i = 0; i < passages->n; i++) {
        const struct hit *hit = &passages->list[i];
        score = store_score(hit, score);
        put_object(w);
        put_file(w, told, hit);
        put_key_float(w, "score", (float)score);
        put_key_string_n(w, "text", hit->text.text, hit->text.size);
        store_put_attributes(w, told->answer->chat.base.model, passages, i, &told->answer->stores);
        put_object_end(w);
    }
    put_array_end(w);
}

void responses_put_call(struct json_writer *w, const struct responses_told *told, bool begins) {
    const struct text_span *query = &told->choice->chat.base.sequence->asked.place.query;
    const struct hits *passages = passages_of(told);
    put_key_array(w, "queries");
    put_string_n(w, query->text, query->size);
    put_array_end(w);
    if (!begins && passages && responses_includes(told->answer, "file_search_call.results"))
        put_results(w, told, passages);
    else
        put_key_null(w, "results");
}

/* Citations. */

static void count_to(struct responses_citation *citation, struct text_span text, size_t end) {
    for (; citation->at < end; citation->at++)
        citation->characters += (text.text[citation->at] & 0xC0) != 0x80;
}

/* Moves to the next brackets. */
static bool find_brackets(struct responses_citation *citation, struct text_span text) {
    while (citation->at < text.size) {
        const char *next = memchr(text.text + citation->at, '[', text.size - citation->at);
        if (next == NULL) return false;
        count_to(citation, text, (size_t)(next - text.text));
        citation->index = citation->characters;
        citation->end = cited_end(text, citation->at);
        if (citation->end > 0) return true;
        count_to(citation, text, citation->at + 1);
    }
    return false;
}

bool responses_next_citation(const struct responses_told *told, int i,
                             struct responses_citation *citation) {
    const struct hits *passages = passages_of(told);
    const struct sequence *sequence = told->choice->chat.base.sequence;
    struct text_span text = responses_item_text(told->choice, i);
    if (passages == NULL) return false;
    while (citation->end > 0 || find_brackets(citation, text)) {
        size_t at = citation->at;
        int number = cited_next(text, &at, citation->end);
        count_to(citation, text, number > 0 ? at : citation->end);
        if (number == 0) citation->end = 0;
        citation->hit = number > 0 ? sequence_passage(sequence, 0, number) : NULL;
        if (citation->hit) return true;
    }
    return false;
}

void responses_put_citation(struct json_writer *w, const struct responses_told *told,
                            const struct responses_citation *citation) {
    put_object(w);
    put_key_string(w, "type", "file_citation");
    put_file(w, told, citation->hit);
    put_key_int(w, "index", citation->index);
    put_object_end(w);
}
