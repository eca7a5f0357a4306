/* retrieval/milvus/labels.h: filters as Milvus can search by them.
 *
 * A row holds labels of its document, a JSON object: "e" has a hash for each fact (what "eq" and
 * "in" ask for); others have the least and the largest number, date and text of each name, by a
 * hash of the name. An expression over these allows all documents that the filter does, and few
 * others: what it finds is asked by the filter itself afterwards. Words of users stand in no
 * expression, their hashes and hexadecimal digits do. */
#pragma once

#include "retrieval/filter/filter.h"

/* Appends the labels of a document. */
void labels_write(struct buffer *out, const struct filter_subject *subject);
/* Appends an expression that holds for every document that the filter allows; NULL: for all. */
void labels_express(struct buffer *out, const struct filter *filter);
/* Appends one that holds for all but documents with one of these words for a path or an id. */
void labels_express_without(struct buffer *out, const struct text_span *words, int n);
