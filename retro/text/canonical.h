/* retro/text/canonical.h: a text as SigLIP's tokenizer takes it: in lower case, without ASCII
 * punctuation, with one blank for each run of white space and none at its ends (transformers'
 * SiglipTokenizer.canonicalize_text). */
#pragma once

#include "config/text/unicode.h"

void canonical_text(const struct mapped_text *text, struct mapped_buffer *out);
