/* server/api/fields/completion_fields.c: see completion_fields.h. */
#include "server/api/fields/completion_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prompts. */

static bool prompt_read_ids(struct request_prompt *p, const struct json *array, const char *field, const char *of,
                            const struct request_limits *l, struct failure *f) {
    struct request_ids ids = {0};
    bool ok = ids_read(&ids, array, field, of, l, f);
    p->ids = ids.ids;
    p->n_ids = ids.n;
    return ok;
}

static bool wrong_prompt(struct failure *f) {
    return failure_set(f, 400, "invalid_type", "prompt",
                       "prompt must be a string, an array of strings, an array of token ids, or an array of those");
}

/* An array of prompts holds prompts of one kind; an empty text starts from the end-of-text token, an empty array of
 * token ids is more likely a mistake. */
static bool parse_one_prompt(struct completion_request *r, const struct json *v, bool ids,
                             const struct request_limits *l, struct failure *f) {
    int i = r->n_prompts++;
    struct request_prompt *p = &r->prompts[i];
    if (ids ? !json_is_list(v) : !json_is_text(v)) return wrong_prompt(f);
    if (ids && json_count(v) == 0)
        return failure_set(f, 400, "invalid_value", "prompt", "prompt %d is an empty array of token ids", i);
    if (ids) {
        char of[32];
        snprintf(of, sizeof of, "prompt %d", i);
        return prompt_read_ids(p, v, "prompt", of, l, f);
    }
    p->size = json_text(v).size;
    p->text = xstrndup(json_text(v).text, p->size);
    return true;
}

static bool read_prompt(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    struct completion_request *r = object;
    const struct json *first = json_item(v, 0);
    bool several = json_is_list(v) && !json_is_int(first);
    bool ids = json_is_list(several ? first : v);
    size_t n = several ? json_count(v) : 1;
    if (n == 0) return failure_set(f, 400, "invalid_value", "prompt", "prompt is an empty array");
    if (n > (size_t)l->max_prompts)
        return failure_set(f, 400, "too_many_prompts", "prompt",
                           "the request has %zu prompts, the limit is %d (option server.max_prompts)", n,
                           l->max_prompts);
    r->prompts = xcalloc(n, sizeof *r->prompts);
    if (!several) return parse_one_prompt(r, v, ids, l, f);
    for (size_t i = 0; i < n; i++)
        if (!parse_one_prompt(r, json_item(v, i), ids, l, f)) return false;
    return true;
}
FIELD_PARSER(parse_prompt, read_prompt)

/* The beginning of the answer, which a model with an encoder goes on from. */
static bool read_target(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    struct completion_request *r = object;
    r->has_target = true;
    if (json_is_list(v)) return prompt_read_ids(&r->target, v, "target", "target", l, f);
    if (!json_is_text(v))
        return failure_set(f, 400, "invalid_type", "target", "target must be a string or an array of token ids");
    r->target.size = json_text(v).size;
    r->target.text = xstrndup(json_text(v).text, r->target.size);
    return true;
}
FIELD_PARSER(parse_target, read_target)

/* The rest. */

