/* kernels/cpu/fetch.c: asks the system for the pages of experts. See fetch.h. */
#include "kernels/cpu/fetch.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "config/base/base.h"

/* Linux reads no more for one MADV_WILLNEED than the device's read_ahead_kb or max_sectors_kb,
 * whichever is larger, and leaves out the rest without a word. 128 KB is the usual read_ahead_kb.
 */
enum { WINDOW_BYTES = 128 << 10, SECTOR_BYTES = 512 };

/* Pages that are looked at in one call. */
enum { VIEW_PAGES = 1024 };

/* Pages that the program waits for in a call whose experts seem to be in memory, from which on the
 * system is taken to hide which pages there are. Fewer may have been taken back meanwhile. */
enum { FAULTS_OF_HIDDEN = 16 };

/* The system counts the sectors that this program has the disk read, by advice or at a page that is
 * not there. */
static struct fetch_counts count_reads(void) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return (struct fetch_counts){0};
    return (struct fetch_counts){.sectors = (unsigned long long)usage.ru_inblock,
                                 .faults = (unsigned long long)usage.ru_majflt};
}

/* It is advice: a page that the system does not bring is read when the product comes to it. */
static void ask_for_range(struct cpu *cpu, char *first, size_t bytes) {
    for (size_t at = 0; at < bytes; at += WINDOW_BYTES) {
        size_t n = bytes - at < WINDOW_BYTES ? bytes - at : WINDOW_BYTES;
        if (madvise(first + at, n, MADV_WILLNEED) == 0) continue;
        int reason = errno;
        if (!atomic_exchange(&cpu->advice_refused, true))
            log_warn("experts cannot be read ahead, each of their pages is waited for: madvise: %s",
                     strerror(reason));
    }
}

/* Says of n pages whether memory holds them. Advice for pages that are there costs 18 ns a page,
 * and this 0.5 ns. Of a file that is neither the user's own nor writable Linux says that all are
 * there. A system that refuses to say hides them too. */
static void view_pages(struct cpu *cpu, char *first, size_t bytes,
                       unsigned char there[VIEW_PAGES]) {
    if (!atomic_load(&cpu->pages_hidden) && mincore(first, bytes, there) == 0) return;
    atomic_store(&cpu->pages_hidden, true);
    memset(there, 0, VIEW_PAGES);
}

/* Asks for those of n pages that memory does not hold, each stretch of them at once; their bytes.
 */
static size_t ask_for_missing(struct cpu *cpu, char *first, size_t page, size_t n) {
    unsigned char there[VIEW_PAGES];
    size_t missing = 0;
    view_pages(cpu, first, n * page, there);
    for (size_t i = 0; i < n; i++) {
        if (there[i] & 1) continue;
        size_t begin = i;
        while (i < n && !(there[i] & 1)) i++;
        ask_for_range(cpu, first + begin * page, (i - begin) * page);
        missing += (i - begin) * page;
    }
    return missing;
}

/* The pages in which a matrix lies. */
static size_t ask_for_matrix(struct cpu *cpu, const struct weight *weight) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)weight->data % page,
           pages = (before + cpu_packed_bytes(weight) + page - 1) / page, missing = 0;
    char *first = (char *)weight->data - before;
    for (size_t at = 0; at < pages; at += VIEW_PAGES) {
        size_t n = pages - at < VIEW_PAGES ? pages - at : VIEW_PAGES;
        missing += ask_for_missing(cpu, first + at * page, page, n);
    }
    return missing;
}

static size_t ask_for_expert(const struct expert_fetch *fetch, int expert) {
    return ask_for_matrix(fetch->cpu, &fetch->args->fc1[expert]) +
           ask_for_matrix(fetch->cpu, &fetch->args->fc2[expert]);
}

static size_t expert_bytes(const struct experts_args *args, int expert) {
    return cpu_packed_bytes(&args->fc1[expert]) + cpu_packed_bytes(&args->fc2[expert]);
}

static void ask_ahead(struct expert_fetch *fetch) {
    const struct experts_args *args = fetch->args;
    for (; fetch->next < args->n_experts && fetch->ahead < FETCH_AHEAD_BYTES; fetch->next++) {
        if (!fetch->used[fetch->next]) continue;
        fetch->missing += ask_for_expert(fetch, fetch->next);
        fetch->ahead += expert_bytes(args, fetch->next);
    }
}

void expert_fetch_begin(struct expert_fetch *fetch, struct backend *backend,
                        const struct experts_args *args) {
    int k = args->routes.cols / 2;
    *fetch = (struct expert_fetch){.args = args, .cpu = cpu_of(backend), .before = count_reads()};
    for (int i = 0; i < args->x.rows; i++) {
        const float *numbers = row_f32(args->routes, i) + k;
        for (int j = 0; j < k; j++) fetch->used[(int)numbers[j]] = true;
    }
    ask_ahead(fetch);
}

bool expert_fetch_has_all(const struct expert_fetch *fetch) {
    return fetch->next == fetch->args->n_experts && fetch->missing == 0;
}

/* With little memory the system drops advice without a word, and takes pages back before they are
 * used. Pages that nobody can see show it by waiting for them. */
static bool may_lose_pages(const struct expert_fetch *fetch) {
    if (!atomic_load(&fetch->cpu->pages_hidden)) return fetch->missing > 0;
    return count_reads().faults > fetch->before.faults;
}

/* An expert is asked for again when its turn has come. */
void expert_fetch_advance(struct expert_fetch *fetch, int expert) {
    ask_ahead(fetch);
    if (!fetch->used[expert]) return;
    if (may_lose_pages(fetch)) ask_for_expert(fetch, expert);
    fetch->ahead -= expert_bytes(fetch->args, expert);
}

void expert_fetch_end(const struct expert_fetch *fetch) {
    struct fetch_counts now = count_reads();
    unsigned long long read = now.sectors - fetch->before.sectors,
                       faults = now.faults - fetch->before.faults;
    atomic_fetch_add(&fetch->cpu->fetched, read * SECTOR_BYTES);
    if (fetch->missing == 0 && faults >= FAULTS_OF_HIDDEN)
        atomic_store(&fetch->cpu->pages_hidden, true);
}
