/* tools/eval/eval_lm.h: multiple choice: which of a record's choices a model finds the likeliest
 * after the prompt.
 *
 * A choice's tokens are those that the text prompt + choice has beyond the prompt's own, as
 * lm-evaluation-harness splits them: blanks at the prompt's end belong to the choice, and an empty
 * prompt is the end-of-text token. The prompt's tokens and the choice's then are one sequence, and
 * the chunk grid is that of a server which was given the prompt and writes the choice. */
#pragma once

#include <stdio.h>

#include "tools/eval/eval_subject.h"

enum lm_mode { LM_ON, LM_OFF, LM_MODES };

/* A mode's answer to one record. The likeliest choice is the one of the largest sum of
 * log-probabilities, or of the largest sum per byte of the choice's text; the first of equals. */
struct lm_verdict {
    int likeliest, likeliest_per_byte;
    double answer_bits; /* of the right choice */
};

struct lm_result {
    int n_choices, answer;
    double answer_bytes;
    struct lm_verdict verdicts[LM_MODES];
};

struct lm {
    struct subject model;
    bool modes[LM_MODES]; /* on only with a collection */
    enum grid_mode grid;
    int context; /* tokens of a sequence */
    int eod;     /* -1: none */
    uint64_t seed;
    FILE *records_out;            /* a line a record, NULL: none */
    struct found_neighbors found; /* of the sequence that is scored */
    struct lm_result *results;    /* [n] */
    int n, capacity;
};

/* Scores {"prompt": "...", "choices": ["...", ...], "answer": 0}; context is the struct lm. */
enum status lm_score_record(void *context, const struct json *record, struct error *e);
