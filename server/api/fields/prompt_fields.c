/* server/api/fields/prompt_fields.c: see prompt_fields.h. */
#include "server/api/fields/prompt_fields.h"

#include <stdio.h>
#include <stdlib.h>

bool prompt_read(struct request_prompt *prompt, const struct json *json, const char *field,
                 const char *of, const struct request_limits *limits, struct failure *failure) {
    struct request_ids ids = {0};
    if (json_is_list(json)) {
        bool ok = ids_read(&ids, json, field, of, limits, failure);
        prompt->ids = ids.ids;
        prompt->n_ids = ids.n;
        return ok;
    }
    if (!json_is_text(json))
        return failure_set(failure, 400, "invalid_type", field,
                           "%s must be a string or an array of token ids", of);
    prompt->size = json_text(json).size;
    prompt->text = xstrndup(json_text(json).text, prompt->size);
    return true;
}

/* An empty text may mean something, an empty array of token ids is more likely a mistake. */
static bool add_prompt(struct prompt_list *list, const struct json *json, bool ids,
                       const char *field, const struct request_limits *limits,
                       struct failure *failure) {
    int i = list->n++;
    char of[64];
    snprintf(of, sizeof of, "%s %d", field, i);
    if (ids ? !json_is_list(json) : !json_is_text(json))
        return failure_set(
            failure, 400, "invalid_type", field,
            "%s must be a string, an array of strings, an array of token ids, or an array of those",
            field);
    if (ids && json_count(json) == 0)
        return failure_set(failure, 400, "invalid_value", field,
                           "%s is an empty array of token ids", of);
    return prompt_read(&list->all[i], json, field, of, limits, failure);
}

bool prompts_read(struct prompt_list *out, const struct json *json, const char *field,
                  const struct request_limits *limits, struct failure *failure) {
    const struct json *first = json_item(json, 0);
    bool several = json_is_list(json) && !json_is_int(first);
    bool ids = json_is_list(several ? first : json);
    size_t n = several ? json_count(json) : 1;
    if (n == 0)
        return failure_set(failure, 400, "invalid_value", field, "%s is an empty array", field);
    if (n > (size_t)limits->max_prompts)
        return failure_set(failure, 400, "too_many_prompts", field,
                           "the request has %zu %ss, the limit is %d (option %s)", n, field,
                           limits->max_prompts, limits->max_prompts_option);
    out->all = xcalloc(n, sizeof *out->all);
    if (!several) return add_prompt(out, json, ids, field, limits, failure);
    for (size_t i = 0; i < n; i++)
        if (!add_prompt(out, json_item(json, i), ids, field, limits, failure)) return false;
    return true;
}

void prompts_free(struct prompt_list *list) {
    for (int i = 0; i < list->n; i++) {
        free(list->all[i].text);
        free(list->all[i].ids);
    }
    free(list->all);
    *list = (struct prompt_list){0};
}
