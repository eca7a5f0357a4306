/* kernels/cpu/helper_account.h: whether a helper of the pool is worth its place, from measured
 * seconds. No clock and no thread.
 *
 * A job with helpers is compared with what it takes the caller alone, by the pace of the job's kind
 * when no helper took part. Each helper gains its part of the difference, and costs what the others
 * waited for it. An account keeps the balance over many jobs. The balance has an upper bound, so
 * old merit does not hide that a core was lost. One hiccup after good work has no effect; a helper
 * that costs more than it gains is left out for a few times the loss, and then tried again. Trying
 * takes a bounded share of the time. */
#pragma once

#include "kernels/cpu/pool.h"

/* Seconds: the upper bound of a balance, more than the longest hiccup seen on a quiet shared host
 * (39 ms); rest for each second of loss; the longest rest. */
#define ACCOUNT_MOST 60e-3
#define ACCOUNT_REST 16.0
#define ACCOUNT_REST_MOST 64e-3

struct helper_account {
    double balance;    /* seconds gained less seconds cost, in [0, ACCOUNT_MOST] */
    double rest_until; /* of the caller's clock, in seconds */
};

/* A helper is trusted at first. */
void account_begin(struct helper_account *account);
/* Enters a job that ended at `now`: seconds that the helper gained, and seconds that others waited
 * for it. */
void account_enter(struct helper_account *account, double gained, double waited, double now);
/* Whether the helper is left out of a job that begins at `now`. */
bool account_rests(const struct helper_account *account, double now);
/* Whether the balance is low enough that the gain has to be known well. */
bool account_doubts(const struct helper_account *account);

enum { PACE_KINDS = 64 };

/* The pace of one kind of job: its work, and its size within a factor of two. */
struct job_pace {
    pool_work *work;
    int size;
    int jobs;       /* since the pace was measured */
    double seconds; /* an operation, done by the caller alone; 0 where that was never measured */
};

/* The latest kinds; begins zeroed. */
struct pace_table {
    struct job_pace paces[PACE_KINDS];
};

/* The kind's entry; a new kind takes the place of an old one. `operations` is positive. */
struct job_pace *pace_find(struct pace_table *table, pool_work *work, double operations);
/* Counts a job; true where the pace is unknown, or as old as `most_jobs` jobs. */
bool pace_is_old(struct job_pace *pace, int most_jobs);
/* A job of so many operations took the caller alone so many seconds. */
void pace_set(struct job_pace *pace, double operations, double seconds);
/* The seconds that a job takes the caller alone; `otherwise` where that was never measured. */
double pace_alone(const struct job_pace *pace, double operations, double otherwise);
