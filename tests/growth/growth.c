/* tests/growth/growth.c: counts the instructions of each case at three sizes. test_growth.py runs
 * it and compares.
 *
 *     growth                  every case: lines "NAME N INSTRUCTIONS"; under callgrind the counts
 * are in its dumps growth NAME [N]         one case, of one size growth --seconds ...    the same
 * in microseconds, for people */
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

#include "tests/growth/growth.h"

enum { SIZES = 3 };

static const struct growth_table *const tables[] = {
    &chat_growth,  &grammar_growth, &text_growth, &filter_growth, &file_growth,
    &model_growth, &request_growth, &door_growth, &reply_growth};

/* The kernel's counter of this thread's instructions; -1: there is none. */
static int counter = -1;
static bool seconds;

static void counter_open(void) {
    struct perf_event_attr attributes = {.size = sizeof attributes,
                                         .type = PERF_TYPE_HARDWARE,
                                         .config = PERF_COUNT_HW_INSTRUCTIONS,
                                         .disabled = 1,
                                         .exclude_kernel = 1,
                                         .exclude_hv = 1};
    counter = (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0);
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static uint64_t count_native(const struct growth_case *c, struct text_span input) {
    uint64_t count = 0, begin = now();
    if (counter >= 0) ioctl(counter, PERF_EVENT_IOC_RESET, 0);
    if (counter >= 0) ioctl(counter, PERF_EVENT_IOC_ENABLE, 0);
    c->run(input);
    if (counter >= 0) ioctl(counter, PERF_EVENT_IOC_DISABLE, 0);
    if (seconds) return now() - begin;
    if (counter >= 0) CHECK(read(counter, &count, sizeof count) == sizeof count);
    return count;
}

/* Callgrind writes what it counted to a file that has the case's name and size in it. */
static void count_simulated(const struct growth_case *c, int n, struct text_span input) {
    char title[100];
    snprintf(title, sizeof title, "growth %s %d", c->name, n);
    CALLGRIND_TOGGLE_COLLECT;
    c->run(input);
    CALLGRIND_TOGGLE_COLLECT;
    CALLGRIND_DUMP_STATS_AT(title);
}

static void run_size(const struct growth_case *c, int n) {
    struct buffer input = {0};
    c->make(n, &input);
    struct text_span text = {input.data ? input.data : "", input.size};
    if (RUNNING_ON_VALGRIND)
        count_simulated(c, n, text);
    else
        printf("%s %d %llu\n", c->name, n, (unsigned long long)count_native(c, text));
    fflush(stdout);
    buffer_free(&input);
}

static void run_case(const struct growth_case *c, int n) {
    /* Libraries make some things once: here. */
    struct buffer input = {0};
    c->make(1, &input);
    c->run((struct text_span){input.data ? input.data : "", input.size});
    buffer_free(&input);
    if (n > 0) {
        run_size(c, n);
        return;
    }
    for (int i = 0; i < SIZES; i++) run_size(c, c->n << i);
}

int main(int argc, char **argv) {
    int first = 1;
    if (argc > first && strcmp(argv[first], "--seconds") == 0) {
        seconds = true;
        first++;
    }
    const char *wanted = argc > first ? argv[first] : NULL;
    int n = argc > first + 1 ? atoi(argv[first + 1]) : 0, found = 0;
    if (!RUNNING_ON_VALGRIND && !seconds) {
        counter_open();
        if (counter < 0) {
            fprintf(stderr,
                    "growth: the kernel counts no instructions here; run it under callgrind\n");
            return 2;
        }
    }
    for (size_t t = 0; t < ARRAY_COUNT(tables); t++)
        for (size_t i = 0; i < tables[t]->n; i++) {
            const struct growth_case *c = &tables[t]->cases[i];
            if (wanted && strncmp(c->name, wanted, strlen(wanted)) != 0) continue;
            run_case(c, n);
            found++;
        }
    if (found == 0) fprintf(stderr, "growth: no case is named %s\n", wanted);
    return found == 0;
}
