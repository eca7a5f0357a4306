/* server/host/prompt/support.h: one number of how much what a model read supports a sentence: how
 * much likelier the sentence's tokens are with it than without.
 *
 * A token's gain is log p(token | what was read) - log p(token | nothing read). The mean gain g of
 * a sentence's tokens makes each of them exp(g) times likelier, in the geometric mean; support is
 * 1 - exp(-g), and 0 where g is below 0: the part of a token's probability that is gone once
 * nothing is read. 0: nothing is gone; 0.5: half, each token is twice as likely with what was read;
 * 0.9: ten times. */
#pragma once

#include <math.h>

/* Zeroed: no tokens yet. */
struct support {
    double gain; /* the sum of the tokens' */
    int n;       /* tokens */
};

/* Log-probabilities of one token, in nats. */
static inline void support_add(struct support *support, double with, double without) {
    support->gain += with - without;
    support->n++;
}

/* 0 .. 1, of at least one token. */
static inline double support_value(const struct support *support) {
    double gain = support->gain / support->n;
    return gain > 0 ? 1 - exp(-gain) : 0;
}
