/* server/api/fields/completion_fields.c: see completion_fields.h. */
#include "server/api/fields/completion_fields.h"

#include <stdlib.h>

static bool read_prompt(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    return prompts_read(&((struct completion_request *)object)->prompts, v, "prompt", l, f);
}
FIELD_PARSER(parse_prompt, read_prompt)

/* The beginning of the answer, which a model with an encoder goes on from. */
static bool read_target(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    struct completion_request *r = object;
    r->has_target = true;
    return prompt_read(&r->target, v, "target", "target", l, f);
}
FIELD_PARSER(parse_target, read_target)

static bool read_suffix(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    struct completion_request *r = object;
    (void)l;
    if (!json_is_text(v)) return failure_set(f, 400, "invalid_type", "suffix", "suffix must be a string");
    buffer_append(&r->suffix, json_text(v).text, json_text(v).size);
    return true;
}
FIELD_PARSER(parse_suffix, read_suffix)

/* The rest. */

#define AT(member) JSON_AT(struct completion_request, member)
#define LIMIT(member) .limit_offset = offsetof(struct request_limits, member)
static const struct json_field completion_fields[] = {
    {"model", JSON_PARSED, .parse = field_parse_text, .schema = "{\"type\":\"string\"}",
     .help = "a name of /v1/models; default: the first"},
    {"prompt", JSON_PARSED, .parse = parse_prompt, .required = true, .schema = PROMPTS_SCHEMA,
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
    {"target", JSON_PARSED, .parse = parse_target,
     .schema =
         "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":0}}]}",
     .help = "the beginning of the answer, of a model with an encoder"},
    {"add_special_tokens", JSON_PARSED, .parse = field_parse_true, .schema = "{\"const\":true}"},
    {"suffix", JSON_PARSED, .parse = parse_suffix, .schema = "{\"type\":\"string\"}",
     .help = "text behind the answer, of a model that fills in the middle"},
    {.name = "truncate_prompt_tokens", .type = JSON_EMPTY},
    {.name = "prompt_embeds", .type = JSON_EMPTY},
};
#undef LIMIT
#undef AT
const struct json_table completion_table = JSON_TABLE(completion_fields);

static bool check_completion(const struct completion_request *r, const struct request_limits *l, struct failure *f) {
    int64_t best = r->best_of ? r->best_of : r->writing.n, all = best * r->prompts.n;
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
                           r->prompts.n, (long long)best, (long long)all, l->max_choices);
    if (r->suffix.size > 0 && r->echo)
        return failure_set(f, 400, "invalid_value", "echo", "echo is not for prompts with a suffix");
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
    if (ok) request_writing_defaults(&r->writing, json, l);
    json_close(json);
    return ok;
}

void completion_request_free(struct completion_request *r) {
    prompts_free(&r->prompts);
    free(r->target.text);
    free(r->target.ids);
    buffer_free(&r->suffix);
    free(r->model);
    request_writing_free(&r->writing);
    *r = (struct completion_request){0};
}
