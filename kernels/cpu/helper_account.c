/* kernels/cpu/helper_account.c: accounts of helpers and paces of jobs. See helper_account.h. */
#include "kernels/cpu/helper_account.h"

#include <math.h>

void account_begin(struct helper_account *a) { *a = (struct helper_account){.balance = ACCOUNT_MOST / 2}; }

void account_enter(struct helper_account *a, double gained, double waited, double now) {
    a->balance = fmin(ACCOUNT_MOST, a->balance + gained - waited);
    if (a->balance >= 0) return;
    a->rest_until = now + fmin(ACCOUNT_REST_MOST, -a->balance * ACCOUNT_REST);
    a->balance = 0;
}

bool account_rests(const struct helper_account *a, double now) { return now < a->rest_until; }

bool account_doubts(const struct helper_account *a) { return a->balance < ACCOUNT_MOST / 2; }

struct job_pace *pace_find(struct pace_table *t, pool_work *work, double operations) {
    int size = ilogb(operations);
    size_t hash = ((uintptr_t)work >> 4) * 31 + (size_t)size;
    struct job_pace *p = &t->paces[hash % PACE_KINDS];
    if (p->work != work || p->size != size) *p = (struct job_pace){.work = work, .size = size};
    return p;
}

bool pace_is_old(struct job_pace *p, int most_jobs) {
    p->jobs++;
    return p->seconds <= 0 || p->jobs >= most_jobs;
}

void pace_set(struct job_pace *p, double operations, double seconds) {
    p->seconds = seconds / operations;
    p->jobs = 0;
}

double pace_alone(const struct job_pace *p, double operations, double otherwise) {
    return p->seconds > 0 ? p->seconds * operations : otherwise;
}
