/* server/api/fields/completion_fields.c: see completion_fields.h. */
#include "server/api/fields/completion_fields.h"

#include <stdlib.h>

static bool read_prompt(void *object, const struct json *json, const struct request_limits *limits,
                        struct failure *failure) {
    return prompts_read(&((struct completion_request *)object)->prompts, json, "prompt", limits,
                        failure);
}
FIELD_PARSER(parse_prompt, read_prompt)

/* The beginning of the answer, which a model with an encoder goes on from. */
static bool read_target(void *object, const struct json *json, const struct request_limits *limits,
                        struct failure *failure) {
    struct completion_request *request = object;
    request->has_target = true;
    return prompt_read(&request->target, json, "target", "target", limits, failure);
}
FIELD_PARSER(parse_target, read_target)

static bool read_suffix(void *object, const struct json *json, const struct request_limits *limits,
                        struct failure *failure) {
    struct completion_request *request = object;
    (void)limits;
    if (!json_is_text(json))
        return failure_set(failure, 400, "invalid_type", "suffix", "suffix must be a string");
    buffer_append(&request->suffix, json_text(json).text, json_text(json).size);
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
    {"max_tokens", JSON_INT64, AT(max_tokens), .min = 0, .max = INT32_MAX,
     .fallback = DEFAULT_MAX_TOKENS, .help = "tokens to write"},
    {.type = JSON_ROWS, AT(writing), .table = &writing_table},
    {"best_of", JSON_INT64, AT(best_of), .min = 1, .option = "server.max_choices",
     LIMIT(max_choices),
     .help = "answers written to each prompt, of which the n likeliest are sent; default: n"},
    {"logprobs", JSON_INT64, AT(logprobs), .min = 0, .option = "server.max_logprobs",
     LIMIT(max_logprobs), .fallback = -1, .help = "log-probabilities with this many alternatives"},
    {"prompt_logprobs", JSON_INT64, AT(prompt_logprobs), .min = 0, .option = "server.max_logprobs",
     LIMIT(max_logprobs), .fallback = -1, .help = "the same for the prompt's tokens, by token id"},
    {"echo", JSON_BOOL, AT(echo), .help = "the prompt goes before the text"},
    {"target", JSON_PARSED, .parse = parse_target,
     .schema = "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":{\"type\":"
               "\"integer\",\"minimum\":0}}]}",
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

static bool check_completion(const struct completion_request *request,
                             const struct request_limits *limits, struct failure *failure) {
    int64_t best = request->best_of ? request->best_of : request->writing.n,
            all = best * request->prompts.n;
    if (best < request->writing.n)
        return failure_set(failure, 400, "invalid_value", "best_of",
                           "best_of is %lld, less than n, %lld", (long long)best,
                           (long long)request->writing.n);
    if (best > request->writing.n && request->writing.stream)
        return failure_set(
            failure, 400, "invalid_value", "best_of",
            "a stream cannot send the best of %lld answers: send best_of equal to n, or no stream",
            (long long)best);
    if (best > 1 && all > limits->max_choices)
        return failure_set(failure, 400, "invalid_value", request->best_of ? "best_of" : "n",
                           "%d prompts with %lld answers each are %lld, the limit is %d (option "
                           "server.max_choices)",
                           request->prompts.n, (long long)best, (long long)all,
                           limits->max_choices);
    if (request->suffix.size > 0 && request->echo)
        return failure_set(failure, 400, "invalid_value", "echo",
                           "echo is not for prompts with a suffix");
    if (request->prompt_logprobs >= 0 && request->writing.stream)
        return failure_set(
            failure, 400, "invalid_value", "prompt_logprobs",
            "prompt_logprobs is not for streams: send echo and logprobs, or no stream");
    return request_writing_check(&request->writing, request->max_tokens, failure);
}

bool completion_request_parse(struct completion_request *request, const char *body, size_t size,
                              const struct request_models *models, struct failure *failure) {
    struct json *json;
    *request = (struct completion_request){0};
    request_writing_init(&request->writing);
    if (!fields_load(&json, body, size, models->largest, failure)) return false;
    const struct request_limits *limits = model_read(&request->model, json, models, failure);
    bool ok = limits && fields_parse(&completion_table, request, json, limits, failure) &&
              check_completion(request, limits, failure);
    if (ok) request_writing_defaults(&request->writing, json, limits);
    json_close(json);
    return ok;
}

void completion_request_free(struct completion_request *request) {
    prompts_free(&request->prompts);
    free(request->target.text);
    free(request->target.ids);
    buffer_free(&request->suffix);
    free(request->model);
    request_writing_free(&request->writing);
    *request = (struct completion_request){0};
}
