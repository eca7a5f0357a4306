/* kernels/comm/comm_watch.h: ranks that are processes watch each other, over connections of their
 * own and by a thread of their own. So a rank that computes or waits is told from one that has
 * ended or cannot be reached, and all ranks learn one reason for the end: that of whoever noticed
 * first.
 *
 * Each rank says to each other several times within the time limit that it is there, and for whom
 * it waits. */
#pragma once

#include "kernels/comm/comm.h"

enum { RANK_NAME = 160, WATCH_NOBODY = 255 };

struct rank_watch;

struct watched_ranks {
    int rank, size; /* this rank, and how many there are */
    const int
        *sockets; /* [size] to the others, which become the watch's; -1 at this rank's own place */
    const char (*names)[RANK_NAME]; /* [size], "rank 1 on b (10.0.0.2)"; stay the caller's */
    double timeout;                 /* seconds */
};

/* A rank that says nothing for three quarters of the timeout, 3 seconds at least, cannot be
 * reached. Time in which this process was stopped does not count. */
enum status watch_open(struct rank_watch **out, const struct watched_ranks *ranks, struct error *e);
/* True when a rank is lost, has failed, or this one has. Any thread may ask, at any time. */
bool watch_failed(const struct rank_watch *watch);
/* Why; STATUS_OK when nothing has failed. Waits up to `seconds` for the reason to come. */
enum status watch_outcome(struct rank_watch *watch, double seconds, struct error *e);
/* As watch_outcome. A rank that has left without failure counts as gone, and this is a failure that
 * the others are told: else this rank left as the other did, and a third could not tell who was
 * first. */
enum status watch_check(struct rank_watch *watch, struct error *e);
/* Tells the other ranks that this one has failed. *why becomes an earlier reason, where there is
 * one. */
void watch_fail(struct rank_watch *watch, struct error *why);
/* For whom this rank waits, or WATCH_NOBODY. */
void watch_wait(struct rank_watch *watch, int whom);
/* For whom all wait in the end, when this rank waits for `whom`: the one that itself waits for
 * nobody. */
int watch_culprit(struct rank_watch *watch, int whom);
/* Says goodbye to the others, and ends. */
void watch_close(struct rank_watch *watch);
