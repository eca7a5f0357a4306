/* server/schedule/pace.c: seconds for each token, a sliding mean. See pace.h. */
#include "server/schedule/pace.h"

/* Weight of one step among those before it: some twenty steps count. */
static const double STEP_WEIGHT = 0.1;
/* A step that took longer or shorter than expected by more than this counts as this: a machine may pause. */
static const double LARGEST_SURPRISE = 4;

double pace_seconds(const struct pace *p, struct workload left) {
    return (double)left.prompt * p->prompt + (double)left.answer * p->answer;
}

/* The seconds that one kind of token takes, when `part` of the expected time was its own and all took `surprise` times
 * that. */
static void correct(double *seconds, double part, double surprise) {
    *seconds *= 1 + STEP_WEIGHT * part * (surprise - 1);
}

void pace_note(struct pace *p, struct workload done, double seconds) {
    int64_t tokens = done.prompt + done.answer;
    if (tokens == 0 || seconds <= 0) return;
    if (done.prompt > 0 && p->prompt == 0) p->prompt = seconds / (double)tokens;
    if (done.answer > 0 && p->answer == 0) p->answer = seconds / (double)tokens;

    double prompt = (double)done.prompt * p->prompt, answer = (double)done.answer * p->answer;
    double expected = prompt + answer, surprise = seconds / expected;
    if (surprise > LARGEST_SURPRISE) surprise = LARGEST_SURPRISE;
    correct(&p->prompt, prompt / expected, surprise);
    correct(&p->answer, answer / expected, surprise);
}
