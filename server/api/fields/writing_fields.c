/* server/api/fields/writing_fields.c: see writing_fields.h. */
#include "server/api/fields/writing_fields.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/lookup.h"
#include "retro/model/generation_config.h"
#include "server/api/fields/client_fields.h"
#include "server/api/fields/prediction_fields.h"

/* Longest stop string in bytes: text that may become one is held back. */
enum { STOP_BYTES = 1024 };
/* Of a bias, as OpenAI has it. */
static const double BIAS_MOST = 100;

/* Stops. */

static bool add_stop(struct request_writing *writing, const struct json *json,
                     struct failure *failure) {
    if (!json_is_text(json))
        return failure_set(failure, 400, "invalid_type", "stop",
                           "stop must be a string or an array of strings");
    size_t size = json_text(json).size;
    if (size == 0 || size > STOP_BYTES)
        return failure_set(failure, 400, "invalid_value", "stop",
                           "a stop string has %zu bytes, allowed is 1 .. %d", size, STOP_BYTES);
    stops_add(&writing->stops, json_text(json).text, size);
    return true;
}

static bool read_stop(void *object, const struct json *json, const struct request_limits *limits,
                      struct failure *failure) {
    struct request_writing *writing = object;
    size_t n = json_is_list(json) ? json_count(json) : 1;
    if (n > (size_t)limits->max_stops)
        return failure_set(
            failure, 400, "too_many_stops", "stop",
            "the request has %zu stop strings, the limit is %d (option server.max_stops)", n,
            limits->max_stops);
    if (!json_is_list(json)) return add_stop(writing, json, failure);
    for (size_t i = 0; i < n; i++)
        if (!add_stop(writing, json_item(json, i), failure)) return false;
    return true;
}
FIELD_PARSER(parse_stop, read_stop)

static bool read_stop_ids(void *object, const struct json *json,
                          const struct request_limits *limits, struct failure *failure) {
    static const char name[] = "stop_token_ids";
    struct request_writing *writing = object;
    size_t n = json_count(json);
    if (!json_is_list(json))
        return failure_set(failure, 400, "invalid_type", name, "%s must be an array of token ids",
                           name);
    if (n > (size_t)limits->max_stops)
        return failure_set(failure, 400, "too_many_stops", name,
                           "%s has %zu ids, the limit is %d (option server.max_stops)", name, n,
                           limits->max_stops);
    return ids_read(&writing->stop_ids, json, name, name, limits, failure);
}
FIELD_PARSER(parse_stop_ids, read_stop_ids)

/* Biases. */

/* A decimal id below the vocabulary; -1 when the name is none. */
static int32_t read_bias_id(struct text_span name, int vocab) {
    int64_t id = 0;
    if (name.size == 0 || name.size > 9) return -1;
    for (size_t i = 0; i < name.size; i++) {
        if (name.text[i] < '0' || name.text[i] > '9') return -1;
        id = 10 * id + (name.text[i] - '0');
    }
    return id < vocab ? (int32_t)id : -1;
}

static bool add_bias(struct request_writing *writing, const struct json_entry *entry,
                     const struct request_limits *limits, struct failure *failure) {
    static const char name[] = "logit_bias";
    int32_t id = read_bias_id(entry->name, limits->vocab);
    double bias = json_double(entry->value);
    if (id < 0)
        return failure_set(
            failure, 400, "invalid_value", name,
            "a name in %s is not a token id; the model's vocabulary is \"0\" .. \"%d\"", name,
            limits->vocab - 1);
    if (!json_is_numeric(entry->value))
        return failure_set(failure, 400, "invalid_type", name, "%s of token %d is not a number",
                           name, id);
    if (!(bias >= -BIAS_MOST && bias <= BIAS_MOST))
        return failure_set(failure, 400, "invalid_value", name,
                           "%s of token %d is %g, allowed is %g .. %g", name, id, bias, -BIAS_MOST,
                           BIAS_MOST);
    writing->biases[writing->n_biases] = (struct request_bias){id, (float)bias};
    writing->n_biases++;
    return true;
}

/* "1" and "01" are one token. */
static bool check_biases(const struct request_writing *writing, struct failure *failure) {
    static const char name[] = "logit_bias";
    struct lookup_table ids = {0};
    bool once = true;
    for (int i = 0; i < writing->n_biases && once; i++) {
        int32_t id = writing->biases[i].id;
        uint64_t hash = lookup_hash(&id, sizeof id);
        size_t at = 0;
        for (int other; once && (other = lookup_next(&ids, hash, &at)) >= 0;)
            once = writing->biases[other].id != id;
        lookup_add(&ids, hash, i);
        if (!once)
            failure_set(failure, 400, "invalid_value", name, "%s names token %d twice", name, id);
    }
    lookup_free(&ids);
    return once;
}

