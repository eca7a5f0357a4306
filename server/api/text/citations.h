/* server/api/text/citations.h: the passages that an answer names: "[2]" in it is passage 2 of its prompt. */
#pragma once

#include "config/json/json_writer.h"
#include "server/schedule/sequence.h"

/* A finished answer as clients see it. */
struct cited_answer {
    const struct sequence *sequence;
    const struct progress *progress;
    int index;             /* of the choice */
    struct text_span text; /* its own */
    int64_t before;        /* characters shown before it: those of an echoed prompt */
    size_t written_before; /* bytes that the model wrote before it: thoughts */
};

/* Whether passages stand in the answer's prompt by their numbers. */
bool citations_may_be(const struct sequence *sequence, const struct progress *p);
/* Each number in brackets that a passage has of those in the prompt when the brackets were written, alone or in a list
 * ("[1, 3]"), as an element of "citations": index, number, the passage's document, title, start and end, and the
 * brackets' place in the answer, answer_start and answer_end in characters. */
void citations_write(struct json_writer *w, const struct cited_answer *a);
