/* tests/unit/test_api.c: request bodies: what is accepted and as what, and the words of every
 * refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>

#include "server/api/fields/completion_fields.h"
#include "server/api/fields/search_fields.h"

static const struct request_limits limits = {
    .vocab = 100,
    .context = 64,
    .max_prompts = 3,
    .max_choices = 6,
    .max_stops = 2,
    .max_biases = 3,
    .max_logprobs = 5,
    .retrieval = {.max_k = 4, .min_every = 4, .max_excluded = 3, .max_filter_bytes = 4096},
    .metadata = {100, 4096},
    .max_prompts_option = "server.max_prompts"};

/* The model "small" has a smaller vocabulary; the others, and the one of the server's choice, are
 * as `limits` says. */
static const struct request_limits *find_limits(void *context, const char *model,
                                                struct failure *f) {
    static const struct request_limits small = {
        .vocab = 10,
        .context = 8,
        .max_prompts = 3,
        .max_choices = 6,
        .max_stops = 2,
        .max_biases = 3,
        .max_logprobs = 5,
        .retrieval = {.max_k = 4, .min_every = 4, .max_excluded = 3, .max_filter_bytes = 4096},
        .metadata = {100, 4096},
        .max_prompts_option = "server.max_prompts"};
    (void)context;
    if (model == NULL || strcmp(model, "m") == 0) return &limits;
    if (strcmp(model, "small") == 0) return &small;
    failure_set(f, 404, "model_not_found", "model", "there is no %s", model);
    return NULL;
}

static const struct request_models models = {find_limits, NULL, &limits};

static bool parse(struct completion_request *r, const char *body, struct failure *f) {
    *f = (struct failure){0};
    return completion_request_parse(r, body, strlen(body), &models, f);
}

static void test_defaults(void **state) {
    (void)state;
    struct completion_request r;
    struct failure f;
    assert_true(parse(&r, "{\"prompt\": \"a\\u0000b\"}", &f));
    assert_null(r.model);
    assert_int_equal(r.prompts.n, 1);
    assert_int_equal(r.prompts.all[0].size, 3);
    assert_memory_equal(r.prompts.all[0].text, "a\0b", 3);
    assert_null(r.prompts.all[0].ids);
    assert_int_equal(r.max_tokens, 16);
    assert_true(r.writing.temperature == 1 && r.writing.top_p == 1 && r.writing.min_p == 0);
    assert_int_equal(r.writing.top_k, 0);
    assert_int_equal(r.logprobs, -1);
    assert_false(r.writing.has_seed || r.writing.stream || r.writing.include_usage || r.echo ||
                 r.writing.ignore_eos);
    assert_int_equal(r.writing.stops.n, 0);
    assert_false(r.writing.retrieval.given);
    completion_request_free(&r);
}

static void test_everything(void **state) {
    (void)state;
    struct completion_request r;
    struct failure f;
    assert_true(
        parse(&r,
              "{\"model\": \"m\", \"prompt\": [[1, 2], [3], [4, 5, 6]], \"max_tokens\": 0, "
              "\"temperature\": 0,"
              "\"top_p\": 0.5, \"top_k\": 7, \"min_p\": 0.25, \"seed\": -9223372036854775808, "
              "\"stop\": [\"x\", "
              "\"yz\"], \"stream\": true, \"stream_options\": {\"include_usage\": true, "
              "\"include_obfuscation\": "
              "false}, \"n\": 1, \"best_of\": 1, \"echo\": true, \"logprobs\": 5, \"user\": \"u\", "
              "\"presence_penalty\": 0, \"frequency_penalty\": 0.0, \"logit_bias\": {}, "
              "\"suffix\": \"\", "
              "\"ignore_eos\": true, \"retrieval\": {\"enabled\": true, \"k\": 4, "
              "\"min_similarity\": -0.5}}",
              &f));
    assert_string_equal(r.model, "m");
    assert_int_equal(r.prompts.n, 3);
    assert_int_equal(r.prompts.all[0].n_ids, 2);
    assert_int_equal(r.prompts.all[0].ids[1], 2);
    assert_int_equal(r.prompts.all[1].n_ids, 1);
    assert_int_equal(r.prompts.all[2].n_ids, 3);
    assert_int_equal(r.prompts.all[2].ids[2], 6);
    assert_int_equal(r.max_tokens, 0);
    assert_true(r.writing.temperature == 0 && r.writing.top_p == 0.5 && r.writing.min_p == 0.25);
    assert_int_equal(r.writing.top_k, 7);
    assert_true(r.writing.has_seed && r.writing.seed == INT64_MIN);
    assert_int_equal(r.writing.stops.n, 2);
    assert_memory_equal(r.writing.stops.strings[1].text, "yz", 2);
    assert_true(r.writing.stream && r.writing.include_usage && r.echo && r.writing.ignore_eos);
    assert_int_equal(r.logprobs, 5);
    assert_true(r.writing.retrieval.given && r.writing.retrieval.choice.enabled);
    assert_int_equal(r.writing.retrieval.choice.k, 4);
    assert_true(r.writing.retrieval.choice.min_similarity == -0.5);
    completion_request_free(&r);
}

