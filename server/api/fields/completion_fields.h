/* server/api/fields/completion_fields.h: the body of a completion, checked: what a client asked
 * for, in our types. No model is needed here, so that all of it can be tested and fuzzed without
 * one. */
#pragma once

#include "server/api/fields/prompt_fields.h"
#include "server/api/fields/writing_fields.h"

enum { DEFAULT_MAX_TOKENS = 16 };

struct completion_request {
    char *model; /* NULL: not named */
    struct prompt_list prompts;
    int64_t max_tokens;
    struct request_writing writing;
    int64_t best_of;                   /* 0: as many as n */
    int64_t logprobs, prompt_logprobs; /* -1: none */
    bool echo;
    struct buffer suffix; /* owned; what stands behind the answer, empty: nothing */
    bool has_target;
    struct request_prompt
        target; /* the answer's beginning, of a model with an encoder: "" unless has_target */
};
extern const struct json_table completion_table;

/* On false *failure is set; *request can be freed either way. */
bool completion_request_parse(struct completion_request *request, const char *body, size_t size,
                              const struct request_models *models, struct failure *failure);
void completion_request_free(struct completion_request *request);
