/* server/api/fields.h: JSON objects read by table: every field of a request has one row with its name, type and range,
 * and nothing reaches a handler that the row does not allow. null means absent; a field without a row is an error. */
#pragma once

#include "config/json/json.h"
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

enum field_type {
    FIELD_BOOL,    /* bool */
    FIELD_INT,     /* int64_t in [min, max] */
    FIELD_NUMBER,  /* double in [min, max] */
    FIELD_NEUTRAL, /* not supported: a number that must be `min`, where it changes nothing */
    FIELD_EMPTY,   /* not supported: must be "", {} or [] */
    FIELD_PARSED   /* whatever `parse` does */
};

struct field {
    const char *name; /* as the client knows it: "k" in a table, "retrieval.k" in messages */
    enum field_type type;
    size_t offset; /* into the object that is filled in */
    double min, max;
    const char *option; /* the option that sets max: then max is the limit at limit_offset */
    size_t limit_offset;
    bool (*parse)(void *object, const json_t *value, const struct request_limits *l, struct failure *f);
};

/* The rows of one JSON object; prefix ("", "retrieval.") goes before names in messages. */
struct field_table {
    const struct field *rows;
    int n;
    const char *prefix;
};

/* Fills `object` by the table from a JSON object. */
bool fields_parse(const struct field_table *t, void *object, const json_t *json, const struct request_limits *l,
                  struct failure *f);
/* Parses text[0, size) as one JSON object; the caller releases *out. A body with more values than any valid request
 * has is refused before it is parsed, which bounds the parser's memory. */
bool fields_load(json_t **out, const char *text, size_t size, const struct request_limits *l, struct failure *f);
