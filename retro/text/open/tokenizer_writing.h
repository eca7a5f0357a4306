/* retro/text/open/tokenizer_writing.h: parts of tokenizer.json that tokenizers of other files are
 * written with. `w` stands in the object of the file, or in the list that the part is an item of.
 */
#pragma once

#include "config/json/json_writer.h"

/* An item of added_tokens. */
void put_added_token(struct json_writer *w, int id, struct text_span content, bool special);
/* post_processor: the ids before and after a text, -1 for none. */
void put_template(struct json_writer *w, int before, int after);
/* pre_tokenizer of byte-level BPE: regular expressions, one after another; NULL ends them. */
void put_splits(struct json_writer *w, const char *const *steps);
/* decoder of byte-level BPE. */
void put_byte_decoder(struct json_writer *w);
