/* server/api/fields.h: request bodies read by table (config/json/json_table.h), with failures as OpenAI clients know
 * them. Nothing reaches a handler that a row does not allow. */
#pragma once

#include "config/json/json_table.h"
#include "server/api/failure.h"

/* What a request may ask at most. Each is an int and comes from the option named beside it, or from the model. */
struct request_limits {
    int vocab; /* of the model: token ids are below */
    int context;
    int max_prompts;  /* server.max_prompts */
    int max_stops;    /* server.max_stops */
    int max_logprobs; /* server.max_logprobs */
    int max_k;        /* retrieval.max_k */
};

/* Fills `object` by the table from a request's JSON. Parsers of rows find the limits in r->limits, and the failure in
 * r->context: what they set there goes before what the reader says. */
bool fields_parse(const struct json_table *t, void *object, const struct json *json, const struct request_limits *l,
                  struct failure *f);
/* Parses text[0, size) as one JSON object; the caller closes *out. A body with more values than any valid request has
 * is refused before it is parsed, which bounds the parser's memory. */
bool fields_load(struct json **out, const char *text, size_t size, const struct request_limits *l, struct failure *f);
