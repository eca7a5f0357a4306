/* server/api/text/completions.h: one POST /v1/completions on its way: its sequences and how much of each has been
 * sent. */
#pragma once

#include "config/json/json_writer.h"
#include "server/api/api.h"

/* One choice of the answer: one prompt and what is written after it. */
struct choice {
    struct sequence *sequence;
    int number; /* among the answers to its prompt */
    int index;  /* in the answer; -1: it is not among the best */
    /* Only with echo: the prompt's text, and the byte where each of its tokens starts. */
    struct buffer prompt_text;
    uint32_t *prompt_starts; /* [n_prompt] */
    /* As far as this answer has read. */
    struct buffer text; /* all of it so far */
    struct progress progress;
    struct error error;
    /* As far as it was sent: bytes of text, tokens of the answer, chunks of retrieval. */
    size_t text_sent;
    int ids_sent, token_ids_sent, found_sent;
    bool prompt_sent;
    bool written, finished; /* the answer is complete, and so is its comparison */
};

struct completion {
    struct answer base;
    const struct served_model *model;
    struct completion_request request;
    uint64_t id;
    int64_t created;        /* seconds since 1970 */
    struct choice *choices; /* [n], those of one prompt side by side */
    int n, per_prompt;
};

/* completion_json.c: the whole body; one event of a stream with what `choice` has not sent yet (nothing is written
 * when there is nothing); one with its comparison, which is over; and the stream's last events. */
void completion_write(struct completion *c, struct buffer *out);
void completion_write_event(struct completion *c, struct choice *choice, struct buffer *out);
void completion_write_comparison(struct completion *c, const struct choice *choice, struct buffer *out);
void completion_write_end(struct completion *c, const struct failure *failed, struct buffer *out);
