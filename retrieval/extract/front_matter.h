/* retrieval/extract/front_matter.h: metadata at the beginning of a Markdown file: lines "name: value" between two lines
 * of three dashes. Values are text, in quotes or not, numbers, true, false, and lists: "[a, b]", or lines "- a" behind
 * the name. Deeper structures are passed over. */
#pragma once

#include "config/base/buffer.h"
#include "config/json/json_writer.h"

/* Whether the value of this name is wanted: its key is written then. */
typedef bool front_matter_begin(void *context, struct text_span name);
/* Writes the values of the names that `begin` wants. A text without front matter, or with one that does not end, has no
 * names. */
void front_matter_read(struct text_span text, struct json_writer *w, front_matter_begin *begin, void *context);
