/* retrieval/extract/front_matter_toml.h: front matter in TOML, between two lines "+++". */
#pragma once

#include "retrieval/extract/front_matter.h"

/* As front_matter_read, of what lies between the lines. Names below the first "[table]" are passed
 * over. Takes time in proportion to the text. */
void front_matter_read_toml(struct text_span text, struct json_writer *w, front_matter_begin *begin,
                            void *context);
/* A number, true or false as it is where the text has no quotes; else a text. */
void front_matter_put(struct json_writer *w, struct text_span text, bool plain);
