/* tools/bench/bench_print.c: figures as JSON lines or rows of a table, medians, and folders for
 * what lasts as long as a run. See bench.h. */
#include <ftw.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/json/json_writer.h"
#include "tools/bench/bench.h"

int bench_threads(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? max_int(1, CPU_COUNT(&set)) : 1;
}

static int compare_doubles(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

double bench_median(double *values, int n) {
    if (n == 0) return 0;
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

void bench_print_title(const struct bench_options *options, const char *format, ...) {
    va_list list;
    if (options->json) return;
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n");
    fflush(stdout);
}

/* One figure; low and high are NULL where there were no rounds. Flushed: the next may take a while.
 */
static void print_figure(const struct bench_options *options, const char *name, const char *unit,
                         double value, const double *range) {
    struct buffer line = {0}, full = {0};
    buffer_printf(&full, "%s%s", options->prefix, name);
    if (options->json) {
        struct json_writer w;
        put_begin(&w, &line);
        put_object(&w);
        put_key_string(&w, "name", full.data);
        if (options->model_name) put_key_string(&w, "model", options->model_name);
        if (options->dtype_name) put_key_string(&w, "dtype", options->dtype_name);
        put_key_int(&w, "threads", options->threads);
        put_key_float(&w, "value", (float)value);
        put_key_string(&w, "unit", unit);
        if (range) put_key_float(&w, "low", (float)range[0]);
        if (range) put_key_float(&w, "high", (float)range[1]);
        put_object_end(&w);
    } else {
        buffer_printf(&line, "  %-26s %10.4g  %s", full.data, value, unit);
        if (range) buffer_printf(&line, "  (%.4g .. %.4g)", range[0], range[1]);
    }
    puts(line.data);
    fflush(stdout);
    buffer_free(&line);
    buffer_free(&full);
}

void bench_print(const struct bench_options *options, const char *name, const char *unit,
                 double value) {
    print_figure(options, name, unit, value, NULL);
}

double bench_print_rounds(const struct bench_options *options, const char *name, const char *unit,
                          double *values, int n) {
    double median = bench_median(values, n);
    print_figure(options, name, unit, median, (double[]){values[0], values[n - 1]});
    return median;
}

enum status bench_folder_make(char path[BENCH_FOLDER_SIZE], struct error *e) {
    snprintf(path, BENCH_FOLDER_SIZE, P_tmpdir "/retro-bench-XXXXXX");
    return mkdtemp(path) ? STATUS_OK : error_errno(e, "no folder in " P_tmpdir " could be made");
}

static int remove_entry(const char *path, const struct stat *the_stat, int kind, struct FTW *at) {
    (void)the_stat;
    (void)kind;
    (void)at;
    remove(path); /* what cannot be removed is the system's to clear away, as all of that folder */
    return 0;
}

void bench_folder_remove(const char *path) { nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS); }
