/* tools/index/index_progress.c: how far a build is, on stderr. The share done is counted in bytes of files, which are
 * known before anything is read; the rate in chunks, which are what takes the time. */
#include <stdio.h>
#include <unistd.h>

#include "tools/index/index.h"

enum { BAR = 24, LINE_SECONDS = 10 };

void progress_start(struct progress *p, int total_files, uint64_t total_bytes) {
    *p = (struct progress){.terminal = isatty(STDERR_FILENO) == 1,
                           .started = time_now(),
                           .total_files = total_files,
                           .total_bytes = total_bytes};
    p->shown = p->started;
}

static void format_time(char *text, size_t size, double seconds) {
    long s = seconds < 359999 ? (long)(seconds + 0.5) : 359999;
    if (s >= 3600)
        snprintf(text, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, size, "%ld:%02ld", s / 60, s % 60);
}

void progress_show(struct progress *p, bool last) {
    double now = time_now(), passed = now - p->started;
    double wait = p->terminal ? 0.1 : LINE_SECONDS;
    if (!last && now - p->shown < wait) return;
    p->shown = now;
    double share = p->total_bytes ? (double)p->bytes / (double)p->total_bytes : 1;
    double rate = passed > 0 ? (double)p->chunks / passed : 0;
    char left[32] = "?", bar[BAR + 1];
    if (share > 0) format_time(left, sizeof left, passed * (1 - share) / share);
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

void progress_clear(struct progress *p) {
    if (p->drawn) fputs("\r\033[K", stderr);
    p->drawn = false;
}