#define AT(member) JSON_AT(struct completion_request, member)
#define LIMIT(member) .limit_offset = offsetof(struct request_limits, member)
#define TEXT_OR_IDS "{\"type\":\"string\"},{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":0}}"
static const struct json_field completion_fields[] = {
    {"model", JSON_PARSED, .parse = field_parse_text, .schema = "{\"type\":\"string\"}",
     .help = "a name of /v1/models; default: the first"},
    {"prompt", JSON_PARSED, .parse = parse_prompt,
     .schema = "{\"anyOf\":[" TEXT_OR_IDS ",{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"string\"}},"
               "{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"array\",\"minItems\":1,\"items\":"
               "{\"type\":\"integer\",\"minimum\":0}}}]}",
     .help = "what the text goes on from"},
    {"max_tokens", JSON_INT64, AT(max_tokens), .min = 0, .max = INT32_MAX, .fallback = DEFAULT_MAX_TOKENS,
     .help = "tokens to write"},
    {.type = JSON_ROWS, AT(writing), .table = &writing_table},
    {"best_of", JSON_INT64, AT(best_of), .min = 1, .option = "server.max_choices", LIMIT(max_choices),
     .help = "answers written to each prompt, of which the n likeliest are sent; default: n"},
    {"logprobs", JSON_INT64, AT(logprobs), .min = 0, .option = "server.max_logprobs", LIMIT(max_logprobs),
     .fallback = -1, .help = "log-probabilities with this many alternatives"},
    {"prompt_logprobs", JSON_INT64, AT(prompt_logprobs), .min = 0, .option = "server.max_logprobs", LIMIT(max_logprobs),
     .fallback = -1, .help = "the same for the prompt's tokens, by token id"},
    {"echo", JSON_BOOL, AT(echo), .help = "the prompt goes before the text"},
    {"target", JSON_PARSED, .parse = parse_target, .schema = "{\"anyOf\":[" TEXT_OR_IDS "]}",
     .help = "the beginning of the answer, of a model with an encoder"},
    {"add_special_tokens", JSON_PARSED, .parse = field_parse_true, .schema = "{\"const\":true}"},
    {.name = "suffix", .type = JSON_EMPTY},
    {.name = "truncate_prompt_tokens", .type = JSON_EMPTY},
    {.name = "prompt_embeds", .type = JSON_EMPTY},
    {.name = "response_format", .type = JSON_EMPTY},
};
#undef LIMIT
#undef AT
const struct json_table completion_table = JSON_TABLE(completion_fields);

static bool check_completion(const struct completion_request *r, const struct request_limits *l, struct failure *f) {
    int64_t best = r->best_of ? r->best_of : r->writing.n, all = best * r->n_prompts;
    if (r->n_prompts == 0) return failure_set(f, 400, "missing_parameter", "prompt", "prompt is missing");
    if (best < r->writing.n)
        return failure_set(f, 400, "invalid_value", "best_of", "best_of is %lld, less than n, %lld", (long long)best,
                           (long long)r->writing.n);
    if (best > r->writing.n && r->writing.stream)
        return failure_set(f, 400, "invalid_value", "best_of",
                           "a stream cannot send the best of %lld answers: send best_of equal to n, or no stream",
                           (long long)best);
    if (best > 1 && all > l->max_choices)
        return failure_set(f, 400, "invalid_value", r->best_of ? "best_of" : "n",
                           "%d prompts with %lld answers each are %lld, the limit is %d (option server.max_choices)",
                           r->n_prompts, (long long)best, (long long)all, l->max_choices);
    if (r->prompt_logprobs >= 0 && r->writing.stream)
        return failure_set(f, 400, "invalid_value", "prompt_logprobs",
                           "prompt_logprobs is not for streams: send echo and logprobs, or no stream");
    return request_writing_check(&r->writing, r->max_tokens, f);
}

bool completion_request_parse(struct completion_request *r, const char *body, size_t size,
                              const struct request_models *models, struct failure *f) {
    struct json *json;
    *r = (struct completion_request){0};
    request_writing_init(&r->writing);
    if (!fields_load(&json, body, size, models->largest, f)) return false;
    const struct request_limits *l = model_read(&r->model, json, models, f);
    bool ok = l && fields_parse(&completion_table, r, json, l, f) && check_completion(r, l, f);
    json_close(json);
    return ok;
}

void completion_request_free(struct completion_request *r) {
    for (int i = 0; i < r->n_prompts; i++) {
        free(r->prompts[i].text);
        free(r->prompts[i].ids);
    }
    free(r->prompts);
    free(r->target.text);
    free(r->target.ids);
    free(r->model);
    request_writing_free(&r->writing);
    *r = (struct completion_request){0};
}