/* Clients send null for what they leave out. */
static void test_null_is_absent(void **state) {
    (void)state;
    struct completion_request r;
    struct failure f;
    assert_true(parse(
        &r,
        "{\"prompt\": [1], \"model\": null, \"max_tokens\": null, \"temperature\": null, \"seed\": "
        "null, "
        "\"stop\": null, \"stream\": null, \"logprobs\": null, \"n\": null, \"logit_bias\": null, "
        "\"suffix\": null, \"stream_options\": null, \"retrieval\": null}",
        &f));
    assert_int_equal(r.max_tokens, 16);
    assert_int_equal(r.logprobs, -1);
    assert_false(r.writing.has_seed);
    completion_request_free(&r);
}

static void test_changes_and_ends(void **state) {
    (void)state;
    struct completion_request r;
    struct failure f;
    assert_true(parse(&r,
                      "{\"prompt\": [1], \"n\": 2, \"best_of\": 3, \"presence_penalty\": -2, "
                      "\"frequency_penalty\": 0.5,"
                      "\"repetition_penalty\": 1.25, \"no_repeat_ngram_size\": 3, \"logit_bias\": "
                      "{\"99\": -100, \"0\": 1.5}, "
                      "\"min_tokens\": 4,"
                      "\"stop_token_ids\": [7, 8], \"include_stop_str_in_output\": true, "
                      "\"return_token_ids\": true,"
                      "\"prompt_logprobs\": 0, \"top_k\": -1, \"skip_special_tokens\": true, "
                      "\"length_penalty\": 1}",
                      &f));
    const struct request_writing *w = &r.writing;
    assert_int_equal(w->n, 2);
    assert_int_equal(r.best_of, 3);
    assert_true(w->presence_penalty == -2 && w->frequency_penalty == 0.5 &&
                w->repetition_penalty == 1.25);
    assert_int_equal(w->no_repeat_ngram_size, 3);
    assert_int_equal(w->n_biases, 2);
    assert_true(w->biases[0].id == 99 && w->biases[0].bias == -100 && w->biases[1].id == 0);
    assert_true(w->biases[1].bias == 1.5f);
    assert_int_equal(w->min_tokens, 4);
    assert_int_equal(w->stop_ids.n, 2);
    assert_int_equal(w->stop_ids.ids[1], 8);
    assert_true(w->include_stop && w->return_token_ids);
    assert_int_equal(r.prompt_logprobs, 0);
    assert_int_equal(w->top_k, -1);
    completion_request_free(&r);
}

static void test_neighbors(void **state) {
    (void)state;
    struct completion_request r;
    struct failure f;
    assert_true(
        parse(&r, "{\"prompt\": \"a\", \"retrieval\": {\"neighbors\": [\"one\", \"\"]}}", &f));
    assert_int_equal(r.writing.retrieval.neighbors.n, 2);
    assert_int_equal(r.writing.retrieval.neighbors.all[0].size, 3);
    assert_int_equal(r.writing.retrieval.neighbors.all[1].size, 0);
    completion_request_free(&r);
}

