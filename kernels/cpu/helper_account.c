/* kernels/cpu/helper_account.c: accounts of helpers and paces of jobs. See helper_account.h. */
#include "kernels/cpu/helper_account.h"

#include <math.h>

void account_begin(struct helper_account *account) {
    *account = (struct helper_account){.balance = ACCOUNT_MOST / 2};
}

void account_enter(struct helper_account *account, double gained, double waited, double now) {
    account->balance = fmin(ACCOUNT_MOST, account->balance + gained - waited);
    if (account->balance >= 0) return;
    account->rest_until = now + fmin(ACCOUNT_REST_MOST, -account->balance * ACCOUNT_REST);
    account->balance = 0;
}

bool account_rests(const struct helper_account *account, double now) {
    return now < account->rest_until;
}

bool account_doubts(const struct helper_account *account) {
    return account->balance < ACCOUNT_MOST / 2;
}

struct job_pace *pace_find(struct pace_table *table, pool_work *work, double operations) {
    int size = ilogb(operations);
    size_t hash = ((uintptr_t)work >> 4) * 31 + (size_t)size;
    struct job_pace *pace = &table->paces[hash % PACE_KINDS];
    if (pace->work != work || pace->size != size)
        *pace = (struct job_pace){.work = work, .size = size};
    return pace;
}

bool pace_is_old(struct job_pace *pace, int most_jobs) {
    pace->jobs++;
    return pace->seconds <= 0 || pace->jobs >= most_jobs;
}

void pace_set(struct job_pace *pace, double operations, double seconds) {
    pace->seconds = seconds / operations;
    pace->jobs = 0;
}

double pace_alone(const struct job_pace *pace, double operations, double otherwise) {
    return pace->seconds > 0 ? pace->seconds * operations : otherwise;
}
