/* tests/cuda_host/emulator.cc: runs the threads of a CUDA block as fibers of one CPU thread. See
 * cuda_runtime.h for what it is strict about.
 *
 * A fiber is a stack that is entered once with makecontext and then left and re-entered with
 * __builtin_longjmp, which unlike swapcontext makes no system call. The scheduler takes the ready
 * fibers of a block in an order drawn anew each turn; a fiber runs until it waits or ends. When
 * nobody is ready and nobody can be released, the kernel has a divergent barrier, and the launch
 * fails. */
#include "tests/cuda_host/emulator.h"

#include <cuda_runtime.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <vector>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace {

/* Not a power of two, so that the tops of the stacks do not share a few sets of the cache. */
constexpr size_t STACK_BYTES = (256 << 10) + 17 * 64;
constexpr size_t MAX_THREADS = 1024, WARP = 32;
constexpr size_t SHARED_BYTES = 48 << 10; /* what a block gets without asking the driver for more */
constexpr size_t RED_ZONE = 1 << 10;
constexpr unsigned char UNINITIALISED = 0xff; /* every float type reads it as NaN, int32 as -1 */
constexpr unsigned char RED = 0xa5;

enum class state { ready, barrier, warp, done };

struct pending_copy {
    void *to;
    const void *from;
    size_t bytes;
};

struct fiber {
    void *resume[5]; /* of __builtin_setjmp */
    bool started;    /* whether `resume` is valid */
    enum state state;
    int line;                         /* where it waits */
    int phase;                        /* which of its warp's two sets of values comes next */
    uint3 index;                      /* threadIdx */
    std::vector<pending_copy> copies; /* begun and not waited for */
};

/* Lanes may be one warp operation ahead of each other, never two, so two sets of values suffice. */
struct warp {
    alignas(16) unsigned char values[2][WARP * CUDA_HOST_LANE_BYTES];
    size_t bytes;
    unsigned arrived, mask;
    int line;
};

} // namespace

struct cuda_host_graph {
    std::vector<std::function<void()>> work;
};

namespace {

struct emulator {
    std::recursive_mutex mutex; /* ranks that are threads of one process share the device */
    std::deque<std::function<void()>> queue;
    int global_captures = 0;
    std::set<const void *> loaded; /* kernels that were launched */
    std::map<void *, size_t>
        device; /* allocations: address, bytes between it and the inaccessible page */
    std::map<const void *, size_t> pinned; /* host blocks of cudaMallocHost */
    cudaError_t failed = cudaSuccess;
    char why[200] = "";
    uint64_t seed = 0, launches = 0, lag = 0;

