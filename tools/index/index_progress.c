/* tools/index/index_progress.c: how far a build is, on stderr. */
#include <stdio.h>
#include <unistd.h>

#include "tools/index/index.h"

enum { BAR = 24, LINE_SECONDS = 10 };

void progress_start(struct index_progress *p, const struct walk *w) {
    *p = (struct index_progress){
        .terminal = isatty(STDERR_FILENO) == 1, .started = time_now(), .shown = time_now(), .total_files = w->n};
    estimate_start(&p->estimate, p->started);
    for (int i = 0; i < w->n; i++) estimate_expect(&p->estimate, w->files[i].text_bytes);
}

void progress_read(struct index_progress *p, uint64_t expected, uint64_t text_bytes) {
    estimate_read(&p->estimate, expected, text_bytes);
    progress_show(p, false);
}

void progress_read_file(struct index_progress *p, uint64_t expected) {
    p->files++;
    progress_read(p, expected, 0);
}

void progress_embedded(struct index_progress *p, int chunks, uint64_t text_bytes, uint64_t kept_bytes) {
    p->chunks += chunks;
    estimate_kept(&p->estimate, kept_bytes);
    estimate_done(&p->estimate, text_bytes, time_now());
    progress_show(p, false);
}

static void format_time(char *text, size_t size, double seconds) {
    long s = seconds < 359999 ? (long)(seconds + 0.5) : 359999;
    if (s >= 3600)
        snprintf(text, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, size, "%ld:%02ld", s / 60, s % 60);
}

void progress_show(struct index_progress *p, bool last) {
    double now = time_now(), passed = now - p->started;
    double wait = p->terminal ? 0.1 : LINE_SECONDS;
    if (!last && now - p->shown < wait) return;
    p->shown = now;
    double share = estimate_share(&p->estimate), seconds = estimate_left(&p->estimate);
    double rate = passed > 0 ? (double)p->chunks / passed : 0;
    char left[32] = "?", bar[BAR + 1];
    if (seconds >= 0) format_time(left, sizeof left, seconds);
    for (int i = 0; i < BAR; i++) bar[i] = i < (int)(share * BAR) ? '#' : '.';
    bar[BAR] = '\0';
    if (p->terminal)
        fprintf(stderr, "\r[%s] %3.0f %%  %d/%d files  %lld chunks  %.0f/s  ETA %s \033[K", bar, share * 100, p->files,
                p->total_files, (long long)p->chunks, rate, left);
    else
        fprintf(stderr, "%3.0f %%  %d/%d files  %lld chunks  %.0f/s  ETA %s\n", share * 100, p->files, p->total_files,
                (long long)p->chunks, rate, left);
    p->drawn = p->terminal;
    if (last && p->terminal) fputc('\n', stderr);
    if (last) p->drawn = false;
    fflush(stderr);
}

void progress_clear(struct index_progress *p) {
    if (p->drawn) fputs("\r\033[K", stderr);
    p->drawn = false;
}
