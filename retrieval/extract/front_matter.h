/* retrieval/extract/front_matter.h: metadata at the beginning of a Markdown file: YAML between two
 * lines of three dashes, or TOML between two lines "+++". Values are text, numbers, true, false,
 * and lists. Deeper structures are passed over. An entry that is no YAML, or refers to another, is
 * a name and the text behind its colon. */
#pragma once

#include "config/base/buffer.h"
#include "config/json/json_writer.h"

/* Bytes of the front matter that the text begins with, up to behind its last line; 0: it has none,
 * or one that does not end. */
size_t front_matter_size(struct text_span text);
/* Appends its title, where it is a text; nothing else. */
void front_matter_title(struct text_span text, struct buffer *title);

/* Whether the value of this name is wanted: its key is written then. */
typedef bool front_matter_begin(void *context, struct text_span name);
/* Writes the values of the names that `begin` wants. A text without front matter, or with one that
 * does not end, has no names. */
void front_matter_read(struct text_span text, struct json_writer *w, front_matter_begin *begin,
                       void *context);
