/* tools/index/index_progress.c: how far a build is, on stderr. */
#include <stdio.h>
#include <unistd.h>

#include "tools/index/index.h"

enum { BAR = 24, LINE_SECONDS = 10 };

void progress_begin(struct index_progress *progress, const char *unit, int total) {
    *progress = (struct index_progress){.terminal = isatty(STDERR_FILENO) == 1,
                                        .started = time_now(),
                                        .shown = time_now(),
                                        .unit = unit,
                                        .total_files = total};
    estimate_start(&progress->estimate, progress->started);
}

void progress_start(struct index_progress *progress, const struct walk *walk) {
    progress_begin(progress, "files", walk->n);
    for (int i = 0; i < walk->n; i++)
        estimate_expect(&progress->estimate, walk->files[i].text_bytes);
}

void progress_read(struct index_progress *progress, uint64_t expected, uint64_t text_bytes) {
    estimate_read(&progress->estimate, expected, text_bytes);
    progress_show(progress, false);
}

void progress_read_file(struct index_progress *progress, uint64_t expected) {
    progress->files++;
    progress_read(progress, expected, 0);
}

void progress_embedded(struct index_progress *progress, int chunks, uint64_t text_bytes,
                       uint64_t kept_bytes) {
    progress->chunks += chunks;
    estimate_kept(&progress->estimate, kept_bytes);
    estimate_done(&progress->estimate, text_bytes, time_now());
    progress_show(progress, false);
}

static void format_time(char *text, size_t size, double seconds) {
    long s = seconds < 359999 ? (long)(seconds + 0.5) : 359999;
    if (s >= 3600)
        snprintf(text, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, size, "%ld:%02ld", s / 60, s % 60);
}

void progress_show(struct index_progress *progress, bool last) {
    double now = time_now(), passed = now - progress->started;
    double wait = progress->terminal ? 0.1 : LINE_SECONDS;
    if (!last && now - progress->shown < wait) return;
    progress->shown = now;
    double share = estimate_share(&progress->estimate),
           seconds = estimate_left(&progress->estimate);
    double rate = passed > 0 ? (double)progress->fresh / passed : 0;
    char left[32] = "?", bar[BAR + 1];
    if (seconds >= 0) format_time(left, sizeof left, seconds);
    for (int i = 0; i < BAR; i++) bar[i] = i < (int)(share * BAR) ? '#' : '.';
    bar[BAR] = '\0';
    if (progress->terminal)
        fprintf(stderr, "\r[%s] %3.0f %%  %d/%d %s  %lld chunks  %.0f/s  ETA %s \033[K", bar,
                share * 100, progress->files, progress->total_files, progress->unit,
                (long long)progress->chunks, rate, left);
    else
        fprintf(stderr, "%3.0f %%  %d/%d %s  %lld chunks  %.0f/s  ETA %s\n", share * 100,
                progress->files, progress->total_files, progress->unit, (long long)progress->chunks,
                rate, left);
    progress->drawn = progress->terminal;
    if (last && progress->terminal) fputc('\n', stderr);
    if (last) progress->drawn = false;
    fflush(stderr);
}

void progress_clear(struct index_progress *progress) {
    if (progress->drawn) fputs("\r\033[K", stderr);
    progress->drawn = false;
}
