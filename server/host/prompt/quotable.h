/* server/host/prompt/quotable.h: what is read of a document, as an answer may quote it. */
#pragma once

#include "retrieval/retriever.h"
#include "retro/grammar/quote_source.h"

/* `text` begins where the hit does and is as long as what is read of it. Its document tells whether
 * words are torn at its ends; of one that is not at hand nothing is known but that it begins at
 * byte 0. The texts are borrowed. */
struct passage_text quotable_text(const struct hit *hit, struct text_span text);
