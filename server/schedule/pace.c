/* server/schedule/pace.c: seconds for each token, a sliding mean. See pace.h. */
#include "server/schedule/pace.h"

/* Weight of one step among those before it: some twenty steps count. */
static const double STEP_WEIGHT = 0.1;
/* A step that took longer or shorter than expected by more than this counts as this: a machine may
 * pause. */
static const double LARGEST_SURPRISE = 4;

double pace_seconds(const struct pace *pace, struct workload left) {
    return (double)left.prompt * pace->prompt + (double)left.answer * pace->answer;
}

/* The seconds that one kind of token takes, when `part` of the expected time was its own and all
 * took `surprise` times that. */
static void correct(double *seconds, double part, double surprise) {
    *seconds *= 1 + STEP_WEIGHT * part * (surprise - 1);
}

void pace_note(struct pace *pace, struct workload done, double seconds) {
    int64_t tokens = done.prompt + done.answer;
    if (tokens == 0 || seconds <= 0) return;
    if (done.prompt > 0 && pace->prompt == 0) pace->prompt = seconds / (double)tokens;
    if (done.answer > 0 && pace->answer == 0) pace->answer = seconds / (double)tokens;

    double prompt = (double)done.prompt * pace->prompt, answer = (double)done.answer * pace->answer;
    double expected = prompt + answer, surprise = seconds / expected;
    if (surprise > LARGEST_SURPRISE) surprise = LARGEST_SURPRISE;
    correct(&pace->prompt, prompt / expected, surprise);
    correct(&pace->answer, answer / expected, surprise);
}
