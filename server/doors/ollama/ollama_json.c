/* server/doors/ollama/ollama_json.c: answers in Ollama's shapes: one object, or a line for each
 * part of a stream. */
#include <string.h>
#include <time.h>

#include "server/doors/ollama/ollama.h"
#include "server/doors/shared/call_input.h"

/* The clock of time_now() need not be the world's. */
void ollama_put_time(struct json_writer *w, const char *key, double seconds) {
    time_t whole = (time_t)seconds;
    struct tm tm;
    char day[32], text[64];
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", gmtime_r(&whole, &tm));
    snprintf(text, sizeof text, "%s.%06dZ", day, (int)((seconds - (double)whole) * 1e6));
    put_key_string(w, key, text);
}

static double world_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void ollama_read_progress(const struct writing_answer *answer, struct choice *choice,
                          struct error *e) {
    struct ollama_choice *own = (struct ollama_choice *)choice;
    chat_read(answer, choice, e);
    if (own->first == 0 && choice->progress.n_ids > 0) own->first = time_now();
}

static void begin_line(struct json_writer *w, const struct ollama_answer *answer,
                       struct buffer *out) {
    put_begin(w, out);
    put_object(w);
    put_key_string_n(w, "model", answer->model.data, answer->model.size);
    ollama_put_time(w, "created_at", world_now());
}

/* One line's part of what was written. */
struct line_part {
    struct text_span thought, text;
    int first_call, n_calls;
};

static void put_call(struct json_writer *w, const struct ollama_answer *answer,
                     const struct chat_choice *choice, int i) {
    const struct tool_call *call = &choice->reply.calls[i];
    char id[CALL_ID_BYTES];
    chat_call_id(&answer->chat, choice, i, id);
    put_object(w);
    put_key_string(w, "id", id);
    put_key_object(w, "function");
    put_key_int(w, "index", i);
    put_key_string(w, "name", call->name);
    put_key(w, "arguments");
    put_call_input(w, &call->arguments);
    put_object_end(w);
    put_object_end(w);
}

static void put_message(struct json_writer *w, const struct ollama_answer *answer,
                        const struct chat_choice *choice, const struct line_part *part) {
    put_key_object(w, "message");
    put_key_string(w, "role", "assistant");
    put_key_string_n(w, "content", part->text.text, part->text.size);
    if (part->thought.size > 0)
        put_key_string_n(w, "thinking", part->thought.text, part->thought.size);
    if (part->n_calls > part->first_call) {
        put_key_array(w, "tool_calls");
        for (int i = part->first_call; i < part->n_calls; i++) put_call(w, answer, choice, i);
        put_array_end(w);
    }
    put_object_end(w);
}

static void put_part(struct json_writer *w, const struct ollama_answer *answer,
                     const struct chat_choice *choice, const struct line_part *part) {
    if (!answer->generates) {
        put_message(w, answer, choice, part);
        return;
    }
    put_key_string_n(w, "response", part->text.text, part->text.size);
    if (part->thought.size > 0)
        put_key_string_n(w, "thinking", part->thought.text, part->thought.size);
}

static int64_t nanoseconds(double seconds) { return (int64_t)(seconds * 1e9); }

static void put_counts(struct json_writer *w, const struct ollama_answer *answer,
                       const struct ollama_choice *choice) {
    const struct progress *progress = &choice->chat.base.progress;
    double now = time_now(), first = choice->first > 0 ? choice->first : now;
    put_key_int(w, "total_duration", nanoseconds(now - answer->opened));
    put_key_int(w, "load_duration", 0);
    put_key_int(w, "prompt_eval_count", progress->n_read);
    put_key_int(w, "prompt_eval_duration", nanoseconds(first - answer->opened));
    put_key_int(w, "eval_count", progress->n_ids);
    put_key_int(w, "eval_duration", nanoseconds(now - first));
}

static void put_end(struct json_writer *w, const struct ollama_answer *answer) {
    const struct writing_answer *base = &answer->chat.base;
    const struct choice *choice = base->n > 0 ? base->choices[0] : NULL;
    bool cut = choice && choice->progress.finish == FINISH_LENGTH;
    put_key_bool(w, "done", true);
    put_key_string(w, "done_reason",
                   choice == NULL ? (answer->unloads ? "unload" : "load")
                   : cut          ? "length"
                                  : "stop");
    if (choice) put_counts(w, answer, (const struct ollama_choice *)choice);
    put_object_end(w);
}

static void write_line(const struct ollama_answer *answer, const struct chat_choice *choice,
                       const struct line_part *part, struct buffer *out) {
    struct json_writer w;
    begin_line(&w, answer, out);
    put_part(&w, answer, choice, part);
    put_key_bool(&w, "done", false);
    put_object_end(&w);
    buffer_append(out, "\n", 1);
}

/* The text behind *sent, which moves on. */
static struct text_span take_rest(const struct buffer *text, size_t *sent, bool shown) {
    struct text_span rest = {text->data + *sent, text->size - *sent};
    *sent = text->size;
    return shown ? rest : (struct text_span){"", 0};
}

static struct line_part take_part(const struct ollama_answer *answer, struct chat_choice *choice) {
    struct line_part part = {.first_call = choice->calls_sent, .n_calls = choice->reply.n_calls};
    part.thought = take_rest(&choice->reply.reasoning, &choice->reasoning_sent, answer->thinks);
    part.text = take_rest(&choice->reply.content, &choice->content_sent, true);
    choice->calls_sent = part.n_calls;
    return part;
}

void ollama_write_new(const struct writing_answer *base, struct choice *base_choice,
                      struct buffer *out) {
    const struct ollama_answer *answer = (const struct ollama_answer *)base;
    struct chat_choice *choice = (struct chat_choice *)base_choice;
    struct line_part part = take_part(answer, choice);
    if (part.thought.size > 0 || part.text.size > 0 || part.n_calls > part.first_call)
        write_line(answer, choice, &part, out);
}

void ollama_write_end(const struct writing_answer *base, const struct failure *failed,
                      struct buffer *out) {
    const struct ollama_answer *answer = (const struct ollama_answer *)base;
    const struct line_part nothing = {.text = {"", 0}};
    struct json_writer w;
    if (failed) {
        struct failure told = *failed;
        told.form = base->base.form;
        failure_write(&told, out);
    } else {
        begin_line(&w, answer, out);
        put_part(&w, answer, NULL, &nothing);
        put_end(&w, answer);
    }
    buffer_append(out, "\n", 1);
}

void ollama_write_whole(struct writing_answer *base, struct buffer *out) {
    const struct ollama_answer *answer = (const struct ollama_answer *)base;
    struct chat_choice *choice = base->n > 0 ? (struct chat_choice *)base->choices[0] : NULL;
    struct line_part part = {.text = {"", 0}};
    struct json_writer w;
    if (choice) part = take_part(answer, choice);
    begin_line(&w, answer, out);
    put_part(&w, answer, choice, &part);
    put_end(&w, answer);
}
