/* server/api/fields/fields.h: request bodies read by table (config/json/json_table.h), with
 * failures as OpenAI clients know them. Nothing reaches a handler that a row does not allow. */
#pragma once

#include "config/json/json_table.h"
#include "retrieval/filter/filter.h"
#include "retro/model/generation_config.h"
#include "server/api/core/failure.h"
#include "server/host/options/retrieval_choice.h"

/* The most that a request may ask, each an int from the option named beside it or from the model;
 * and what it gets where it does not say. */
struct request_limits {
    struct retrieval_limits retrieval; /* first */
    int vocab;                         /* of the model: token ids are below */
    int context;
    int max_prompts;  /* server.max_prompts, or the option of the name below */
    int max_choices;  /* server.max_choices */
    int max_stops;    /* server.max_stops */
    int max_biases;   /* server.max_biases */
    int max_logprobs; /* server.max_logprobs */
    struct metadata_limits
        metadata; /* retrieval.max_metadata_values, retrieval.max_metadata_bytes */
    const char *max_prompts_option;
    const struct host_rules *image_hosts; /* of server.image_urls; NULL: no pictures are fetched */
    const struct sampling_defaults *sampling; /* of the model; NULL: none */
};

/* A request's limits are those of the model that it names. */
struct request_models {
    /* Those of a model, or of the server's choice when it is NULL. NULL with *failure set: there is
     * no such model. */
    const struct request_limits *(*limits)(void *context, const char *model,
                                           struct failure *failure);
    void *context;
    const struct request_limits *largest; /* bounds what is parsed before the name is known */
};

/* Parsers of rows, for fields that are more than a number: `read` fails by setting the failure
 * itself. */
typedef bool field_reader(void *object, const struct json *v, const struct request_limits *l,
                          struct failure *f);
#define FIELD_PARSER(parse, read) \
    static enum status parse(struct json_reader *r, const struct json *value, void *object) { \
        return read(object, value, r->limits, r->context) ? STATUS_OK : STATUS_INVALID; \
    }

/* A filter within the limits of its size. */
enum status field_read_filter(struct filter **out, struct json_reader *reader,
                              const struct json *value);

/* Token ids into *ids [n], owned, each below the model's vocabulary. `of` is what they are, in
 * messages: "prompt 3"; `field` is where they are. */
struct request_ids {
    int32_t *ids;
    int n;
};
bool ids_read(struct request_ids *out, const struct json *array, const char *field, const char *of,
              const struct request_limits *limits, struct failure *failure);

/* One field of a query string, decoded: name=value. */
struct query_argument {
    const char *name, *value;
};
/* The n arguments as one JSON object, so that the table of their fields checks them: values of rows
 * of numbers and booleans as they are written, others as text. False with *failure set: one comes
 * twice, or is not UTF-8. The caller closes *out. */
bool arguments_load(struct json **out, const struct json_table *table,
                    const struct query_argument *arguments, int n, struct failure *failure);

/* Rows of fields that mean nothing here and must still be what OpenAI's clients send. */
json_field_parser field_parse_text, field_parse_object, field_parse_bool, field_parse_true;

/* The limits of the model that the body names in `model`, which is owned and NULL when absent. NULL
 * with *failure set: it has no such name. */
const struct request_limits *model_read(char **model, const struct json *json,
                                        const struct request_models *models,
                                        struct failure *failure);

/* Fills `object` by the table from a request's JSON. Parsers of rows find the limits in r->limits,
 * and the failure in r->context: what they set there goes before what the reader says. */
bool fields_parse(const struct json_table *table, void *object, const struct json *json,
                  const struct request_limits *limits, struct failure *failure);
/* A request's body by its table, within the limits of the model that it names (model_read). */
bool fields_read(const struct json_table *table, void *object, char **model, struct text_span body,
                 const struct request_models *models, struct failure *failure);
/* Parses text[0, size) as one JSON object; the caller closes *out. A body with more values than any
 * valid request has is refused before it is parsed, which bounds the parser's memory. */
bool fields_load(struct json **out, const char *text, size_t size,
                 const struct request_limits *limits, struct failure *failure);
