/* server/threads/histogram.h: seconds by size, as Prometheus counts them. Whoever owns one guards
 * it. */
#pragma once

#include "config/base/buffer.h"

enum { HISTOGRAM_BOUNDS = 18 };

/* Zero-initialise. */
struct histogram {
    int64_t counts[HISTOGRAM_BOUNDS + 1]; /* of each bucket alone; the last is beyond all bounds */
    double sum;
};

void histogram_note(struct histogram *histogram, double seconds);
int64_t histogram_count(const struct histogram *histogram);
/* The lines name_bucket, name_sum and name_count. labels is "" or "model=\"m\"". */
void histogram_print(const struct histogram *histogram, const char *name, const char *labels,
                     struct buffer *out);