/* Each row that a request has goes before the usual value, a zero as well as any other; the others
 * stay. */
static void test_choice(void **state) {
    struct retrieval_choice usual = {.enabled = true,
                                     .mode = RETRIEVAL_PROMPT,
                                     .every = 8,
                                     .k = 2,
                                     .min_similarity = 0.5,
                                     .hybrid = true,
                                     .rerank = true,
                                     .per_document = 1,
                                     .distinct = 0.9};
    struct completion_request r;
    struct failure f;
    (void)state;
    assert_true(parse(&r, "{\"prompt\": \"a\"}", &f));
    struct retrieval_choice silent = retrieval_choice_merge(&usual, &r.writing.retrieval.choice);
    assert_true(silent.said == 0 && silent.enabled && silent.mode == RETRIEVAL_PROMPT &&
                silent.every == 8);
    assert_true(silent.k == 2 && silent.min_similarity == 0.5 && silent.hybrid && silent.rerank);
    completion_request_free(&r);

    assert_true(parse(&r,
                      "{\"prompt\": \"a\", \"retrieval\": {\"mode\": \"auto\", \"every\": 0, "
                      "\"min_similarity\": 0, "
                      "\"hybrid\": false, \"rerank\": null, \"distinct\": 0}}",
                      &f));
    struct retrieval_choice asked = retrieval_choice_merge(&usual, &r.writing.retrieval.choice);
    assert_true(asked.enabled && asked.mode == RETRIEVAL_PROMPT && asked.every == 0 &&
                asked.k == 2);
    assert_true(asked.min_similarity == 0 && !asked.hybrid && asked.rerank &&
                asked.per_document == 1);
    assert_true(asked.distinct == 0 && choice_says(&asked, CHOICE_HYBRID) &&
                !choice_says(&asked, CHOICE_RERANK));
    completion_request_free(&r);
}

