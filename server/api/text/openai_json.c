/* server/api/text/openai_json.c: see openai_json.h. */
#include "server/api/text/openai_json.h"

#include <stdlib.h>

#include "server/api/text/citations.h"
#include "server/api/text/neighbor_json.h"
#include "server/api/text/provenance_json.h"
#include "server/api/text/support_json.h"

/* One object: a body or an event. */

static void write_head(struct json_writer *w, const struct writing_answer *answer,
                       const char *object) {
    struct buffer id = {0};
    buffer_printf(&id, "%s%016llx", answer->ops->openai->prefix, (unsigned long long)answer->id);
    put_object(w);
    put_key_string_n(w, "id", id.data, id.size);
    buffer_free(&id);
    put_key_string(w, "object", object);
    put_key_int(w, "created", answer->created);
    put_key_string(w, "model", answer->model->id);
    origin_write(w, answer->model, answer->choices[0]->sequence);
    put_key_array(w, "choices");
}

static void add_drafts(struct draft_told *to, const struct draft_told *from) {
    to->guessed += from->guessed;
    to->right += from->right;
    to->expected += from->expected;
    to->expected_rightly += from->expected_rightly;
}

/* Prompts are counted once each, with the first answer to them; later passages may be fewer than
 * those that were taken over. */
static void write_usage(struct json_writer *w, const struct writing_answer *answer) {
    int64_t prompt = 0, cached = 0, written = 0;
    struct draft_told drafts = {0};
    for (int i = 0; i < answer->n; i++) {
        const struct choice *choice = answer->choices[i];
        const struct progress *progress = &choice->progress;
        written += choice->earlier.n_ids + progress->n_ids;
        add_drafts(&drafts, &progress->drafts);
        if (choice->number > 0) continue;
        prompt += choice->earlier.n_read + progress->n_read;
        cached += choice->earlier.n_cached + min_int(progress->n_cached, progress->n_read);
    }
    put_key_object(w, "usage");
    put_key_int(w, "prompt_tokens", prompt);
    put_key_int(w, "completion_tokens", written);
    put_key_int(w, "total_tokens", prompt + written);
    put_key_object(w, "prompt_tokens_details");
    put_key_int(w, "cached_tokens", cached);
    put_object_end(w);
    put_key_object(w, "completion_tokens_details");
    put_key_int(w, "accepted_prediction_tokens", drafts.expected_rightly);
    put_key_int(w, "rejected_prediction_tokens", drafts.expected - drafts.expected_rightly);
    put_key_int(w, "drafted_tokens", drafts.guessed);
    put_key_int(w, "accepted_drafted_tokens", drafts.right);
    put_object_end(w);
    put_object_end(w);
}

void openai_write_finish(struct json_writer *w, enum finish finish) {
    static const char *const names[FINISH_ERROR + 1] = {
        [FINISH_STOP] = "stop", [FINISH_LENGTH] = "length"};
    put_key_string(w, "finish_reason", names[finish]);
}

static bool names_id(const struct request_ids *ids, int32_t id) {
    for (int i = 0; i < ids->n; i++)
        if (ids->ids[i] == id) return true;
    return false;
}

void openai_write_stop_reason(struct json_writer *w, const struct writing_answer *answer,
                              const struct choice *choice) {
    const struct progress *progress = &choice->progress;
    const struct text_span *stop = writing_stop(answer, choice);
    if (progress->finish != FINISH_STOP) return;
    if (stop)
        put_key_string_n(w, "stop_reason", stop->text, stop->size);
    else if (names_id(&answer->asked->stop_ids, progress->stop_id))
        put_key_int(w, "stop_reason", progress->stop_id);
}

/* Provenance: arrays whose elements say which choice they are of. */

struct choice_list {
    struct choice *const *list;
    int n;
};

typedef void told_writer(struct json_writer *w, const struct told_answer *told);

static void write_array(struct json_writer *w, const char *key, const struct writing_answer *answer,
                        struct choice_list of, told_writer *write) {
    put_key_array(w, key);
    for (int i = 0; i < of.n; i++) {
        struct told_answer told = answer->ops->openai->tell(answer, of.list[i]);
        write(w, &told);
    }
    put_array_end(w);
}

static void write_found(struct json_writer *w, const struct told_answer *told) {
    for (int j = told->found_sent; j < told->progress->n_found; j++) found_write(w, told, j);
}

