/* retro/chat/thoughts.c: see thoughts.h. */
#include "retro/chat/thoughts.h"

#include <string.h>

static const struct thought_marks marks[] = {
    [THOUGHTS_TAGGED] = {"<think>", "</think>", MARK_THINK, MARK_THINK_END, "\n</think>\n\n"},
    [THOUGHTS_CHANNEL] = {"<|channel>thought", "<channel|>", MARK_THOUGHT, MARK_THOUGHT_END,
                          "\n<channel|>"},
    [THOUGHTS_BRACKETED] = {"[THINK]", "[/THINK]", MARK_BRACKETED, MARK_BRACKETED_END, "[/THINK]"},
    [THOUGHTS_INNER] = {"<|inner_prefix|>", "<|inner_suffix|>", MARK_INNER, MARK_INNER_END,
                        "<|inner_suffix|>"},
};

const struct thought_marks *thought_marks_of(enum thought_form form) {
    return &marks[form == THOUGHTS_NONE ? THOUGHTS_TAGGED : form];
}

static bool has(struct text_span literals, const char *words) {
    return literals.size > 0 && memmem(literals.text, literals.size, words, strlen(words)) != NULL;
}

/* Whether the template writes both marks of the form. */
static bool has_both(struct text_span literals, enum thought_form form) {
    return has(literals, marks[form].begin) && has(literals, marks[form].end);
}

enum thought_form thought_form_of(struct text_span literals) {
    if (has(literals, marks[THOUGHTS_TAGGED].end)) return THOUGHTS_TAGGED;
    if (has_both(literals, THOUGHTS_CHANNEL)) return THOUGHTS_CHANNEL;
    if (has_both(literals, THOUGHTS_BRACKETED)) return THOUGHTS_BRACKETED;
    return has_both(literals, THOUGHTS_INNER) ? THOUGHTS_INNER : THOUGHTS_NONE;
}
