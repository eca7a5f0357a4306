/* kernels/cpu/backend.c: the CPU device: its table, memory, and the choice of vector kernels and
 * threads. */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "config/base/memory.h"
#include "kernels/cpu/cpu.h"

/* Larger blocks are aligned to and advised as huge pages: streaming weights through 4 KB pages
 * costs TLB misses. */
enum { HUGE_PAGE = 2 << 20, WORTH_A_CHECK = 64 << 20 };

static size_t memory_available(void) {
    struct memory memory;
    memory_read(&memory, "");
    return memory.available;
}

/* Bytes that the process has taken since it looked how many there are, and how many it may take
 * before it looks again. */
static struct { atomic_size_t taken, allowed; } since;

/* Linux promises memory it does not have and kills the process that uses it, so a large block is
 * refused here, and so is a small one that comes when many have left no room for it. */
static bool may_take(size_t bytes) {
    bool few = bytes < WORTH_A_CHECK &&
               atomic_fetch_add(&since.taken, bytes) + bytes <= atomic_load(&since.allowed);
    if (few) return true;
    size_t available = memory_available();
    if (bytes > available) return false;
    atomic_store(&since.taken, bytes);
    atomic_store(&since.allowed, available / 8);
    return true;
}

void *cpu_reserve(size_t bytes) {
    size_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : 64, rounded;
    if (add_overflows(bytes == 0 ? 1 : bytes, alignment - 1, &rounded)) return NULL;
    if (!may_take(bytes)) return NULL;
    rounded -= rounded % alignment;
    void *p = aligned_alloc(alignment, rounded);
    if (p == NULL) return NULL;
    if (alignment == HUGE_PAGE)
        madvise(p, rounded, MADV_HUGEPAGE); /* advice: without huge pages it is only slower */
    return p;
}

struct clearing {
    char *data;
    size_t bytes;
};

static void clear_piece(const void *context, int piece, int thread) {
    (void)thread;
    const struct clearing *clearing = context;
    size_t at = (size_t)piece * HUGE_PAGE, left = clearing->bytes - at;
    memset(clearing->data + at, 0, left < HUGE_PAGE ? left : HUGE_PAGE);
}

/* Memory that is used is there from the start, and no op waits for a page: all threads clear it,
 * page after page. */
static void *cpu_alloc(struct backend *backend, size_t bytes) {
    struct clearing clearing = {.data = cpu_reserve(bytes), .bytes = bytes};
    size_t pieces = bytes / HUGE_PAGE + (bytes % HUGE_PAGE != 0);
    if (clearing.data == NULL || pieces > INT_MAX) {
        free(clearing.data);
        return NULL;
    }
    cpu_run(backend, (double)bytes, (int)pieces, clear_piece, &clearing);
    return clearing.data;
}

static void cpu_release(struct backend *backend, void *p) {
    (void)backend;
    free(p);
}

static size_t cpu_available(struct backend *backend) {
    (void)backend;
    return memory_available();
}

static void cpu_copy_in(struct backend *backend, void *device, const void *host, size_t bytes) {
    (void)backend;
    if (bytes) memcpy(device, host, bytes);
}

static void cpu_copy_out(struct backend *backend, void *host, const void *device, size_t bytes) {
    (void)backend;
    if (bytes) memcpy(host, device, bytes);
}

/* Ops run as they are called, so there is nothing to wait for. */
static enum status cpu_sync(struct backend *backend, struct error *e) {
    enum status status = backend->error.status;
    if (status && e != NULL) *e = backend->error;
    backend->error = (struct error){.status = STATUS_OK};
    return status;
}

static void cpu_close(struct backend *backend) {
    struct cpu *cpu = cpu_of(backend);
    pool_close(cpu->pool);
    free(cpu->scratch);
    free(cpu->inputs);
    free(cpu);
}

static const char *cpu_describe(const struct backend *backend) {
    return cpu_of(backend)->description;
}

