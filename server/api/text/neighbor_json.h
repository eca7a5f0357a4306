/* server/api/text/neighbor_json.h: a neighbour as clients see it, in answers and in search results.
 */
#pragma once

#include "config/json/json_writer.h"
#include "retrieval/retriever.h"
#include "server/api/text/told_answer.h"

/* Page, line and headings of a chunk: it takes time that grows with its document. */
struct document_place neighbor_find_place(const struct hit *hit);
/* Where a chunk was found, into an open object: id (of the document), document (its path), title,
 * start, end, and page, line and heading path where they are known; null for a text of the
 * request's own. */
void neighbor_write_place(struct json_writer *w, const struct hit *hit,
                          const struct document_place *place, const struct filter *viewer);
/* Of these, what tells of places within the document: page, line and heading. */
void neighbor_write_marks(struct json_writer *w, const struct hit *hit);
/* The beginning of a long text, of whole characters, with an ellipsis that says so. */
void neighbor_write_shown(struct json_writer *w, struct text_span text);
/* All of it: its place, similarity (the cosine), text, as a client of that filter (NULL: none) is
 * shown it. */
void neighbor_write(struct json_writer *w, const struct hit *hit, const struct filter *viewer);
/* The same for a text that came with the request: everything but the text is null. */
void neighbor_write_given(struct json_writer *w, struct text_span text);

/* Whether the answer reads passages at all, searched for or given. */
bool found_is_told(const struct sequence *sequence);
/* Entry j of what was found as an element of "retrieval": passages of the prompt, numbered as
 * retrieval.template numbers them, or a chunk's neighbours. Nothing where none are read. */
void found_write(struct json_writer *w, const struct told_answer *told, int j);