static bool read_biases(void *object, const struct json *json, const struct request_limits *limits,
                        struct failure *failure) {
    static const char name[] = "logit_bias";
    struct request_writing *writing = object;
    size_t n = json_count(json);
    if (json_kind(json) != JSON_KIND_OBJECT)
        return failure_set(failure, 400, "invalid_type", name,
                           "%s must be an object of token ids and numbers", name);
    if (n > (size_t)limits->max_biases)
        return failure_set(failure, 400, "invalid_value", name,
                           "%s has %zu tokens, the limit is %d (option server.max_biases)", name, n,
                           limits->max_biases);
    writing->biases = xcalloc(n + 1, sizeof *writing->biases);
    for (struct json_entry it = {0}; json_next(json, &it);)
        if (!add_bias(writing, &it, limits, failure)) return false;
    return check_biases(writing, failure);
}
FIELD_PARSER(parse_biases, read_biases)

/* The rest. */

static const struct json_field stream_fields[] = {
    {"include_usage", JSON_BOOL, JSON_AT(struct request_writing, include_usage),
     .help = "one more event with usage before the end"},
    {"include_obfuscation", JSON_PARSED, .parse = field_parse_bool,
     .schema = "{\"type\":\"boolean\"}", .help = "changes nothing"},
    {.name = "continuous_usage_stats", .type = JSON_MUST_BE_FALSE},
};
static const struct json_table stream_table = JSON_TABLE(stream_fields);

static enum status parse_stream_options(struct json_reader *reader, const struct json *value,
                                        void *object) {
    ((struct request_writing *)object)->has_stream_options = true;
    return json_table_read(reader, &stream_table, value, object);
}

static enum status parse_retrieval(struct json_reader *reader, const struct json *value,
                                   void *object) {
    return request_retrieval_read(reader, value, &((struct request_writing *)object)->retrieval);
}

static bool read_seed(void *object, const struct json *json, const struct request_limits *limits,
                      struct failure *failure) {
    struct request_writing *writing = object;
    (void)limits;
    if (!json_is_int(json))
        return failure_set(failure, 400, "invalid_type", "seed", "seed must be an integer");
    writing->seed = json_int(json);
    writing->has_seed = true;
    return true;
}
FIELD_PARSER(parse_seed, read_seed)

static bool read_prediction(void *object, const struct json *json,
                            const struct request_limits *limits, struct failure *failure) {
    (void)limits;
    return prediction_read(&((struct request_writing *)object)->prediction, json, failure);
}
FIELD_PARSER(parse_prediction, read_prediction)