    /* The block that runs. */
    fiber fibers[MAX_THREADS];
    warp warps[MAX_THREADS / WARP];
    unsigned char *stacks = nullptr, *shared_end = nullptr, *shared = nullptr;
    size_t threads = 0, waiting = 0, alive = 0, current = 0;
    int barrier_line = 0;    /* of the threads that wait at a barrier */
    int votes = 0, vote = 0; /* of __syncthreads_or: of those who wait, and the last result */
    void *scheduler[5];
    const std::function<void()> *thread = nullptr;
    const char *broken = nullptr; /* the rule a fiber broke; `why` has the lines */
    void *fake_stack =
        nullptr; /* AddressSanitizer's, of the scheduler, and the scheduler's stack */
    const void *scheduler_stack = nullptr;
    size_t scheduler_bytes = 0;
};

emulator &device() {
    static emulator *e = new emulator(); /* zeroed */
    return *e;
}

/* One of each for every host thread. */
thread_local bool chosen; /* a device */
thread_local cudaError_t latest = cudaSuccess;
thread_local cudaGraph_t capturing; /* takes what the thread enqueues, instead of the queue */
thread_local bool captures_globally;

/* Every function of the runtime returns through here. */
cudaError_t call_result(cudaError_t code) {
    if (code) latest = code;
    return code;
}

size_t page_bytes() { return (size_t)sysconf(_SC_PAGESIZE); }

/* `bytes` whose end is the start of an inaccessible page; the start is a multiple of 64. */
unsigned char *map_guarded(size_t bytes) {
    size_t page = page_bytes(), mapped = (bytes + page - 1) / page * page;
    void *p = mmap(nullptr, mapped + page, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    mprotect((char *)p + mapped, page, PROT_NONE);
    return (unsigned char *)p + mapped - bytes;
}

/* The pages that hold [at, at + bytes). */
void memory_protect(const void *at, size_t bytes, int rights) {
    uintptr_t first = (uintptr_t)at / page_bytes() * page_bytes();
    mprotect((void *)first, (uintptr_t)at + bytes - first, rights);
}

uint64_t random_next(emulator &d) {
    d.seed = d.seed * 6364136223846793005u + 1442695040888963407u;
    return d.seed >> 33;
}

void order_shuffle(emulator &d, std::vector<unsigned> &order) {
    if (d.seed == 0) return;
    for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[random_next(d) % i]);
}

/* Fibers and their scheduler.
 *
 * Before a jump that is instrumented, AddressSanitizer clears its marks of the stack and asks the
 * kernel for the signal stack: two system calls a switch, nine tenths of a test's time. Every frame
 * of a fiber stays as it is while the fiber waits, so there is nothing to clear, and the functions
 * that jump are not instrumented. */
#define JUMPS __attribute__((noinline, no_sanitize_address))

/* Leaves the fiber that runs; returns when the scheduler comes back to it. */
JUMPS void fiber_leave() {
    emulator &d = device();
    fiber &self = d.fibers[d.current];
#ifdef __SANITIZE_ADDRESS__
    void *fake;
    __sanitizer_start_switch_fiber(&fake, d.scheduler_stack, d.scheduler_bytes);
#endif
    if (__builtin_setjmp(self.resume) == 0) __builtin_longjmp(d.scheduler, 1);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake, &d.scheduler_stack, &d.scheduler_bytes);
#endif
}

/* The life of a fiber: one thread after another, in as many blocks as come. */
void fiber_main() {
    emulator &d = device();
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, &d.scheduler_stack, &d.scheduler_bytes);
#endif
    for (;;) {
        (*d.thread)();
        d.fibers[d.current].state = state::done;
        d.alive--;
        fiber_leave();
    }
}

JUMPS void fiber_enter(emulator &d, size_t i) {
    fiber &f = d.fibers[i];
    d.current = i;
    threadIdx = f.index;
    unsigned char *stack = d.stacks + i * STACK_BYTES;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&d.fake_stack, stack, STACK_BYTES);
#endif
    if (__builtin_setjmp(d.scheduler) == 0) {
        if (f.started) __builtin_longjmp(f.resume, 1);
        f.started = true;
        ucontext_t first;
        getcontext(&first);
        first.uc_stack.ss_sp = stack;
        first.uc_stack.ss_size = STACK_BYTES;
        first.uc_link = nullptr;
        makecontext(&first, fiber_main, 0);
        setcontext(&first);
    }
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(device().fake_stack, nullptr, nullptr);
#endif
}

/* The first broken rule of a block; its fibers are given up. */
void break_rule(const char *rule, int line, int other) {
    emulator &d = device();
    if (d.broken == nullptr)
        snprintf(d.why, sizeof d.why, "block (%u, %u, %u), thread %zu, line %d: %s (line %d)",
                 blockIdx.x, blockIdx.y, blockIdx.z, d.current, line, rule, other);
    d.broken = rule;
}

void wait_as(enum state state, int line) {
    emulator &d = device();
    d.fibers[d.current].state = state;
    d.fibers[d.current].line = line;
    fiber_leave();
}

void describe_deadlock(const emulator &d) {
    for (size_t i = 0; i < d.threads; i++) {
        if (d.fibers[i].state == state::done) continue;
        bool barrier = d.fibers[i].state == state::barrier;
        device().current = i;
        break_rule(barrier ? "waits at a barrier that other threads never reach"
                           : "waits for lanes that never reach this warp operation",
                   d.fibers[i].line, d.fibers[i].line);
    }
}

