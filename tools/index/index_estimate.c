/* tools/index/index_estimate.c: how much of a build is done. See index_estimate.h. */
#include "tools/index/index_estimate.h"

#include <math.h>

/* Guesses are taken to be right as surely as if so many bytes had been. */
#define TRUSTED_BYTES 16384.0
#define RECENT_SECONDS 60.0

void estimate_start(struct index_estimate *estimate, double now) { estimate->last = now; }

void estimate_expect(struct index_estimate *estimate, uint64_t guess) {
    estimate->expected += (double)guess;
}

void estimate_read(struct index_estimate *estimate, uint64_t guess, uint64_t text_bytes) {
    estimate->expected -= (double)guess;
    estimate->guessed += (double)guess;
    estimate->text += (double)text_bytes;
    estimate->waiting += (double)text_bytes;
}

void estimate_done(struct index_estimate *estimate, uint64_t text_bytes, double now) {
    double passed = now - estimate->last, kept = exp(-passed / RECENT_SECONDS);
    estimate->waiting -= (double)text_bytes;
    estimate->done += (double)text_bytes;
    estimate->recent = estimate->recent * kept + (double)text_bytes;
    estimate->recent_time = estimate->recent_time * kept + passed;
    estimate->last = now;
}

void estimate_kept(struct index_estimate *estimate, uint64_t text_bytes) {
    estimate->waiting -= (double)text_bytes;
    estimate->done += (double)text_bytes;
}

/* Bytes of text that are still to be embedded. */
static double remaining_text(const struct index_estimate *estimate) {
    return estimate->waiting + estimate->expected * (estimate->text + TRUSTED_BYTES) /
                                   (estimate->guessed + TRUSTED_BYTES);
}

double estimate_share(struct index_estimate *estimate) {
    double left = remaining_text(estimate), whole = estimate->done + left;
    estimate->shown = fmax(estimate->shown, whole > 0 ? estimate->done / whole : 1);
    return estimate->shown;
}

double estimate_left(const struct index_estimate *estimate) {
    if (estimate->recent <= 0 || estimate->recent_time <= 0) return -1;
    return remaining_text(estimate) * estimate->recent_time / estimate->recent;
}