#define AT(member) JSON_AT(struct request_writing, member)
#define LIMIT(member) .limit_offset = offsetof(struct request_limits, member)
static const struct json_field writing_fields[] = {
    {"temperature", JSON_DOUBLE, AT(temperature), .min = 0, .max = 2, .fallback = 1,
     .help = "0: always the most likely token"},
    {"top_p", JSON_DOUBLE, AT(top_p), .min = 1e-6, .max = 1, .fallback = 1,
     .help = "keep the likeliest tokens that sum to this"},
    {"top_k", JSON_INT64, AT(top_k), .min = -1, .max = INT32_MAX,
     .help = "keep this many tokens; 0 and -1: all"},
    {"min_p", JSON_DOUBLE, AT(min_p), .min = 0, .max = 1,
     .help = "drop tokens below this times the likeliest"},
    {"seed", JSON_PARSED, .parse = parse_seed,
     .schema =
         "{\"type\":\"integer\",\"minimum\":-9223372036854775808,\"maximum\":9223372036854775807}",
     .help = "same request, seed and collection: same text"},
    {"presence_penalty", JSON_DOUBLE, AT(presence_penalty), .min = -2, .max = 2,
     .help = "taken from the logit of every token of the answer so far"},
    {"frequency_penalty", JSON_DOUBLE, AT(frequency_penalty), .min = -2, .max = 2,
     .help = "the same for every time that it occurs there"},
    {"repetition_penalty", JSON_DOUBLE, AT(repetition_penalty), .min = 0.01, .max = 100,
     .fallback = 1,
     .help = "divides positive logits of tokens of prompt and answer, multiplies negative ones"},
    {"repeat_penalty", JSON_DOUBLE, AT(repeat_penalty), .min = 0.01, .max = 100,
     .help = "another name of repetition_penalty"},
    {"no_repeat_ngram_size", JSON_INT64, AT(no_repeat_ngram_size), .min = 0, .max = INT32_MAX,
     .help = "no run of so many tokens comes twice in prompt and answer; 0: any may"},
    {"logit_bias", JSON_PARSED, .parse = parse_biases,
     .schema =
         "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"number\",\"minimum\":-100,"
         "\"maximum\":100}}",
     .help = "added to the logits of these token ids"},
    {"prediction", JSON_PARSED, .parse = parse_prediction, .schema = PREDICTION_SCHEMA,
     .help = "a text that the answer is expected to repeat: the answer is the same, and faster "
             "where it does"},
    {"n", JSON_INT64, AT(n), .min = 1, .option = "server.max_choices", LIMIT(max_choices),
     .fallback = 1, .help = "answers to each prompt"},
    {"stop", JSON_PARSED, .parse = parse_stop,
     .schema = "{\"anyOf\":[{\"type\":\"string\",\"minLength\":1},{\"type\":\"array\",\"items\":{"
               "\"type\":\"string\","
               "\"minLength\":1}}]}",
     .help = "the text ends before the first of these"},
    {"stop_token_ids", JSON_PARSED, .parse = parse_stop_ids,
     .schema = "{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":0}}",
     .help = "the text ends before the first of these tokens"},
    {"include_stop_str_in_output", JSON_BOOL, AT(include_stop),
     .help = "what stopped the text is part of it"},
    {"min_tokens", JSON_INT64, AT(min_tokens), .min = 0, .max = INT32_MAX,
     .help = "tokens before which the text does not end by itself or by a stop"},
    {"ignore_eos", JSON_BOOL, AT(ignore_eos), .help = "go on where the model would end"},
    {"return_token_ids", JSON_BOOL, AT(return_token_ids), .help = "token ids of prompt and text"},
    {"stream", JSON_BOOL, AT(stream), .help = "send text as it is written"},
    {"stream_options", JSON_PARSED, .parse = parse_stream_options, .table = &stream_table,
     .help = "only with stream"},
    {"retrieval", JSON_PARSED, .parse = parse_retrieval, .table = &retrieval_table,
     .help = "what is read beside the prompt"},
    {.type = JSON_ROWS, AT(guide), .table = &guide_table},
    {.type = JSON_ROWS, .table = &client_table},
};
#undef LIMIT
#undef AT
const struct json_table writing_table = JSON_TABLE(writing_fields);

void request_writing_init(struct request_writing *writing) {
    *writing = (struct request_writing){0};
}

static void take_default(const struct json *body, const char *name, double value, double *field) {
    if (value >= 0 && json_is_absent(json_member(body, name))) *field = value;
}

static void take_default_count(const struct json *body, const char *name, int value,
                               int64_t *field) {
    if (value >= 0 && json_is_absent(json_member(body, name))) *field = value;
}

void request_writing_defaults(struct request_writing *writing, const struct json *body,
                              const struct request_limits *limits) {
    const struct sampling_defaults *defaults = limits->sampling;
    bool renamed = writing->repeat_penalty > 0;
    if (renamed) writing->repetition_penalty = writing->repeat_penalty;
    if (defaults == NULL) return;
    take_default(body, "temperature", defaults->temperature, &writing->temperature);
    take_default(body, "top_p", defaults->top_p, &writing->top_p);
    take_default(body, "min_p", defaults->min_p, &writing->min_p);
    take_default_count(body, "top_k", defaults->top_k, &writing->top_k);
    if (!renamed)
        take_default(body, "repetition_penalty", defaults->repetition_penalty,
                     &writing->repetition_penalty);
    take_default_count(body, "no_repeat_ngram_size", defaults->no_repeat_ngram_size,
                       &writing->no_repeat_ngram_size);
}

void request_writing_free(struct request_writing *writing) {
    stops_free(&writing->stops);
    free(writing->stop_ids.ids);
    buffer_free(&writing->prediction);
    free(writing->biases);
    request_retrieval_free(&writing->retrieval);
    request_guide_free(&writing->guide);
}

bool request_writing_check(const struct request_writing *writing, int64_t max_tokens,
                           struct failure *failure) {
    if (writing->has_stream_options && !writing->stream)
        return failure_set(failure, 400, "invalid_value", "stream_options",
                           "stream_options is only for stream: true");
    double renamed = writing->repeat_penalty, repetition = writing->repetition_penalty;
    if (renamed > 0 && repetition != 1 && repetition != renamed)
        return failure_set(failure, 400, "invalid_value", "repeat_penalty",
                           "repeat_penalty and repetition_penalty are one, and differ");
    if (writing->min_tokens > max_tokens)
        return failure_set(failure, 400, "invalid_value", "min_tokens",
                           "min_tokens is %lld, more than max_tokens, %lld",
                           (long long)writing->min_tokens, (long long)max_tokens);
    return true;
}
