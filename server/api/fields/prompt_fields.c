/* server/api/fields/prompt_fields.c: see prompt_fields.h. */
#include "server/api/fields/prompt_fields.h"

#include <stdio.h>
#include <stdlib.h>

bool prompt_read(struct request_prompt *p, const struct json *v, const char *field, const char *of,
                 const struct request_limits *l, struct failure *f) {
    struct request_ids ids = {0};
    if (json_is_list(v)) {
        bool ok = ids_read(&ids, v, field, of, l, f);
        p->ids = ids.ids;
        p->n_ids = ids.n;
        return ok;
    }
    if (!json_is_text(v))
        return failure_set(f, 400, "invalid_type", field, "%s must be a string or an array of token ids", of);
    p->size = json_text(v).size;
    p->text = xstrndup(json_text(v).text, p->size);
    return true;
}

/* An empty text may mean something, an empty array of token ids is more likely a mistake. */
static bool add_prompt(struct prompt_list *list, const struct json *v, bool ids, const char *field,
                       const struct request_limits *l, struct failure *f) {
    int i = list->n++;
    char of[64];
    snprintf(of, sizeof of, "%s %d", field, i);
    if (ids ? !json_is_list(v) : !json_is_text(v))
        return failure_set(f, 400, "invalid_type", field,
                           "%s must be a string, an array of strings, an array of token ids, or an array of those",
                           field);
    if (ids && json_count(v) == 0)
        return failure_set(f, 400, "invalid_value", field, "%s is an empty array of token ids", of);
    return prompt_read(&list->all[i], v, field, of, l, f);
}

bool prompts_read(struct prompt_list *out, const struct json *v, const char *field, const struct request_limits *l,
                  struct failure *f) {
    const struct json *first = json_item(v, 0);
    bool several = json_is_list(v) && !json_is_int(first);
    bool ids = json_is_list(several ? first : v);
    size_t n = several ? json_count(v) : 1;
    if (n == 0) return failure_set(f, 400, "invalid_value", field, "%s is an empty array", field);
    if (n > (size_t)l->max_prompts)
        return failure_set(f, 400, "too_many_prompts", field, "the request has %zu %ss, the limit is %d (option %s)", n,
                           field, l->max_prompts, l->max_prompts_option);
    out->all = xcalloc(n, sizeof *out->all);
    if (!several) return add_prompt(out, v, ids, field, l, f);
    for (size_t i = 0; i < n; i++)
        if (!add_prompt(out, json_item(v, i), ids, field, l, f)) return false;
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
