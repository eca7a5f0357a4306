/* server/api/fields/token_fields.h: the bodies of /tokenize and /detokenize, checked. */
#pragma once

#include "server/api/fields/prompt_fields.h"

/* The text is `prompt`, as vLLM has it, or `content`, as llama.cpp has it, whose tokens have none
 * added by default. */
struct tokenize_request {
    char *model;
    struct request_prompt prompt;
    bool has_prompt, has_content;
    int add_special; /* 0, 1, or -1: not said */
    bool with_pieces, return_strings;
    bool parse_special;
};
extern const struct json_table tokenize_table;

/* On false *failure is set; *request can be freed either way. */
bool tokenize_request_parse(struct tokenize_request *request, const char *body, size_t size,
                            const struct request_models *models, struct failure *failure);
void tokenize_request_free(struct tokenize_request *request);

struct detokenize_request {
    char *model;
    struct request_ids tokens;
};
extern const struct json_table detokenize_table;
bool detokenize_request_parse(struct detokenize_request *request, const char *body, size_t size,
                              const struct request_models *models, struct failure *failure);
void detokenize_request_free(struct detokenize_request *request);
