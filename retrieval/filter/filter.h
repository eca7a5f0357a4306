/* retrieval/filter/filter.h: which documents a search may find, as a small JSON language
 * (docs/filters.md):
 *
 *     {"and": [{"eq": {"lang": "en"}}, {"range": {"date": {"gte": "2024-01-01"}}}, {"not":
 * {"prefix": {"path": "x/"}}}]}
 *
 * A filter is compiled once and then asked for each document. It never changes; it is counted, and
 * any thread may hold and release one. NULL is no filter: all documents pass. */
#pragma once

#include <stdatomic.h>

#include "config/json/json_table.h"
#include "config/json/json_writer.h"
#include "retrieval/filter/facts.h"

struct filter;

/* Of a document, what filters look at. */
struct filter_subject {
    const char *id, *path;
    struct text_span facts; /* facts.h */
};

enum {
    FILTER_MAX_PARTS = 1000, /* conditions and operators */
    FILTER_MAX_VALUES = 10000,
    FILTER_MAX_DEPTH = 16
};

/* From a value of a document that is being read, or from a text that holds one. The reader says
 * where it is wrong. */
enum status filter_read(struct filter **out, struct json_reader *reader, const struct json *value);
/* From a text; `name` is what errors call it. An empty text is NULL. */
enum status filter_parse(struct filter **out, const char *text, const char *name, struct error *e);
/* Both; one of them where the other is NULL. The caller holds the result. */
struct filter *filter_join(struct filter *left, struct filter *right);

/* Documents that `base` (NULL: all) allows and that have no owner, or this one: the text that their
 * metadata has as `name`. Its clients know documents by the ids that base gives them, and are told
 * nothing of owners. The caller holds the result. */
struct filter *filter_owned(struct filter *base, const char *name, const char *owner);
/* The filter that its clients know of: the base of an owned one, else itself. NULL: none. */
const struct filter *filter_known(const struct filter *filter);

struct filter *filter_hold(struct filter *filter);
void filter_release(struct filter *filter);

bool filter_allows(const struct filter *filter, const struct filter_subject *subject);
/* Whether whoever sees what the filter allows may put the document. A search takes a list where one
 * of its values fits. Here all have to fit, and what equals one value is no list: else a value of
 * another tenant's could stand beside the own one, and the document would be found by both. */
bool filter_admits(const struct filter *filter, const struct filter_subject *subject);
/* STATUS_INVALID, with the words for a document that is not admitted. */
enum status filter_refuse(const struct filter *filter, struct error *e);
/* As JSON, one spelling for filters that are built alike; NUL-terminated, it lives as long as the
 * filter. Of NULL "".
 */
const char *filter_text(const struct filter *filter);
/* Whether both are built alike. */
bool filter_is_same(const struct filter *left, const struct filter *right);

/* Appends to `metadata`, a JSON object or empty, what a document needs to pass and does not say:
 * each value that the filter demands by "eq", alone or in an outer "and", of a name that the
 * metadata does not have. STATUS_INVALID where the metadata is not an object. */
enum status filter_fill(const struct filter *filter, struct buffer *metadata, struct error *e);
