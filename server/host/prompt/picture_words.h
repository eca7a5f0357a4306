/* server/host/prompt/picture_words.h: what a model's chat template writes for a picture, such as
 * "<image>\n": by these words a found picture stands in a passage. */
#pragma once

#include "retro/chat/chat.h"

/* Zeroed: none are known. */
struct picture_words {
    struct buffer text; /* all of it the template's own */
    struct tokens ids;  /* of the text, the model's picture id once among them */
};

/* Renders a message with a picture and a text, and one with the text alone: what stands before the
 * text in the first and not in the second are the words. STATUS_UNSUPPORTED where they cannot be
 * told so. */
enum status picture_words_open(struct picture_words *out, const struct chat *chat,
                               const struct tokenizer *tokenizer, int32_t picture_id,
                               struct error *e);
void picture_words_free(struct picture_words *words);
