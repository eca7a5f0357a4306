/* tools/eval/eval_support.h: how well the figure of support (server/host/prompt/support.h) tells
 * sentences that the passages support from others. A question is searched for as the server does,
 * and its prompt is read with what is found; each sentence is scored as its answer, with that and
 * without.
 *
 *   true        sentences of what was read
 *   numbers     the same with other numbers
 *   names       the same with another name, of another sentence that was read
 *   elsewhere   sentences of documents that were not read
 *   quoted      sentences of the model's own answers that quote what was read
 *   unquoted    the other sentences of its own answers
 */
#pragma once

#include <stdio.h>

#include "tools/eval/eval_subject.h"

enum support_kind {
    SUPPORT_TRUE,
    SUPPORT_NUMBERS,
    SUPPORT_NAMES,
    SUPPORT_ELSEWHERE,
    SUPPORT_QUOTED,
    SUPPORT_UNQUOTED,
    SUPPORT_KINDS
};
extern const char *const support_kind_names[SUPPORT_KINDS];

/* Sentences of each kind for one question, and tokens of one at most; those of a written answer. */
enum { SUPPORT_PER_QUESTION = 6, SUPPORT_SENTENCE_TOKENS = 56, SUPPORT_ANSWER_TOKENS = 60 };

struct support_eval {
    struct subject model;
    struct retriever_choice choice;
    int k;                          /* neighbours or passages of a search */
    int context;                    /* tokens of a sequence */
    FILE *records_out;              /* a line a sentence; NULL: none */
    double *figures[SUPPORT_KINDS]; /* [n] of each kind */
    int n[SUPPORT_KINDS], capacity[SUPPORT_KINDS];
    int n_questions;
};

/* Scores {"question": "..."}; context is the struct support_eval. */
enum status support_score_question(void *context, const struct json *record, struct error *e);