static uint64_t cpu_fetched_bytes(const struct backend *backend) {
    return atomic_load(&cpu_of(backend)->fetched);
}

#define CPU_COLUMN(name) .name = cpu_##name,
static const struct backend_ops cpu_ops = {.name = "cpu",
                                           .describe = cpu_describe,
                                           .alloc = cpu_alloc,
                                           .release = cpu_release,
                                           .available = cpu_available,
                                           .upload = cpu_copy_in,
                                           .download = cpu_copy_out,
                                           .sync = cpu_sync,
                                           .close = cpu_close,
                                           .pack = cpu_pack,
                                           .packed_layout = CPU_PACKED_LAYOUT,
                                           .packed_bytes = cpu_packed_bytes,
                                           .fetched_bytes = cpu_fetched_bytes,
                                           BACKEND_OPERATIONS(CPU_COLUMN)};

/* The best variant this CPU runs, or the one RETRO_CPU names, NULL when that cannot be: tests run
 * all of them on one machine. */
static const struct cpu_kernels *choose_kernels(struct error *e) {
    const char *forced = getenv("RETRO_CPU");
    for (int i = 0; cpu_variants[i] != NULL; i++) {
        if (forced != NULL && strcmp(forced, cpu_variants[i]->name) != 0) continue;
        if (cpu_supports(cpu_variants[i])) return cpu_variants[i];
        if (forced == NULL) continue;
        error_set(e, STATUS_UNSUPPORTED, "RETRO_CPU=%s: this CPU lacks the instructions; unset it",
                  forced);
        return NULL;
    }
    for (int i = 0; cpu_variant_names[i] != NULL; i++)
        if (strcmp(forced, cpu_variant_names[i]) == 0) {
            error_set(e, STATUS_UNSUPPORTED,
                      "RETRO_CPU=%s: this build has no kernels for it (CPU=generic, or another "
                      "machine's)",
                      forced);
            return NULL;
        }
    error_set(e, STATUS_INVALID,
              "RETRO_CPU=%.40s: expected generic, avx2, avxvnni, avx512, avx512vnni, avx512bf16, "
              "amx, neon, dotprod, i8mm or bf16, or unset",
              forced);
    return NULL;
}

static int threads_available(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1; /* more CPUs than a cpu_set_t holds: ask for --threads */
    return max_int(1, CPU_COUNT(&set));
}

enum status cpu_open(struct backend *backend, const struct backend_options *options,
                     struct error *e) {
    int threads = options == NULL || options->threads == 0 ? threads_available() : options->threads;
    if (threads < 1 || threads > CPU_MAX_THREADS)
        return error_set(e, STATUS_INVALID, "cpu: %d threads asked for, expected 0 (all) to %d",
                         threads, CPU_MAX_THREADS);
    struct error why;
    const struct cpu_kernels *kernels = choose_kernels(&why);
    if (kernels == NULL) return error_set(e, why.status, "%s", why.text);
    struct cpu *cpu = xcalloc(1, sizeof *cpu);
    cpu->kernels = kernels;
    cpu->threads = threads;
    backend->device = cpu;
    enum status status = pool_open(&cpu->pool, threads, e);
    if (status == STATUS_OK) {
        cpu->scratch = cpu_alloc(backend, (size_t)threads * sizeof *cpu->scratch);
        cpu->inputs = cpu_alloc(backend, INPUT_BYTES);
        if (cpu->scratch == NULL || cpu->inputs == NULL)
            status = error_set(e, STATUS_NO_MEMORY, "cpu: no memory for the scratch of %d threads",
                               threads);
    }
    if (status) {
        cpu_close(backend);
        return status;
    }
    snprintf(cpu->description, sizeof cpu->description, "cpu %s, %d thread%s", kernels->name,
             threads, threads == 1 ? "" : "s");
    backend->ops = &cpu_ops;
    return STATUS_OK;
}
