/* server/host/prompt/support.h: one number of how much what a model read supports a sentence: how
 * much likelier it makes the sentence's tokens, where it does so least.
 *
 * A token's gain is log p(token | what was read) - log p(token | nothing read). g is the smallest
 * mean gain of any SUPPORT_STRETCH tokens in a row, or of all where a sentence has fewer: these
 * tokens are exp(g) times likelier with what was read, in the geometric mean. Support is
 * 1 - exp(-g), and 0 where g is below 0: the part of their probability that is gone once nothing is
 * read. 0: nothing is gone; 0.5: half, a token is twice as likely with what was read; 0.9: ten
 * times.
 *
 * The mean over a whole sentence hardly sees one false word among many that are right: the stretch
 * is short enough to see it, and longer than what a model knows by itself of a true sentence
 * (docs/results/support.md). */
#pragma once

#include <math.h>

enum { SUPPORT_STRETCH = 8 };

/* Zeroed: no tokens yet. */
struct support {
    double gains[SUPPORT_STRETCH]; /* the latest; that of token i at i % SUPPORT_STRETCH */
    double least;                  /* g, once there is a stretch */
    int n;                         /* tokens */
};

static inline double support_mean(const struct support *support) {
    int n = support->n < SUPPORT_STRETCH ? support->n : SUPPORT_STRETCH;
    double sum = 0;
    for (int i = 0; i < n; i++) sum += support->gains[i];
    return sum / n;
}

/* Log-probabilities of the next token, in nats. */
static inline void support_add(struct support *support, double with, double without) {
    support->gains[support->n % SUPPORT_STRETCH] = with - without;
    support->n++;
    if (support->n < SUPPORT_STRETCH) return;
    double mean = support_mean(support);
    if (support->n == SUPPORT_STRETCH || mean < support->least) support->least = mean;
}

/* 0 .. 1, of at least one token. */
static inline double support_value(const struct support *support) {
    double gain = support->n < SUPPORT_STRETCH ? support_mean(support) : support->least;
    return gain > 0 ? 1 - exp(-gain) : 0;
}
