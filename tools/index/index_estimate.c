/* tools/index/index_estimate.c: how much of a build is done. See index_estimate.h. */
#include "tools/index/index_estimate.h"

#include <math.h>

/* The prior counts as much as so many bytes of files read. */
#define PRIOR_BYTES 4096.0
#define RECENT_SECONDS 60.0

void estimate_start(struct estimate *t, double now) { t->last = now; }

void estimate_set_prior(struct estimate *t, int kind, double text_per_byte) { t->kinds[kind].prior = text_per_byte; }

void estimate_expect(struct estimate *t, int kind, uint64_t file_bytes) {
    t->kinds[kind].expected += (double)file_bytes;
}

void estimate_read(struct estimate *t, int kind, uint64_t file_bytes, uint64_t text_bytes) {
    t->kinds[kind].expected -= (double)file_bytes;
    t->kinds[kind].file += (double)file_bytes;
    t->kinds[kind].text += (double)text_bytes;
    t->waiting += (double)text_bytes;
}

void estimate_done(struct estimate *t, uint64_t text_bytes, double now) {
    double passed = now - t->last, kept = exp(-passed / RECENT_SECONDS);
    t->waiting -= (double)text_bytes;
    t->done += (double)text_bytes;
    t->recent = t->recent * kept + (double)text_bytes;
    t->recent_time = t->recent_time * kept + passed;
    t->last = now;
}

/* Bytes of text that are still to be embedded. */
static double remaining_text(const struct estimate *t) {
    double sum = t->waiting;
    for (int i = 0; i < ESTIMATE_KINDS; i++) {
        double prior = t->kinds[i].prior > 0 ? t->kinds[i].prior : 1;
        double ratio = (t->kinds[i].text + PRIOR_BYTES * prior) / (t->kinds[i].file + PRIOR_BYTES);
        sum += t->kinds[i].expected * ratio;
    }
    return sum;
}

double estimate_share(struct estimate *t) {
    double left = remaining_text(t), whole = t->done + left;
    t->shown = fmax(t->shown, whole > 0 ? t->done / whole : 1);
    return t->shown;
}

double estimate_left(const struct estimate *t) {
    if (t->recent <= 0 || t->recent_time <= 0) return -1;
    return remaining_text(t) * t->recent_time / t->recent;
}