/* One turn lets every ready fiber run until it waits or ends. */
void run_threads(emulator &d, std::vector<unsigned> &order) {
    while (d.alive > 0 && d.broken == nullptr) {
        bool progress = false;
        order_shuffle(d, order);
        for (unsigned i : order) {
            if (d.fibers[i].state != state::ready || d.broken) continue;
            fiber_enter(d, i);
            progress = true;
        }
        if (!progress && d.broken == nullptr) describe_deadlock(d);
    }
}

void prepare_block(emulator &d, size_t shared_bytes) {
    d.waiting = 0;
    d.votes = 0;
    d.alive = d.threads;
    d.broken = nullptr;
    d.shared = d.shared_end - (shared_bytes + 15) / 16 * 16;
    memset(d.shared - RED_ZONE, RED, RED_ZONE);
    memset(d.shared, UNINITIALISED, shared_bytes);
    memset(d.shared + shared_bytes, RED, (size_t)(d.shared_end - d.shared) - shared_bytes);
    for (size_t i = 0; i < d.threads; i++) {
        d.fibers[i].state = state::ready;
        d.fibers[i].phase = 0;
        d.fibers[i].copies.clear();
        unsigned at = (unsigned)i;
        d.fibers[i].index = {at % blockDim.x, at / blockDim.x % blockDim.y,
                             at / blockDim.x / blockDim.y};
    }
    for (warp &w : d.warps) w.arrived = 0;
}

void check_red_zones(emulator &d, size_t shared_bytes) {
    bool intact = true;
    for (const unsigned char *p = d.shared - RED_ZONE; p < d.shared; p++)
        intact = intact && *p == RED;
    for (const unsigned char *p = d.shared + shared_bytes; p < d.shared_end; p++)
        intact = intact && *p == RED;
    if (!intact) break_rule("something was written outside of shared memory", 0, 0);
}

void run_block(emulator &d, size_t shared_bytes, std::vector<unsigned> &order) {
    prepare_block(d, shared_bytes);
    run_threads(d, order);
    if (d.broken == nullptr) check_red_zones(d, shared_bytes);
    if (d.broken == nullptr) return;
    d.failed = cudaErrorLaunchFailure;
    for (fiber &f : d.fibers) f.started = false;
}

void map_block_memory(emulator &d) {
    if (d.stacks) return;
    size_t bytes = STACK_BYTES * MAX_THREADS;
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    unsigned char *shared = map_guarded(SHARED_BYTES + RED_ZONE);
    if (p == MAP_FAILED || shared == nullptr) abort();
    d.stacks = (unsigned char *)p;
    d.shared_end = shared + SHARED_BYTES + RED_ZONE;
}

void run_grid(const cudaLaunchConfig_t &c, const std::function<void()> &thread) {
    emulator &d = device();
    if (d.failed) return;
    map_block_memory(d);
    d.launches++;
    d.thread = &thread;
    gridDim = c.gridDim;
    blockDim = c.blockDim;
    d.threads = (size_t)blockDim.x * blockDim.y * blockDim.z;
    std::vector<unsigned> blocks((size_t)gridDim.x * gridDim.y * gridDim.z), order(d.threads);
    std::iota(blocks.begin(), blocks.end(), 0u);
    std::iota(order.begin(), order.end(), 0u);
    order_shuffle(d, blocks);
    for (unsigned i : blocks) {
        blockIdx = {i % gridDim.x, i / gridDim.x % gridDim.y, i / gridDim.x / gridDim.y};
        run_block(d, c.dynamicSmemBytes, order);
        if (d.failed) return;
    }
}

/* The queue. Device memory is accessible only while it is worked off. */
void work_off(emulator &d) {
    if (d.queue.empty()) return;
    for (auto &region : d.device)
        memory_protect(region.first, region.second, PROT_READ | PROT_WRITE);
    while (!d.queue.empty()) {
        std::function<void()> work = std::move(d.queue.front());
        d.queue.pop_front();
        if (!d.failed) work();
    }
    for (auto &region : d.device) memory_protect(region.first, region.second, PROT_NONE);
}

