/* server/api/neighbor_json.h: a neighbour as clients see it, in answers and in search results. */
#pragma once

#include "config/json/json_writer.h"
#include "retrieval/retriever.h"

/* The fields of one found chunk, into an open object: document, title, start, end, distance (1 - cosine), text. */
void neighbor_write(struct json_writer *w, const struct hit *hit);
/* The same for a text that came with the request: everything but the text is null. */
void neighbor_write_given(struct json_writer *w, struct text_span text);
