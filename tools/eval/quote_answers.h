/* tools/eval/quote_answers.h: answers to questions from passages in the prompt, as a server writes
 * them at temperature 0, held to quotes or free. */
#pragma once

#include "retro/chat/chat.h"
#include "retro/grammar/grammar.h"
#include "tools/eval/eval_subject.h"

struct quote_writer {
    struct subject model;
    struct chat *chat; /* NULL: the model has no chat template */
    struct vocab vocab;
    struct grammar *grammar;
    int max_tokens, context, quote_words;
    bool free; /* what it writes is held to nothing */
};

/* STATUS_UNSUPPORTED for a model that reads its passages in another way. */
enum status quote_writer_open(struct quote_writer *writer, const struct config *config,
                              struct error *e);
void quote_writer_close(struct quote_writer *writer); /* of a zeroed writer: nothing */

/* An answer, and the passages that were read for it. Free both. */
struct quote_answer {
    struct hits hits;
    struct passages passages;
    struct buffer text;
};
enum status quote_writer_answer(struct quote_writer *writer, const char *question,
                                struct quote_answer *out, struct error *e);
void quote_answer_free(struct quote_answer *answer);
