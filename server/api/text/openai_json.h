/* server/api/text/openai_json.h: the JSON that completions and chats have in common: the whole
 * body and the events of a stream around their choices. */
#pragma once

#include "server/api/text/told_answer.h"
#include "server/api/text/writing_answer.h"

/* The parts in which the two differ. */
struct openai_shape {
    const char *prefix;       /* of the id: "cmpl-" */
    const char *whole, *part; /* "object" of a body, and of an event */
    /* A choice of the whole body, and one that has nothing but its index, as elements of
     * "choices". */
    void (*write_choice)(struct json_writer *w, const struct writing_answer *answer,
                         struct choice *choice);
    void (*write_empty)(struct json_writer *w, const struct choice *choice);
    /* A choice as clients see it. */
    struct told_answer (*tell)(const struct writing_answer *answer, const struct choice *choice);
};

/* The member "finish_reason"; null where the answer goes on. */
void openai_write_finish(struct json_writer *w, enum finish finish);

/* The member "stop_reason" of an answer that a stop string or a stop token of the request ended. */
void openai_write_stop_reason(struct json_writer *w, const struct writing_answer *answer,
                              const struct choice *choice);

/* An event, open within its array "choices"; and its end, behind a choice that goes on or behind
 * one that is finished, with the provenance of that. */
void openai_begin_event(struct json_writer *w, const struct writing_answer *answer,
                        struct buffer *out);
void openai_end_choices(struct json_writer *w, const struct writing_answer *answer);
void openai_end_finished(struct json_writer *w, const struct writing_answer *answer,
                         struct choice *choice);
/* Whether something was found that has not been sent; and its event, which goes before the text
 * of the tokens that read it. */
bool openai_has_found(const struct choice *choice);
void openai_write_found(const struct writing_answer *answer, struct choice *choice,
                        struct buffer *out);

/* Of struct writing_ops. */
void openai_write_whole(struct writing_answer *answer, struct buffer *out);
void openai_write_comparison(const struct writing_answer *answer, struct choice *choice,
                             struct buffer *out);
void openai_write_end(const struct writing_answer *answer, const struct failure *failed,
                      struct buffer *out);
