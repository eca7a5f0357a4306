/* kernels/cpu/fetch.c: asks the system for the pages of experts. See fetch.h. */
#include "kernels/cpu/fetch.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Linux reads no more for one MADV_WILLNEED than the device's read_ahead_kb or max_sectors_kb,
 * whichever is larger, and leaves out the rest without a word. 128 KB is the usual read_ahead_kb.
 */
enum { WINDOW_BYTES = 128 << 10, SECTOR_BYTES = 512 };

/* The system counts the sectors that this program has the disk read, by advice or at a page that is
 * not there: with little memory it drops advice. */
static unsigned long long sectors_read(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (unsigned long long)usage.ru_inblock : 0;
}

void expert_fetch_begin(struct expert_fetch *fetch, const struct experts_args *args) {
    int k = args->routes.cols / 2;
    *fetch = (struct expert_fetch){.args = args, .sectors = sectors_read()};
    for (int i = 0; i < args->x.rows; i++) {
        const float *numbers = row_f32(args->routes, i) + k;
        for (int j = 0; j < k; j++) fetch->used[(int)numbers[j]] = true;
    }
}

/* Asks for the pages in which a matrix lies. It is advice: a page that the system does not bring is
 * read when the product comes to it. */
static void ask_for(const struct weight *weight) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)weight->data % page,
           bytes = before + cpu_packed_bytes(weight);
    char *first = (char *)weight->data - before;
    for (size_t at = 0; at < bytes; at += WINDOW_BYTES)
        madvise(first + at, bytes - at < WINDOW_BYTES ? bytes - at : WINDOW_BYTES, MADV_WILLNEED);
}

static size_t expert_bytes(const struct experts_args *args, int expert) {
    return cpu_packed_bytes(&args->fc1[expert]) + cpu_packed_bytes(&args->fc2[expert]);
}

void expert_fetch_advance(struct expert_fetch *fetch, int expert) {
    const struct experts_args *args = fetch->args;
    for (; fetch->next < args->n_experts && fetch->ahead < FETCH_AHEAD_BYTES; fetch->next++) {
        if (!fetch->used[fetch->next]) continue;
        ask_for(&args->fc1[fetch->next]);
        ask_for(&args->fc2[fetch->next]);
        fetch->ahead += expert_bytes(args, fetch->next);
    }
    if (fetch->used[expert]) fetch->ahead -= expert_bytes(args, expert);
}

void expert_fetch_end(const struct expert_fetch *fetch, struct backend *backend) {
    unsigned long long read = sectors_read() - fetch->sectors;
    atomic_fetch_add(&cpu_of(backend)->fetched, read * SECTOR_BYTES);
}
