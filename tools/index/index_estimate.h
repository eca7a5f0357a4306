/* tools/index/index_estimate.h: how much of a build is done and how long the rest takes. Embedding takes the time, and
 * it takes it by bytes of text. A file's text is known once the file is read; until then it is estimated from the
 * file's bytes and from what files of its kind gave so far. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { ESTIMATE_KINDS = 8 };

/* Zero-initialise. Bytes are double: they are added up, divided and never indexed with. */
struct estimate {
    struct {
        double prior;      /* bytes of text for a byte of file, before any was read; 0: 1 */
        double expected;   /* bytes of files not read yet */
        double file, text; /* bytes of files read, and of their text */
    } kinds[ESTIMATE_KINDS];
    double waiting, done;       /* bytes of text that were read: not embedded yet, embedded */
    double last;                /* when, in seconds */
    double recent, recent_time; /* bytes and seconds of about the last minute */
    double shown;               /* the share never goes back */
};

void estimate_start(struct estimate *t, double now);
/* What files of a kind are taken to give until some were read. */
void estimate_set_prior(struct estimate *t, int kind, double text_per_byte);
/* A file that will be read. The kind is any number below ESTIMATE_KINDS. */
void estimate_expect(struct estimate *t, int kind, uint64_t file_bytes);
/* It has been read. text_bytes is 0 for one that is skipped or a copy. */
void estimate_read(struct estimate *t, int kind, uint64_t file_bytes, uint64_t text_bytes);
/* Text that was read has been embedded. */
void estimate_done(struct estimate *t, uint64_t text_bytes, double now);
/* 0 .. 1, never less than before. */
double estimate_share(struct estimate *t);
/* Seconds; -1 while nothing has been embedded. */
double estimate_left(const struct estimate *t);