/* body, param ("" for null), code, and what the message must hold. */
static const struct {
    const char *body, *param, *code, *words;
} refusals[] = {
    {"", "", "invalid_json", "request:1:0"},
    {"{\"prompt\": \"a\",\n }", "", "invalid_json", "request:2:2"},
    {"{\"prompt\": \"a\"} x", "", "invalid_json", "end of file expected"},
    {"{\"prompt\": \"a\", \"prompt\": \"b\"}", "", "invalid_json", "duplicate"},
    {"{\"prompt\": \"\xFF\"}", "", "invalid_json", "unable to decode byte"},
    {"[1]", "", "invalid_type", "must be an object, not an array"},
    {"{}", "prompt", "missing_parameter", "prompt is missing"},
    {"{\"prompt\": null}", "prompt", "missing_parameter", "prompt is missing"},
    {"{\"prompt\": 3}", "prompt", "invalid_type", "prompt must be a string"},
    {"{\"prompt\": []}", "prompt", "invalid_value", "empty array"},
    {"{\"prompt\": [\"a\", 1]}", "prompt", "invalid_type", "prompt must be a string"},
    {"{\"prompt\": [1, \"a\"]}", "prompt", "invalid_type", "token 1 of prompt 0 is not an integer"},
    {"{\"prompt\": \"a\", \"model\": \"m\\u0000x\"}", "model", "invalid_value",
     "model holds a NUL character"},
    {"{\"prompt\": [[5], \"a\"]}", "prompt", "invalid_type", "prompt must be a string"},
    {"{\"prompt\": [\"a\", [5]]}", "prompt", "invalid_type", "prompt must be a string"},
    {"{\"prompt\": [[5], 6]}", "prompt", "invalid_type", "prompt must be a string"},
    {"{\"prompt\": [[[5]]]}", "prompt", "invalid_type", "token 0 of prompt 0 is not an integer"},
    {"{\"prompt\": [[]]}", "prompt", "invalid_value", "prompt 0 is an empty array of token ids"},
    {"{\"prompt\": [[1], []]}", "prompt", "invalid_value",
     "prompt 1 is an empty array of token ids"},
    {"{\"prompt\": \"a\", \"user\": 5}", "user", "invalid_type", "user must be a string"},
    {"{\"prompt\": \"a\", \"metadata\": \"m\"}", "metadata", "invalid_type",
     "metadata must be an object"},
    {"{\"prompt\": \"a\", \"store\": 1}", "store", "invalid_type", "store must be true or false"},
    {"{\"prompt\": \"a\", \"stream_options\": {\"include_obfuscation\": 1}}",
     "stream_options.include_obfuscation", "invalid_type", "must be true or false"},
    {"{\"prompt\": [1.5]}", "prompt", "invalid_type", "prompt must be a string"},
    {"{\"prompt\": [[1], [100]]}", "prompt", "invalid_value",
     "token 0 of prompt 1 is 100, the model's vocabulary is 0 .. 99"},
    {"{\"prompt\": [-1]}", "prompt", "invalid_value", "is -1"},
    {"{\"prompt\": [9223372036854775807]}", "prompt", "invalid_value", "9223372036854775807"},
    {"{\"prompt\": [\"\", \"\", \"\", \"\"]}", "prompt", "too_many_prompts",
     "4 prompts, the limit is 3 (option server.max_prompts)"},
    {"{\"prompt\": \"a\", \"max_tokens\": -1}", "max_tokens", "invalid_value",
     "max_tokens is -1, allowed is 0 .. 2147483647"},
    {"{\"prompt\": \"a\", \"max_tokens\": 1.5}", "max_tokens", "invalid_type",
     "must be an integer, not a real number"},
    {"{\"prompt\": \"a\", \"max_tokens\": 4294967297}", "max_tokens", "invalid_value",
     "4294967297"},
    {"{\"prompt\": \"a\", \"temperature\": 2.5}", "temperature", "invalid_value",
     "allowed is 0 .. 2"},
    {"{\"prompt\": \"a\", \"temperature\": \"0\"}", "temperature", "invalid_type",
     "must be a number, not a string"},
    {"{\"prompt\": \"a\", \"top_p\": 0}", "top_p", "invalid_value", "top_p is 0"},
    {"{\"prompt\": \"a\", \"min_p\": 1.01}", "min_p", "invalid_value", "min_p is 1.01"},
    {"{\"prompt\": \"a\", \"seed\": 1e3}", "seed", "invalid_type", "seed must be an integer"},
    {"{\"prompt\": \"a\", \"stop\": \"\"}", "stop", "invalid_value", "0 bytes"},
    {"{\"prompt\": \"a\", \"stop\": [1]}", "stop", "invalid_type", "stop must be"},
    {"{\"prompt\": \"a\", \"stop\": [\"a\", \"b\", \"c\"]}", "stop", "too_many_stops",
     "3 stop strings, the limit is 2 (option server.max_stops)"},
    {"{\"prompt\": \"a\", \"stream\": 1}", "stream", "invalid_type", "true or false"},
    {"{\"prompt\": \"a\", \"stream_options\": {\"include_usage\": true}}", "stream_options",
     "invalid_value", "only for stream"},
    {"{\"prompt\": \"a\", \"stream_options\": []}", "stream_options", "invalid_type",
     "must be an object"},
    {"{\"prompt\": \"a\", \"logprobs\": 6}", "logprobs", "invalid_value",
     "allowed is 0 .. 5 (option server.max_logprobs)"},
    {"{\"prompt\": \"a\", \"logprobs\": true}", "logprobs", "invalid_type", "not true"},
    {"{\"prompt\": \"a\", \"n\": 0}", "n", "invalid_value",
     "n is 0, allowed is 1 .. 6 (option server.max_choices)"},
    {"{\"prompt\": \"a\", \"n\": 7}", "n", "invalid_value", "n is 7"},
    {"{\"prompt\": [\"a\", \"b\", \"c\"], \"n\": 3}", "n", "invalid_value",
     "3 prompts with 3 answers each are 9, the limit is 6 (option server.max_choices)"},
    {"{\"prompt\": \"a\", \"n\": 3, \"best_of\": 2}", "best_of", "invalid_value",
     "best_of is 2, less than n, 3"},
    {"{\"prompt\": \"a\", \"best_of\": 2, \"stream\": true}", "best_of", "invalid_value",
     "a stream cannot send"},
    {"{\"prompt\": \"a\", \"presence_penalty\": 2.5}", "presence_penalty", "invalid_value",
     "allowed is -2 .. 2"},
    {"{\"prompt\": \"a\", \"frequency_penalty\": \"1\"}", "frequency_penalty", "invalid_type",
     "must be a number"},
    {"{\"prompt\": \"a\", \"repetition_penalty\": 0}", "repetition_penalty", "invalid_value",
     "0.01 .. 100"},
    {"{\"prompt\": \"a\", \"logit_bias\": {\"100\": 1}}", "logit_bias", "invalid_value",
     "\"0\" .. \"99\""},
    {"{\"prompt\": \"a\", \"logit_bias\": {\"-1\": 1}}", "logit_bias", "invalid_value",
     "not a token id"},
    {"{\"prompt\": \"a\", \"logit_bias\": {\"\": 1}}", "logit_bias", "invalid_value",
     "not a token id"},
    {"{\"prompt\": \"a\", \"logit_bias\": {\"4294967297\": 1}}", "logit_bias", "invalid_value",
     "not a token id"},
    {"{\"prompt\": \"a\", \"logit_bias\": {\"5\": 1, \"05\": 2}}", "logit_bias", "invalid_value",
     "token 5 twice"},
    {"{\"prompt\": \"a\", \"logit_bias\": {\"5\": 100.5}}", "logit_bias", "invalid_value",
     "-100 .. 100"},
    {"{\"prompt\": \"a\", \"logit_bias\": {\"5\": \"1\"}}", "logit_bias", "invalid_type",
     "token 5 is not a number"},
    {"{\"prompt\": \"a\", \"logit_bias\": [5]}", "logit_bias", "invalid_type", "must be an object"},
    {"{\"prompt\": \"a\", \"logit_bias\": {\"1\": 1, \"2\": 1, \"3\": 1, \"4\": 1}}", "logit_bias",
     "invalid_value", "4 tokens, the limit is 3 (option server.max_biases)"},
    {"{\"prompt\": \"a\", \"stop_token_ids\": [100]}", "stop_token_ids", "invalid_value",
     "0 .. 99"},
    {"{\"prompt\": \"a\", \"stop_token_ids\": 5}", "stop_token_ids", "invalid_type",
     "array of token ids"},
    {"{\"prompt\": \"a\", \"stop_token_ids\": [1, 2, 3]}", "stop_token_ids", "too_many_stops",
     "server.max_stops"},
    {"{\"prompt\": \"a\", \"min_tokens\": 17}", "min_tokens", "invalid_value",
     "more than max_tokens, 16"},
    {"{\"prompt\": \"a\", \"prompt_logprobs\": 6}", "prompt_logprobs", "invalid_value",
     "allowed is 0 .. 5"},
    {"{\"prompt\": \"a\", \"prompt_logprobs\": 1, \"stream\": true}", "prompt_logprobs",
     "invalid_value", "not for streams"},
    {"{\"prompt\": \"a\", \"use_beam_search\": true}", "use_beam_search", "unsupported_parameter",
     "must be false"},
    {"{\"prompt\": \"a\", \"skip_special_tokens\": false}", "skip_special_tokens",
     "unsupported_parameter", "send true"},
    {"{\"prompt\": \"a\", \"suffix\": 3}", "suffix", "invalid_type", "suffix"},
    {"{\"prompt\": \"a\", \"temprature\": 1}", "temprature", "unknown_parameter",
     "known are model, prompt, max_tokens, temperature"},
    {"{\"prompt\": \"a\", \"retrieval\": {\"K\": 1}}", "retrieval.K", "unknown_parameter",
     "known are enabled, mode, query, conversation, read, order, every, quotes, quote_words, "
     "support, k, min_similarity, hybrid"},
    {"{\"prompt\": \"a\", \"retrieval\": {\"k\": 5}}", "retrieval.k", "invalid_value",
     "allowed is 1 .. 4 (option retrieval.max_k)"},
    {"{\"prompt\": \"a\", \"retrieval\": {\"min_similarity\": 2}}", "retrieval.min_similarity",
     "invalid_value", "-1 .. 1"},
    {"{\"prompt\": \"a\", \"retrieval\": {\"every\": 3}}", "retrieval.every", "invalid_value",
     "0 or at least 4"},
    {"{\"prompt\": \"a\", \"retrieval\": {\"mode\": \"Both\"}}", "retrieval.mode", "invalid_value",
     "both"},
    {"{\"prompt\": \"a\", \"retrieval\": {\"neighbors\": []}}", "retrieval.neighbors",
     "invalid_type", "at least one"},
    {"{\"prompt\": \"a\", \"retrieval\": {\"neighbors\": [1]}}", "retrieval.neighbors",
     "invalid_type", "neighbour 0"},
    {"{\"prompt\": \"a\", \"retrieval\": {\"neighbors\": [\"\",\"\",\"\",\"\",\"\"]}}",
     "retrieval.neighbors", "invalid_value", "5 texts, the limit is 4"},
    {"{\"prompt\": \"a\", \"retrieval\": {\"neighbors\": [\"x\"], \"enabled\": false}}",
     "retrieval.neighbors", "invalid_value", "leave out"},
};