cudaError_t work_enqueue(std::function<void()> work) {
    emulator &d = device();
    std::lock_guard<std::recursive_mutex> hold(d.mutex);
    if (d.failed) return call_result(d.failed);
    if (capturing)
        capturing->work.push_back(std::move(work));
    else
        d.queue.push_back(std::move(work));
    return cudaSuccess;
}

cudaError_t queue_wait() {
    emulator &d = device();
    std::lock_guard<std::recursive_mutex> hold(d.mutex);
    if (capturing) return call_result(cudaErrorStreamCaptureUnsupported);
    work_off(d);
    return call_result(d.failed);
}

} // namespace

/* Functions that kernels call. */

unsigned char *cuda_host_shared() { return device().shared; }

void __syncthreads(int line) { __syncthreads_or(0, line); }

/* Nobody gets to the next barrier before all have read this one's vote. */
int __syncthreads_or(int predicate, int line) {
    emulator &d = device();
    if (d.waiting == 0) d.barrier_line = line;
    if (d.barrier_line != line)
        break_rule("a barrier while others wait at another", line, d.barrier_line);
    if (d.alive < d.threads) break_rule("a barrier after other threads have ended", line, 0);
    d.votes |= predicate != 0;
    if (d.broken || ++d.waiting < d.threads) {
        wait_as(state::barrier, line);
        return d.vote;
    }
    d.vote = d.votes;
    d.votes = 0;
    d.waiting = 0;
    for (size_t i = 0; i < d.threads; i++) d.fibers[i].state = state::ready;
    return d.vote;
}

const void *cuda_host_gather_bytes(unsigned mask, const void *value, size_t bytes, int line) {
    emulator &d = device();
    size_t lane = d.current % WARP;
    warp &w = d.warps[d.current / WARP];
    int phase = d.fibers[d.current].phase;
    if (d.threads % WARP != 0)
        break_rule("a warp operation in a block of partial warps", line, line);
    if (!(mask >> lane & 1))
        break_rule("a warp operation whose mask leaves out its own lane", line, line);
    if (w.arrived == 0) {
        w.mask = mask;
        w.line = line;
        w.bytes = bytes;
    } else if (w.mask != mask || w.line != line || w.bytes != bytes) {
        break_rule("a warp operation while other lanes are at another", line, w.line);
    }
    memcpy(&w.values[phase][lane * bytes], value, bytes);
    w.arrived |= 1u << lane;
    d.fibers[d.current].phase = 1 - phase;
    if (d.broken || w.arrived != w.mask) {
        wait_as(state::warp, line);
    } else {
        w.arrived = 0;
        for (size_t i = 0; i < WARP; i++)
            if (w.mask >> i & 1) d.fibers[d.current - lane + i].state = state::ready;
    }
    return w.values[phase];
}

void cuda_host_break_rule(const char *rule, int line) { break_rule(rule, line, line); }

void cuda_host_copy_begin(void *shared, const void *global, int bytes, int line) {
    emulator &d = device();
    if (((uintptr_t)shared | (uintptr_t)global) % 16)
        return break_rule("a copy of unaligned addresses", line, line);
    if (bytes < 0 || bytes > 16)
        return break_rule("a copy of less than 0 or more than 16 bytes", line, line);
    memset(shared, UNINITIALISED, 16);
    d.fibers[d.current].copies.push_back({shared, global, (size_t)bytes});
}

void cuda_host_copies_wait() {
    emulator &d = device();
    for (const pending_copy &c : d.fibers[d.current].copies) {
        memset(c.to, 0, 16);
        memcpy(c.to, c.from, c.bytes);
    }
    d.fibers[d.current].copies.clear();
}

/* Functions that tests call. */

void cuda_host_seed(uint64_t seed) {
    std::lock_guard<std::recursive_mutex> hold(device().mutex);
    device().seed = seed;
}

void cuda_host_reset() {
    std::lock_guard<std::recursive_mutex> hold(device().mutex);
    device().failed = cudaSuccess;
    device().queue.clear();
}

void cuda_host_lag(uint64_t times) {
    std::lock_guard<std::recursive_mutex> hold(device().mutex);
    device().lag = times;
}

