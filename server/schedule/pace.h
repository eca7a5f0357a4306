/* server/schedule/pace.h: how fast tokens are read and written, learnt from the steps as they come.
 */
#pragma once

#include "config/base/base.h"

/* Tokens of work, done or to be done. */
struct workload {
    int64_t prompt, answer;
};

/* Seconds for each token; 0: none has been seen. */
struct pace {
    double prompt, answer;
};

/* `done` took `seconds`. A step of both kinds of tokens corrects each by its part of what was
 * expected. */
void pace_note(struct pace *pace, struct workload done, double seconds);
/* The seconds that `left` will take; 0 while nothing is known. */
double pace_seconds(const struct pace *pace, struct workload left);
