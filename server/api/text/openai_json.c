/* server/api/text/openai_json.c: see openai_json.h. */
#include "server/api/text/openai_json.h"

#include <stdlib.h>

#include "server/api/text/citations.h"
#include "server/api/text/neighbor_json.h"
#include "server/api/text/provenance_json.h"

/* One object: a body or an event. */

static void write_head(struct json_writer *w, const struct writing_answer *a, const char *object) {
    struct buffer id = {0};
    buffer_printf(&id, "%s%016llx", a->ops->openai->prefix, (unsigned long long)a->id);
    put_object(w);
    put_key_string_n(w, "id", id.data, id.size);
    buffer_free(&id);
    put_key_string(w, "object", object);
    put_key_int(w, "created", a->created);
    put_key_string(w, "model", a->model->id);
    origin_write(w, a->model, a->choices[0]->sequence);
    put_key_array(w, "choices");
}

/* Prompts are counted once each, with the first answer to them; later passages may be fewer than
 * those that were taken over. */
static void write_usage(struct json_writer *w, const struct writing_answer *a) {
    int64_t prompt = 0, cached = 0, written = 0;
    for (int i = 0; i < a->n; i++) {
        const struct choice *choice = a->choices[i];
        const struct progress *p = &choice->progress;
        written += p->n_ids;
        if (choice->number > 0) continue;
        prompt += p->n_read;
        cached += min_int(p->n_cached, p->n_read);
    }
    put_key_object(w, "usage");
    put_key_int(w, "prompt_tokens", prompt);
    put_key_int(w, "completion_tokens", written);
    put_key_int(w, "total_tokens", prompt + written);
    put_key_object(w, "prompt_tokens_details");
    put_key_int(w, "cached_tokens", cached);
    put_object_end(w);
    put_object_end(w);
}

void openai_write_finish(struct json_writer *w, enum finish finish) {
    static const char *const names[FINISH_ERROR + 1] = {[FINISH_STOP] = "stop", [FINISH_LENGTH] = "length"};
    put_key_string(w, "finish_reason", names[finish]);
}

/* Provenance: arrays whose elements say which choice they are of. */

struct choice_list {
    struct choice *const *list;
    int n;
};

typedef void told_writer(struct json_writer *w, const struct told_answer *told);

static void write_array(struct json_writer *w, const char *key, const struct writing_answer *a, struct choice_list of,
                        told_writer *write) {
    put_key_array(w, key);
    for (int i = 0; i < of.n; i++) {
        struct told_answer told = a->ops->openai->tell(a, of.list[i]);
        write(w, &told);
    }
    put_array_end(w);
}

static void write_found(struct json_writer *w, const struct told_answer *told) {
    for (int j = told->found_sent; j < told->progress->n_found; j++) found_write(w, told, j);
}

/* The passages that finished choices name, and how they shared out their attention. */
static void write_provenance(struct json_writer *w, const struct writing_answer *a, struct choice_list of) {
    const struct choice *first = of.list[0];
    if (citations_may_be(first->sequence, &first->progress)) write_array(w, "citations", a, of, citations_write);
    if (a->asked->retrieval.attention) write_array(w, "attention", a, of, attention_write);
}

/* The choices that are sent, in their order; the caller frees the list. */
static struct choice_list list_sent(const struct writing_answer *a) {
    struct choice **list = xcalloc((size_t)a->n, sizeof(struct choice *));
    int n = 0;
    for (int i = 0; i < a->n; i++) {
        struct choice *choice = a->choices[i];
        if (choice->index < 0) continue;
        list[choice->index] = choice;
        n++;
    }
    return (struct choice_list){list, n};
}

void openai_write_whole(struct writing_answer *a, struct buffer *out) {
    const struct openai_shape *shape = a->ops->openai;
    struct choice_list sent = list_sent(a);
    struct json_writer w;
    put_begin(&w, out);
    write_head(&w, a, shape->whole);
    for (int i = 0; i < sent.n; i++) shape->write_choice(&w, a, sent.list[i]);
    put_array_end(&w);
    write_usage(&w, a);
    write_array(&w, "retrieval", a, sent, write_found);
    write_provenance(&w, a, sent);
    if (a->asked->retrieval.compared) write_array(&w, "compare", a, sent, comparison_write);
    put_object_end(&w);
    free((void *)(uintptr_t)sent.list);
}

/* Events. */

void openai_begin_event(struct json_writer *w, const struct writing_answer *a, struct buffer *out) {
    buffer_append_string(out, "data: ");
    put_begin(w, out);
    write_head(w, a, a->ops->openai->part);
}

static void end_event(struct json_writer *w) {
    put_object_end(w);
    buffer_append_string(w->out, "\n\n");
}

/* Clients that asked for usage find null in every event but the last. */
static void end_part(struct json_writer *w, const struct writing_answer *a) {
    if (a->asked->include_usage) put_key_null(w, "usage");
    end_event(w);
}

void openai_end_choices(struct json_writer *w, const struct writing_answer *a) {
    put_array_end(w);
    end_part(w, a);
}

void openai_end_finished(struct json_writer *w, const struct writing_answer *a, struct choice *choice) {
    put_array_end(w);
    write_provenance(w, a, (struct choice_list){&choice, 1});
    end_part(w, a);
}

void openai_write_found(const struct writing_answer *a, struct choice *choice, struct buffer *out) {
    struct json_writer w;
    openai_begin_event(&w, a, out);
    a->ops->openai->write_empty(&w, choice);
    put_array_end(&w);
    write_array(&w, "retrieval", a, (struct choice_list){&choice, 1}, write_found);
    end_part(&w, a);
    choice->found_sent = choice->progress.n_found;
}

bool openai_has_found(const struct choice *choice) {
    return choice->progress.n_found > choice->found_sent && found_is_told(choice->sequence);
}

void openai_write_comparison(const struct writing_answer *a, struct choice *choice, struct buffer *out) {
    struct json_writer w;
    openai_begin_event(&w, a, out);
    put_array_end(&w);
    write_array(&w, "compare", a, (struct choice_list){&choice, 1}, comparison_write);
    end_part(&w, a);
}

static void write_usage_event(const struct writing_answer *a, struct buffer *out) {
    struct json_writer w;
    openai_begin_event(&w, a, out);
    put_array_end(&w);
    write_usage(&w, a);
    end_event(&w);
}

void openai_write_end(const struct writing_answer *a, const struct failure *failed, struct buffer *out) {
    if (failed == NULL && a->asked->include_usage) write_usage_event(a, out);
    if (failed) {
        buffer_append_string(out, "data: ");
        failure_write(failed, out);
        buffer_append_string(out, "\n\n");
    }
    buffer_append_string(out, "data: [DONE]\n\n");
}
