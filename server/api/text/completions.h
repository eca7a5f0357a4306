/* server/api/text/completions.h: one POST /v1/completions on its way, and its shape. */
#pragma once

#include "server/api/text/openai_json.h"

struct completion_choice {
    struct choice base; /* first */
    /* Only with echo: the prompt's text, and the byte where each of its tokens starts. */
    struct buffer prompt_text;
    uint32_t *prompt_starts; /* [n_prompt] */
    /* As far as it was sent: bytes of text, tokens by their ids, the prompt. */
    size_t text_sent;
    int token_ids_sent;
    bool prompt_sent;
};

struct completion {
    struct writing_answer base; /* first */
    struct completion_request request;
    int per_prompt; /* answers to each prompt */
};

/* completion_json.c */
extern const struct openai_shape completion_shape;
/* Of struct writing_ops. */
void completion_write_new(const struct writing_answer *answer, struct choice *choice,
                          struct buffer *out);
