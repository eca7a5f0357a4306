/* retrieval/extract/model/model_answer.h: what a model says of a page, out of a chat's completion.
 */
#pragma once

#include "config/base/buffer.h"

enum { MOST_MARKDOWN = 1 << 20 }; /* bytes */

/* Whether it is valid UTF-8 without NUL, and not blank. */
bool markdown_is_sound(const struct buffer *markdown);
/* Appends the Markdown of an answer, foreign bytes, without the fences around it; `tokens` is how
 * many it might have. STATUS_INVALID for what is none, and for one that was cut. */
enum status model_answer_read(struct text_span answer, int tokens, struct buffer *markdown,
                              struct error *e);
