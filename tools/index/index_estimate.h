/* tools/index/index_estimate.h: how much of a build is done and how long the rest takes. Embedding
 * takes the time, and it takes it by bytes of text. How much text a file holds is a guess until the
 * file is read; the guesses for the rest are corrected by how good the guesses so far were. */
#pragma once

#include <stdint.h>

/* Zero-initialise. Bytes are double: they are added up, divided and never indexed with. */
struct index_estimate {
    double expected;            /* guesses for files that are not read yet */
    double guessed, text;       /* files that were read: the guesses, and the bytes of their text */
    double waiting, done;       /* bytes of text that were read: not embedded yet, embedded */
    double last;                /* when, in seconds */
    double recent, recent_time; /* bytes and seconds of about the last minute */
    double shown;               /* the share never goes back */
};

void estimate_start(struct index_estimate *estimate, double now);
/* A file that will be read. */
void estimate_expect(struct index_estimate *estimate, uint64_t guess);
/* It has been read. text_bytes is 0 for one that is skipped or a copy. */
void estimate_read(struct index_estimate *estimate, uint64_t guess, uint64_t text_bytes);
/* Text that was read has been embedded. */
void estimate_done(struct index_estimate *estimate, uint64_t text_bytes, double now);
/* Text that was read is done, and took no time: it says nothing of how long the rest takes. */
void estimate_kept(struct index_estimate *estimate, uint64_t text_bytes);
/* 0 .. 1, never less than before. */
double estimate_share(struct index_estimate *estimate);
/* Seconds; -1 while nothing has been embedded. */
double estimate_left(const struct index_estimate *estimate);
