/* tools/index/index_estimate.c: how much of a build is done. See index_estimate.h. */
#include "tools/index/index_estimate.h"

#include <math.h>

/* Guesses are taken to be right as surely as if so many bytes had been. */
#define TRUSTED_BYTES 16384.0
#define RECENT_SECONDS 60.0

void estimate_start(struct index_estimate *t, double now) { t->last = now; }

void estimate_expect(struct index_estimate *t, uint64_t guess) { t->expected += (double)guess; }

void estimate_read(struct index_estimate *t, uint64_t guess, uint64_t text_bytes) {
    t->expected -= (double)guess;
    t->guessed += (double)guess;
    t->text += (double)text_bytes;
    t->waiting += (double)text_bytes;
}

void estimate_done(struct index_estimate *t, uint64_t text_bytes, double now) {
    double passed = now - t->last, kept = exp(-passed / RECENT_SECONDS);
    t->waiting -= (double)text_bytes;
    t->done += (double)text_bytes;
    t->recent = t->recent * kept + (double)text_bytes;
    t->recent_time = t->recent_time * kept + passed;
    t->last = now;
}

void estimate_kept(struct index_estimate *t, uint64_t text_bytes) {
    t->waiting -= (double)text_bytes;
    t->done += (double)text_bytes;
}

/* Bytes of text that are still to be embedded. */
static double remaining_text(const struct index_estimate *t) {
    return t->waiting + t->expected * (t->text + TRUSTED_BYTES) / (t->guessed + TRUSTED_BYTES);
}

double estimate_share(struct index_estimate *t) {
    double left = remaining_text(t), whole = t->done + left;
    t->shown = fmax(t->shown, whole > 0 ? t->done / whole : 1);
    return t->shown;
}

double estimate_left(const struct index_estimate *t) {
    if (t->recent <= 0 || t->recent_time <= 0) return -1;
    return remaining_text(t) * t->recent_time / t->recent;
}
