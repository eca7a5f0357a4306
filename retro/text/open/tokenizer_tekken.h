/* retro/text/open/tokenizer_tekken.h: tekken.json, the tokenizer of folders in Mistral's own form,
 * written as the tokenizer.json that says the same. */
#pragma once

#include "config/json/json_value.h"

/* Appends tokenizer.json. STATUS_INVALID names what in the file is wrong. */
enum status tekken_write_tokenizer(struct buffer *out, const struct json *tekken, struct error *e);