static void test_refusals(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(refusals); i++) {
        struct completion_request r;
        struct failure f;
        bool ok = parse(&r, refusals[i].body, &f);
        if (ok || f.http != 400 || strcmp(f.param, refusals[i].param) != 0 ||
            strcmp(f.code, refusals[i].code) != 0 || strstr(f.message, refusals[i].words) == NULL)
            fail_msg("%s\n  gives %d, param '%s', code '%s': %s", refusals[i].body, f.http, f.param,
                     f.code ? f.code : "", ok ? "" : f.message);
        completion_request_free(&r);
        failure_free(&f);
    }
}

/* Bodies that cost a parser far more memory than they are long are refused before they are parsed.
 */
static void test_hostile_bodies(void **state) {
    (void)state;
    static const char *const pieces[] = {"{},", "1,", "[],", "[", "\"a\","};
    for (size_t p = 0; p < ARRAY_COUNT(pieces); p++) {
        struct buffer body = {0};
        struct completion_request r;
        struct failure f = {0};
        buffer_append_string(&body, "{\"prompt\": [");
        while (body.size < 1 << 20) buffer_append_string(&body, pieces[p]);
        assert_false(completion_request_parse(&r, body.data, body.size, &models, &f));
        assert_string_equal(f.code, "too_many_values");
        completion_request_free(&r);
        failure_free(&f);
        buffer_free(&body);
    }
}

