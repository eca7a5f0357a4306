/* server/api/fields/prompt_fields.h: texts or token ids, one or several: what completions go on
 * from and what is embedded.
 */
#pragma once

#include "server/api/fields/fields.h"

/* A text, or token ids when `ids` is not NULL, or a picture. */
struct request_prompt {
    char *text;
    size_t size;
    int32_t *ids;
    int n_ids;
    bool picture, web; /* the picture's bytes; or the URL that they are fetched from */
};

struct prompt_list {
    struct request_prompt *all; /* [n] owned */
    int n;
};

/* Such a field's values, as JSON Schema. */
#define PROMPT_IDS_SCHEMA \
    "{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"integer\",\"minimum\":0}}"
#define PROMPT_SCHEMA "{\"type\":\"string\"}," PROMPT_IDS_SCHEMA
#define PROMPTS_SCHEMA \
    "{\"anyOf\":[" PROMPT_SCHEMA \
    ",{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"string\"}}," \
    "{\"type\":\"array\",\"minItems\":1,\"items\":" PROMPT_IDS_SCHEMA "}]}"

/* One string or array of ids. `of` is what it is, in messages. */
bool prompt_read(struct request_prompt *prompt, const struct json *json, const char *field,
                 const char *of, const struct request_limits *limits, struct failure *failure);
/* One of these or an array of them, all of one kind; at most limits->max_prompts. *out can be freed
 * either way. */
bool prompts_read(struct prompt_list *out, const struct json *json, const char *field,
                  const struct request_limits *limits, struct failure *failure);
void prompts_free(struct prompt_list *list);
