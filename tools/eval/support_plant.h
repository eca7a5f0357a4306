/* tools/eval/support_plant.h: sentences that are true of a text, and false ones made of them: the
 * same for the same texts, on every machine. */
#pragma once

#include "config/text/sentences.h"

/* Words in a row that an answer has from a text where it quotes it (tools/ask_manuals.py). */
enum { QUOTED_WORDS = 6 };

/* The next sentence of at least QUOTED_WORDS words from byte *at on, and *at behind it; `cut`: the
 * text begins and ends anywhere, so that its first and last sentence may be a part of one. */
bool plant_true(struct text_span text, bool cut, size_t *at, struct text_span *out);

/* The sentence with every number changed, digit by digit; false: it has none. */
bool plant_numbers(struct text_span sentence, struct buffer *out);
/* The sentence with its first name changed for the first one of `other` that it has not: options,
 * functions, words with capitals or underscores are names. False: there are none. */
bool plant_name(struct text_span sentence, struct text_span other, struct buffer *out);

/* Whether QUOTED_WORDS words in a row, or all where it has fewer, stand in the text too. Words are
 * compared by their letters and digits, without case. */
bool plant_quotes(struct text_span sentence, struct text_span text);