/* Brackets and commas inside strings are text. */
static void test_text_is_not_counted(void **state) {
    (void)state;
    struct buffer body = {0};
    struct completion_request r;
    struct failure f = {0};
    buffer_append_string(&body, "{\"prompt\": \"\\\"");
    for (int i = 0; i < 100000; i++) buffer_append_string(&body, ",[{");
    buffer_append_string(&body, "\"}");
    assert_true(completion_request_parse(&r, body.data, body.size, &models, &f));
    assert_int_equal(r.prompts.all[0].size, 300001);
    completion_request_free(&r);
    buffer_free(&body);
}

static bool query_parse(struct search_request *r, const struct query_argument *a, int n,
                        struct failure *f) {
    return search_request_parse_query(r, a, n, &limits, f);
}

static void test_search(void **state) {
    (void)state;
    struct search_request r;
    struct failure f = {0};
    static const char body[] = "{\"query\": \"q\", \"k\": 2, \"min_similarity\": 0.5}";
    assert_true(search_request_parse(&r, body, strlen(body), &limits, &f));
    assert_string_equal(r.query, "q");
    assert_int_equal(r.choice.k, 2);
    assert_true(r.choice.min_similarity == 0.5);
    search_request_free(&r);
    assert_true(query_parse(
        &r, (struct query_argument[]){{"q", "a, [b"}, {"k", "3"}, {"min_similarity", "-0.25"}}, 3,
        &f));
    assert_string_equal(r.query, "a, [b");
    assert_int_equal(r.choice.k, 3);
    assert_true(r.choice.min_similarity == -0.25);
    search_request_free(&r);
    failure_free(&f);
    assert_false(query_parse(&r, NULL, 0, &f));
    assert_string_equal(f.param, "query");
    search_request_free(&r);
    failure_free(&f);
    assert_false(query_parse(&r, (struct query_argument[]){{"q", "q"}, {"k", "9"}}, 2, &f));
    assert_non_null(strstr(f.message, "k is 9, allowed is 1 .. 4"));
    search_request_free(&r);
    failure_free(&f);
    assert_false(query_parse(&r, (struct query_argument[]){{"q", "q"}, {"k", "2,3"}}, 2, &f));
    assert_non_null(strstr(f.message, "k must be an integer, not a string"));
    search_request_free(&r);
    failure_free(&f);
    assert_false(query_parse(&r, (struct query_argument[]){{"q", "\xFF"}}, 1, &f));
    assert_non_null(strstr(f.message, "UTF-8"));
    search_request_free(&r);
    failure_free(&f);
    assert_false(query_parse(&r, (struct query_argument[]){{"q", "q"}, {"limit", "1"}}, 2, &f));
    assert_string_equal(f.code, "unknown_parameter");
    assert_string_equal(f.message,
                        "unknown parameter limit; known are k, min_similarity, hybrid, rerank, "
                        "pictures, per_document, "
                        "distinct, min_confidence, filter, boxes, explain, operators, q");
    search_request_free(&r);
    failure_free(&f);
    assert_false(query_parse(&r, (struct query_argument[]){{"q", "q"}, {"q", "p"}}, 2, &f));
    assert_string_equal(f.message, "q is given more than once");
    search_request_free(&r);
    failure_free(&f);
}

