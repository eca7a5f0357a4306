/* retro/chat/thoughts.h: how a model writes what it thinks before it answers:
 *
 *     THOUGHTS_TAGGED   <think> ... </think>
 *     THOUGHTS_CHANNEL  <|channel>thought ... <channel|>: Gemma 4
 *     THOUGHTS_BRACKETED  [THINK] ... [/THINK]: Magistral, Ministral 3
 *     THOUGHTS_INNER  <|inner_prefix|> ... <|inner_suffix|>: Apertus
 *
 * Messages in channels are another thing (harmony.h). */
#pragma once

#include "retro/grammar/vocab.h"

enum thought_form {
    THOUGHTS_NONE,
    THOUGHTS_TAGGED,
    THOUGHTS_CHANNEL,
    THOUGHTS_BRACKETED,
    THOUGHTS_INNER
};

/* The texts around thoughts, and the tokens that these begin and end with. */
struct thought_marks {
    const char *begin, *end;
    enum grammar_mark begin_mark, end_mark;
    const char *closing; /* ends thoughts of which there are none */
};
/* Constant. THOUGHTS_NONE: those of THOUGHTS_TAGGED, which prompts of other models may end in too.
 */
const struct thought_marks *thought_marks_of(enum thought_form form);
/* From the texts that a template writes (template_literals). */
enum thought_form thought_form_of(struct text_span literals);
