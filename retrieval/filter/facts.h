/* retrieval/filter/facts.h: a document's metadata as filters compare it: parsed once, then compact
 * bytes.
 *
 * A fact is a name and a number, text or boolean. A list is a fact for each of its values. Objects
 * and nulls are none: nothing compares them. */
#pragma once

#include "config/base/buffer.h"
#include "config/json/json_value.h"

enum fact_kind { FACT_BOOL, FACT_INT, FACT_REAL, FACT_TEXT };

struct fact {
    struct text_span name;
    enum fact_kind kind;
    bool listed; /* one of a list's values */
    bool truth;
    int64_t whole;
    double real;
    struct text_span text; /* not NUL-terminated */
};

/* The most that a document's metadata may be: filters look at all of it. */
struct metadata_limits {
    int values; /* those of lists, each, and all others */
    int bytes;  /* as JSON */
};
/* STATUS_TOO_LARGE, naming the option, where metadata of `bytes` bytes, an object, is beyond its
 * limits. */
enum status metadata_fits(const struct json *object, size_t bytes,
                          const struct metadata_limits *limits, struct error *e);

/* Appends the facts of `metadata`, a JSON object or "" (or NULL). STATUS_INVALID for anything else.
 */
enum status facts_append(struct buffer *out, const char *metadata, struct error *e);
/* for (size_t at = 0; facts_next(facts, &at, &fact);): all of them, in the order of the metadata.
 */
bool facts_next(struct text_span facts, size_t *at, struct fact *out);

/* -1, 0 or 1: exact, also between integers and reals. Both are FACT_INT or FACT_REAL, and no NaN.
 */
int fact_compare_numbers(const struct fact *left, const struct fact *right);
/* "2024-05-31", or with a time "2024-05-31T12:00:00Z" (a blank for the T, seconds and their
 * fraction may be missing, +02:00 for the Z; without either it is UTC): microseconds since 1970.
 * False for any other text. */
bool fact_parse_date(struct text_span text, int64_t *microseconds);