/* The passages that finished choices name, and how they shared out their attention. */
static void write_provenance(struct json_writer *w, const struct writing_answer *answer,
                             struct choice_list of) {
    const struct choice *first = of.list[0];
    if (citations_may_be(first->sequence, &first->progress))
        write_array(w, "citations", answer, of, citations_write);
    if (answer->asked->retrieval.attention)
        write_array(w, "attention", answer, of, attention_write);
}

/* Finished choices, as their comparisons tell of them. */
static void write_compared(struct json_writer *w, const struct writing_answer *answer,
                           struct choice_list of) {
    const struct request_retrieval *asked = &answer->asked->retrieval;
    if (asked->compared) write_array(w, "compare", answer, of, comparison_write);
    if (asked->choice.support) write_array(w, "support", answer, of, support_write);
}

/* The choices that are sent, in their order; the caller frees the list. */
static struct choice_list list_sent(const struct writing_answer *answer) {
    struct choice **list = xcalloc((size_t)answer->n, sizeof(struct choice *));
    int n = 0;
    for (int i = 0; i < answer->n; i++) {
        struct choice *choice = answer->choices[i];
        if (choice->index < 0) continue;
        list[choice->index] = choice;
        n++;
    }
    return (struct choice_list){list, n};
}

void openai_write_whole(struct writing_answer *answer, struct buffer *out) {
    const struct openai_shape *shape = answer->ops->openai;
    struct choice_list sent = list_sent(answer);
    struct json_writer w;
    put_begin(&w, out);
    write_head(&w, answer, shape->whole);
    for (int i = 0; i < sent.n; i++) shape->write_choice(&w, answer, sent.list[i]);
    put_array_end(&w);
    write_usage(&w, answer);
    write_array(&w, "retrieval", answer, sent, write_found);
    write_provenance(&w, answer, sent);
    write_compared(&w, answer, sent);
    put_object_end(&w);
    free((void *)(uintptr_t)sent.list);
}

/* Events. */

void openai_begin_event(struct json_writer *w, const struct writing_answer *answer,
                        struct buffer *out) {
    buffer_append_string(out, "data: ");
    put_begin(w, out);
    write_head(w, answer, answer->ops->openai->part);
}

static void end_event(struct json_writer *w) {
    put_object_end(w);
    buffer_append_string(w->out, "\n\n");
}

/* Clients that asked for usage find null in every event but the last. */
static void end_part(struct json_writer *w, const struct writing_answer *answer) {
    if (answer->asked->include_usage) put_key_null(w, "usage");
    end_event(w);
}

void openai_end_choices(struct json_writer *w, const struct writing_answer *answer) {
    put_array_end(w);
    end_part(w, answer);
}

void openai_end_finished(struct json_writer *w, const struct writing_answer *answer,
                         struct choice *choice) {
    put_array_end(w);
    write_provenance(w, answer, (struct choice_list){&choice, 1});
    end_part(w, answer);
}

void openai_write_found(const struct writing_answer *answer, struct choice *choice,
                        struct buffer *out) {
    struct json_writer w;
    openai_begin_event(&w, answer, out);
    answer->ops->openai->write_empty(&w, choice);
    put_array_end(&w);
    write_array(&w, "retrieval", answer, (struct choice_list){&choice, 1}, write_found);
    end_part(&w, answer);
    choice->found_sent = choice->progress.n_found;
}

bool openai_has_found(const struct choice *choice) {
    return choice->progress.n_found > choice->found_sent && found_is_told(choice->sequence);
}

void openai_write_comparison(const struct writing_answer *answer, struct choice *choice,
                             struct buffer *out) {
    struct json_writer w;
    openai_begin_event(&w, answer, out);
    put_array_end(&w);
    write_compared(&w, answer, (struct choice_list){&choice, 1});
    end_part(&w, answer);
}

static void write_usage_event(const struct writing_answer *answer, struct buffer *out) {
    struct json_writer w;
    openai_begin_event(&w, answer, out);
    put_array_end(&w);
    write_usage(&w, answer);
    end_event(&w);
}

void openai_write_end(const struct writing_answer *answer, const struct failure *failed,
                      struct buffer *out) {
    if (failed == NULL && answer->asked->include_usage) write_usage_event(answer, out);
    if (failed) {
        buffer_append_string(out, "data: ");
        failure_write(failed, out);
        buffer_append_string(out, "\n\n");
    }
    buffer_append_string(out, "data: [DONE]\n\n");
}
