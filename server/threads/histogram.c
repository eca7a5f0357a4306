/* server/threads/histogram.c: see histogram.h. */
#include "server/threads/histogram.h"

/* From a token of a small model to a long answer, two or three for each power of ten. */
static const double bounds[HISTOGRAM_BOUNDS] = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 1000};

void histogram_note(struct histogram *histogram, double seconds) {
    int i = 0;
    while (i < HISTOGRAM_BOUNDS && seconds > bounds[i]) i++;
    histogram->counts[i]++;
    histogram->sum += seconds;
}

int64_t histogram_count(const struct histogram *histogram) {
    int64_t n = 0;
    for (int i = 0; i <= HISTOGRAM_BOUNDS; i++) n += histogram->counts[i];
    return n;
}

void histogram_print(const struct histogram *histogram, const char *name, const char *labels,
                     struct buffer *out) {
    const char *comma = labels[0] ? "," : "";
    int64_t n = 0;
    for (int i = 0; i < HISTOGRAM_BOUNDS; i++) {
        n += histogram->counts[i];
        buffer_printf(out, "%s_bucket{%s%sle=\"%.10g\"} %lld\n", name, labels, comma, bounds[i],
                      (long long)n);
    }
    n = histogram_count(histogram);
    buffer_printf(out, "%s_bucket{%s%sle=\"+Inf\"} %lld\n", name, labels, comma, (long long)n);
    buffer_printf(out, labels[0] ? "%s_sum{%s} %.9g\n" : "%s_sum%s %.9g\n", name, labels,
                  histogram->sum);
    buffer_printf(out, labels[0] ? "%s_count{%s} %lld\n" : "%s_count%s %lld\n", name, labels,
                  (long long)n);
}