uint64_t cuda_host_launches() { return device().launches; }

void cuda_host_enqueue(std::function<void()> work) { work_enqueue(std::move(work)); }

/* The runtime. */

const char *cudaGetErrorString(cudaError_t code) {
    switch (code) {
        case cudaSuccess: return "no error";
        case cudaErrorInvalidValue: return "invalid argument";
        case cudaErrorMemoryAllocation: return "out of memory";
        case cudaErrorInvalidConfiguration: return "invalid configuration argument";
        case cudaErrorInsufficientDriver:
            return "CUDA driver version is insufficient for CUDA runtime version";
        case cudaErrorInvalidDevice: return "invalid device ordinal";
        case cudaErrorDeviceUninitialized: return "the thread has chosen no device";
        case cudaErrorNotReady: return "device not ready";
        case cudaErrorStreamCaptureUnsupported:
            return "operation not permitted when stream is capturing";
        case cudaErrorLaunchFailure: return device().why;
    }
    return "unknown";
}

cudaError_t cudaGetLastError() {
    cudaError_t code = latest;
    latest = cudaSuccess;
    return code;
}

cudaError_t cuda_host_launch(const cudaLaunchConfig_t *c, const void *kernel,
                             std::function<void()> thread) {
    emulator &d = device();
    std::lock_guard<std::recursive_mutex> hold(d.mutex);
    size_t threads = (size_t)c->blockDim.x * c->blockDim.y * c->blockDim.z;
    dim3 g = c->gridDim;
    if (threads == 0 || threads > MAX_THREADS || c->dynamicSmemBytes > SHARED_BYTES || g.x == 0 ||
        g.y == 0 || g.z == 0 || g.x > INT32_MAX || g.y > 65535 || g.z > 65535)
        return call_result(cudaErrorInvalidConfiguration);
    if (!chosen) return call_result(cudaErrorDeviceUninitialized);
    if (capturing && d.loaded.count(kernel) == 0)
        return call_result(cudaErrorStreamCaptureUnsupported);
    d.loaded.insert(kernel);
    cudaLaunchConfig_t copy = *c;
    return work_enqueue([copy, thread] { run_grid(copy, thread); });
}

cudaError_t cudaGetDeviceCount(int *n) {
    *n = 1;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) {
    *version = 0;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }

cudaError_t cudaSetDevice(int ordinal) {
    if (ordinal != 0) return call_result(cudaErrorInvalidDevice);
    chosen = true;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int ordinal) {
    *p = cudaDeviceProp();
    snprintf(p->name, sizeof p->name, "emulated device");
    p->totalGlobalMem = (size_t)sysconf(_SC_PHYS_PAGES) * page_bytes();
    p->major = 8;
    p->multiProcessorCount = 1;
    return cudaSetDevice(ordinal);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) {
    *s = nullptr; /* there is one queue, whatever the stream */
    return call_result(chosen ? device().failed : cudaErrorDeviceUninitialized);
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return queue_wait(); }
cudaError_t cudaStreamQuery(cudaStream_t) {
    emulator &d = device();
    std::lock_guard<std::recursive_mutex> hold(d.mutex);
    if (d.lag == 0 || capturing) return queue_wait();
    d.lag--;
    return call_result(cudaErrorNotReady);
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return queue_wait(); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *v, unsigned) {
    *v = nullptr;
    return call_result(chosen ? device().failed : cudaErrorDeviceUninitialized);
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return device().failed; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return queue_wait(); }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode mode) {
    emulator &d = device();
    std::lock_guard<std::recursive_mutex> hold(d.mutex);
    if (capturing) return call_result(cudaErrorStreamCaptureUnsupported);
    capturing = new cuda_host_graph;
    captures_globally = mode == cudaStreamCaptureModeGlobal;
    d.global_captures += captures_globally;
    return call_result(d.failed);
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *out) {
    emulator &d = device();
    std::lock_guard<std::recursive_mutex> hold(d.mutex);
    *out = capturing;
    capturing = nullptr;
    if (*out == nullptr) return call_result(cudaErrorInvalidValue);
    d.global_captures -= captures_globally;
    return call_result(d.failed);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long) {
    *out = new cuda_host_graph(*graph);
    return call_result(chosen ? device().failed : cudaErrorDeviceUninitialized);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
    for (auto &work : exec->work)
        if (cudaError_t code = work_enqueue(work)) return code;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    delete exec;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes) {
    emulator &d = device();
    std::lock_guard<std::recursive_mutex> hold(d.mutex);
    if (d.failed) return call_result(d.failed);
    if (!chosen) return call_result(cudaErrorDeviceUninitialized);
    if (capturing || d.global_captures > 0) return call_result(cudaErrorStreamCaptureUnsupported);
    *out = nullptr;
    if (bytes == 0 || bytes > SIZE_MAX / 2)
        return call_result(bytes ? cudaErrorMemoryAllocation : cudaSuccess);
    size_t rounded = (bytes + 63) / 64 * 64;
    unsigned char *p = map_guarded(rounded);
    if (p == nullptr) return call_result(cudaErrorMemoryAllocation);
    memset(p, UNINITIALISED, rounded);
    memory_protect(p, rounded, PROT_NONE);
    d.device[p] = rounded;
    *out = p;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p) {
    emulator &d = device();
    std::lock_guard<std::recursive_mutex> hold(d.mutex);
    if (capturing) return call_result(cudaErrorStreamCaptureUnsupported);
    work_off(d);
    if (p == nullptr) return call_result(d.failed);
    auto found = d.device.find(p);
    if (found == d.device.end()) return call_result(cudaErrorInvalidValue);
    uintptr_t first = (uintptr_t)p / page_bytes() * page_bytes();
    munmap((void *)first, (uintptr_t)p + found->second - first + page_bytes());
    d.device.erase(found);
    return d.failed;
}