/* The error object: all four members, whatever the message holds. */
static void test_failure_body(void **state) {
    (void)state;
    struct failure f;
    struct buffer out = {0};
    assert_false(failure_set(&f, 400, "invalid_value", "k", "k is \"%s\"", "x"));
    failure_write(&f, &out);
    assert_string_equal(
        out.data,
        "{\"error\":{\"message\":\"k is \\\"x\\\"\",\"type\":\"invalid_request_error\","
        "\"param\":\"k\",\"code\":\"invalid_value\"}}");
    buffer_clear(&out);
    failure_free(&f);
    struct error e = {STATUS_BUSY, "full"};
    failure_from_error(&f, &e);
    failure_write(&f, &out);
    assert_int_equal(f.http, 503);
    assert_string_equal(out.data,
                        "{\"error\":{\"message\":\"full\",\"type\":\"server_error\",\"param\":null,"
                        "\"code\":\"server_busy\"}}");
    buffer_free(&out);
    failure_free(&f);
}

/* Paths of the server are for its log; what the client sent is for the client. */
static void test_failure_hides_paths(void **state) {
#define LOGGED "; the log of the server names the file"
    static const struct {
        enum status status;
        const char *text, *told;
    } rows[] = {
        {STATUS_IO, "/var/my docs/changes.log: write: No space left on device",
         "a file of the server: write: No space left on device" LOGGED},
        {STATUS_IO, "/a/b: rename to /a/c d: Read-only file system",
         "a file of the server: rename to a file of the server: Read-only file system" LOGGED},
        {STATUS_IO, "notes/CURRENT: create: Permission denied",
         "a file of the server: create: Permission denied" LOGGED},
        {STATUS_IO, "notes: /srv/x: open", "notes: a file of the server: open" LOGGED},
        {STATUS_CORRUPT, "/var/lib/r/gen-1/MANIFEST: 7 bytes, more than a MANIFEST has",
         "a file of the server: 7 bytes, more than a MANIFEST has" LOGGED},
        {STATUS_BUSY, "/r/LOCK: another program is changing this collection",
         "a file of the server: another program is changing this collection" LOGGED},
        {STATUS_NO_MEMORY, "no memory for \"/r/a b\"",
         "no memory for \"a file of the server" LOGGED},
        {STATUS_INTERNAL, "/", "a file of the server" LOGGED},
        {STATUS_BUSY, "Milvus at http://h:1/, Query: it failed",
         "Milvus at http://h:1/, Query: it failed"},
        {STATUS_IO, "http://h:1/x: refused", "http://h:1/x: refused"},
        {STATUS_BUSY, "7 requests wait, HTTP/1.1 and 4 bytes/s",
         "7 requests wait, HTTP/1.1 and 4 bytes/s"},
        {STATUS_IO, "", ""},
        {STATUS_TOO_LARGE, "/home/me/a.pdf: more than 9 bytes",
         "/home/me/a.pdf: more than 9 bytes"},
        {STATUS_NOT_FOUND, "no document has the id /home/me/a.md",
         "no document has the id /home/me/a.md"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct error e;
        struct failure f;
        error_set(&e, rows[i].status, "%s", rows[i].text);
        failure_from_error(&f, &e);
        assert_string_equal(f.message, rows[i].told);
        failure_free(&f);
    }
}

static const char *header_of(const struct answer *a, const char *name) {
    for (int i = 0; i < a->n_headers; i++)
        if (strcmp(a->headers[i].name, name) == 0) return a->headers[i].value;
    return NULL;
}

/* A failure is an answer with its own headers; without a time to come back there is no Retry-After.
 */
static void test_failure_headers(void **state) {
    (void)state;
    struct failure f;
    struct buffer out = {0};
    failure_set(&f, 503, "server_busy", NULL, "full");
    f.retry_after = 17;
    struct answer *a = answer_failure(&f);
    assert_null(f.message);
    assert_int_equal(a->http, 503);
    assert_string_equal(header_of(a, "Retry-After"), "17");
    assert_string_equal(header_of(a, "Content-Type"), "application/json");
    assert_string_equal(header_of(a, "Cache-Control"), "no-store");
    assert_int_equal(a->ops->poll(a, &out), ANSWER_COMPLETE);
    assert_non_null(strstr(out.data, "\"full\""));
    answer_close(a);
    buffer_free(&out);
    failure_set(&f, 400, "invalid_value", "k", "k");
    a = answer_failure(&f);
    assert_null(header_of(a, "Retry-After"));
    answer_close(a);
}

/* Limits are those of the named model, wherever in the body the name is. */
static void test_limits_of_the_named_model(void **state) {
    (void)state;
    struct completion_request r;
    struct failure f;
    assert_true(parse(&r, "{\"prompt\": [50], \"model\": \"m\"}", &f));
    completion_request_free(&r);
    assert_false(parse(&r, "{\"prompt\": [50], \"model\": \"small\"}", &f));
    assert_string_equal(f.param, "prompt");
    assert_non_null(strstr(f.message, "the model's vocabulary is 0 .. 9"));
    completion_request_free(&r);
    failure_free(&f);
    assert_false(parse(&r, "{\"prompt\": \"a\", \"model\": \"large\"}", &f));
    assert_int_equal(f.http, 404);
    assert_string_equal(f.message, "there is no large");
    completion_request_free(&r);
    failure_free(&f);
}

/* The list of known fields is whole, however long it is. */
static void test_known_fields_are_all_told(void **state) {
    (void)state;
    struct completion_request r;
    struct failure f;
    assert_false(parse(&r, "{\"prompt\": \"a\", \"temprature\": 1}", &f));
    assert_non_null(
        strstr(f.message,
               "ignore_eos, return_token_ids, stream, stream_options, retrieval, response_format, "
               "grammar, "
               "structured_outputs, guided_json, guided_regex, guided_choice, user, service_tier, "
               "prompt_cache_key, safety_identifier, verbosity, metadata, store"));
    completion_request_free(&r);
    failure_free(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_everything),
        cmocka_unit_test(test_null_is_absent),
        cmocka_unit_test(test_changes_and_ends),
        cmocka_unit_test(test_neighbors),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_hostile_bodies),
        cmocka_unit_test(test_text_is_not_counted),
        cmocka_unit_test(test_search),
        cmocka_unit_test(test_failure_body),
        cmocka_unit_test(test_failure_hides_paths),
        cmocka_unit_test(test_failure_headers),
        cmocka_unit_test(test_limits_of_the_named_model),
        cmocka_unit_test(test_known_fields_are_all_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
