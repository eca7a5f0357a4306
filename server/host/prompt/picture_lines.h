/* server/host/prompt/picture_lines.h: the tokens that stand behind the lines of a picture's rows:
 * Pixtral's [IMG_BREAK] and [IMG_END]. */
#pragma once

#include "retro/run/tower/picture_rows.h"
#include "retro/text/tokenizer.h"

/* By image_break_token and image_end_token of the folder's processor_config.json, or, where it does
 * not tell, by the names above. STATUS_INVALID where the vocabulary lacks one. */
enum status picture_lines_open(struct picture_line_ids *out, const struct tokenizer *tokenizer,
                               const char *folder, struct error *e);