/* The memory of the machine, less what is taken. */
cudaError_t cudaMemGetInfo(size_t *available, size_t *all) {
    emulator &d = device();
    std::lock_guard<std::recursive_mutex> hold(d.mutex);
    size_t taken = 0;
    for (const auto &block : d.device) taken += block.second;
    *all = (size_t)sysconf(_SC_PHYS_PAGES) * page_bytes();
    *available = taken < *all ? *all - taken : 0;
    return d.failed;
}

cudaError_t cudaMallocHost(void **out, size_t bytes) {
    emulator &d = device();
    std::lock_guard<std::recursive_mutex> hold(d.mutex);
    if (capturing || d.global_captures > 0) return call_result(cudaErrorStreamCaptureUnsupported);
    *out = malloc(bytes);
    if (*out == nullptr) return call_result(cudaErrorMemoryAllocation);
    d.pinned[*out] = bytes;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p) {
    emulator &d = device();
    std::lock_guard<std::recursive_mutex> hold(d.mutex);
    work_off(d);
    d.pinned.erase(p);
    free(p);
    return d.failed;
}

/* Whether it lies in memory of cudaMallocHost. */
static bool is_pinned(const emulator &d, const void *p) {
    auto block = d.pinned.upper_bound(p);
    return block != d.pinned.begin() &&
           (--block, (uintptr_t)p < (uintptr_t)block->first + block->second);
}

/* CUDA says that a copy of pageable memory may wait, not that it does. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t) {
    emulator &d = device();
    std::lock_guard<std::recursive_mutex> hold(d.mutex);
    const void *host = kind == cudaMemcpyHostToDevice ? from : to;
    if (capturing && kind != cudaMemcpyDeviceToDevice && !is_pinned(d, host))
        return call_result(cudaErrorStreamCaptureUnsupported);
    return work_enqueue([=] { memcpy(to, from, bytes); });
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t) {
    if (!chosen) return call_result(cudaErrorDeviceUninitialized);
    return work_enqueue([=] { memset(to, value, bytes); });
}

cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t) {
    if (!chosen) return call_result(cudaErrorDeviceUninitialized);
    if (pitch < width) return call_result(cudaErrorInvalidValue);
    return work_enqueue([=] {
        for (size_t i = 0; i < height; i++) memset((char *)to + i * pitch, value, width);
    });
}
