/* tests/cuda/test_emulator.cc: the emulated device runs right kernels right and notices each kind
 * of wrong one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/mma.cuh"
#include "tests/cuda_host/emulator.h"

namespace {

struct arguments {
    int *out;
    int n;
    int unused = 0;
};

/* Device memory that kernels write and the host reads back. */
struct device_ints {
    int *data = nullptr;
    size_t n;
    explicit device_ints(size_t count) : n(count) { cudaMalloc((void **)&data, n * sizeof(int)); }
    ~device_ints() { cudaFree(data); }
    std::vector<int> read() {
        std::vector<int> host(n);
        cudaMemcpyAsync(host.data(), data, n * sizeof(int), cudaMemcpyDeviceToHost, nullptr);
        cudaStreamSynchronize(nullptr);
        return host;
    }
};

cudaError_t run(void (*kernel)(arguments), dim3 grid, unsigned block, size_t shared, arguments a) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(block);
    config.dynamicSmemBytes = shared;
    cudaError_t code = cudaLaunchKernelEx(&config, kernel, a);
    return code ? code : cudaStreamSynchronize(nullptr);
}

/* The launch fails and says `words`; the device is usable again afterwards. */
void assert_noticed(void (*kernel)(arguments), unsigned block, size_t shared, const char *words) {
    for (uint64_t seed = 0; seed < 4; seed++) {
        cuda_host_seed(seed);
        device_ints out(1024);
        assert_int_equal(run(kernel, 1, block, shared, {out.data, 1}), cudaErrorLaunchFailure);
        if (!strstr(cudaGetErrorString(cudaErrorLaunchFailure), words))
            fail_msg("\"%s\" does not say \"%s\"", cudaGetErrorString(cudaErrorLaunchFailure),
                     words);
        assert_int_equal(cudaStreamSynchronize(nullptr), cudaErrorLaunchFailure);
        cuda_host_reset();
        assert_int_equal(cudaStreamSynchronize(nullptr), cudaSuccess);
    }
}

/* Right kernels */

void reverse_kernel(arguments a) {
    DYNAMIC_SHARED(memory);
    int *values = (int *)memory, i = (int)threadIdx.x, n = (int)blockDim.x;
    int *out = a.out + blockIdx.x * blockDim.x;
    values[i] = i + (int)blockIdx.x;
    __syncthreads();
    out[i] = values[n - 1 - i];
    __syncthreads();
    values[i] = out[i];
    __syncthreads();
    out[i] += values[n - 1 - i];
}

void test_barriers(void **) {
    for (uint64_t seed = 0; seed < 5; seed++) {
        cuda_host_seed(seed);
        for (unsigned block : {1u, 7u, 32u, 256u, 1024u}) {
            device_ints out(block * 3);
            assert_int_equal(run(reverse_kernel, 3, block, block * sizeof(int), {out.data, 0}),
                             cudaSuccess);
            std::vector<int> found = out.read();
            for (size_t i = 0; i < found.size(); i++)
                assert_int_equal(found[i], (int)block - 1 + 2 * (int)(i / block));
        }
    }
}

void warp_kernel(arguments a) {
    int lane = (int)threadIdx.x % WARP, value = (int)threadIdx.x;
    int *out = a.out + 5 * threadIdx.x;
    out[0] = __shfl_xor_sync(ALL_LANES, value, 5);
    out[1] = __shfl_up_sync(ALL_LANES, value, 3);
    out[2] = __shfl_down_sync(ALL_LANES, value, 30);
    out[3] = __shfl_sync(ALL_LANES, value, 9) + (int)__ballot_sync(ALL_LANES, lane % 3 == 0);
    out[4] = warp_sum(value);
}

void test_warp_operations(void **) {
    unsigned thirds = 0;
    for (int lane = 0; lane < WARP; lane += 3) thirds |= 1u << lane;
    for (uint64_t seed = 0; seed < 5; seed++) {
        cuda_host_seed(seed);
        device_ints out(5 * 96);
        assert_int_equal(run(warp_kernel, 1, 96, 0, {out.data, 0}), cudaSuccess);
        std::vector<int> found = out.read();
        for (int i = 0; i < 96; i++) {
            int lane = i % WARP, first = i - lane;
            const int *row = &found[5 * (size_t)i];
            assert_int_equal(row[0], first + (lane ^ 5));
            assert_int_equal(row[1], lane >= 3 ? i - 3 : i);
            assert_int_equal(row[2], lane < 2 ? i + 30 : i);
            assert_int_equal(row[3], first + 9 + (int)thirds);
            assert_int_equal(row[4], 32 * first + 496);
        }
    }
}

void sum_kernel(arguments a) {
    DYNAMIC_SHARED(memory);
    int sum = block_sum((int)threadIdx.x, (int *)memory);
    if (sum == (int)(blockDim.x * (blockDim.x - 1) / 2)) atomicAdd(a.out, 1);
}

void test_block_sum_and_atomics(void **) {
    device_ints out(1);
    cudaMemsetAsync(out.data, 0, sizeof(int), nullptr);
    for (uint64_t seed = 0; seed < 5; seed++) {
        cuda_host_seed(seed);
        assert_int_equal(run(sum_kernel, dim3(2, 3, 2), 256, 8 * sizeof(int), {out.data, 0}),
                         cudaSuccess);
    }
    assert_int_equal(out.read()[0], 5 * 12 * 256);
}

void vote_kernel(arguments a) {
    int found = 0;
    for (int i = 0; i < 6; i++) found |= __syncthreads_or(i % 2 && (int)threadIdx.x == 11 * i) << i;
    a.out[threadIdx.x] = found;
}

void test_votes(void **) {
    for (uint64_t seed = 0; seed < 5; seed++) {
        cuda_host_seed(seed);
        device_ints out(64);
        assert_int_equal(run(vote_kernel, 1, 64, 0, {out.data, 0}), cudaSuccess);
        for (int found : out.read()) assert_int_equal(found, 1 << 1 | 1 << 3 | 1 << 5);
    }
}

/* Matrices: small integers, so that every product and sum is exact in any order and type. */

int left(int i, int k) { return (5 * i + 3 * k) % 31 - 15; }
int right(int k, int j) { return (7 * k + 11 * j) % 29 - 14; }

/* Fills the fragments as mma.cuh sets them out, and puts C back as a matrix. */
template <enum dtype T>
void product_kernel(arguments a) {
    int g = (int)threadIdx.x % WARP / 4, t = (int)threadIdx.x % 4;
    unsigned fragment[4], other[2];
    float c[4];
    for (int r = 0; r < 4; r++) {
        int i = g + r % 2 * 8, k = 2 * t + r / 2 * 8;
        fragment[r] = halves_pack<T>((float)left(i, k), (float)left(i, k + 1));
        if (r < 2)
            other[r] =
                halves_pack<T>((float)right(2 * t + 8 * r, g), (float)right(2 * t + 8 * r + 1, g));
        c[r] = (float)((g + r / 2 * 8) * 8 + 2 * t + r % 2);
    }
    mma_16x8x16<T>(c, fragment, other[0], other[1]);
    int *out = a.out + (int)threadIdx.x / WARP * 128;
    for (int r = 0; r < 4; r++) out[(g + r / 2 * 8) * 8 + 2 * t + r % 2] = (int)c[r];
}

void test_products(void **) {
    void (*const kernels[])(arguments) = {product_kernel<DTYPE_BF16>, product_kernel<DTYPE_F16>};
    for (auto kernel : kernels)
        for (uint64_t seed = 0; seed < 3; seed++) {
            cuda_host_seed(seed);
            device_ints out(256);
            assert_int_equal(run(kernel, 1, 64, 0, {out.data, 0}), cudaSuccess);
            std::vector<int> found = out.read();
            for (int at = 0; at < 256; at++) {
                int i = at % 128 / 8, j = at % 8, expected = at % 128;
                for (int k = 0; k < 16; k++) expected += left(i, k) * right(k, j);
                assert_int_equal(found[(size_t)at], expected);
            }
        }
}

/* Rows of 8 lie apart and in an order of their own; element (row, column) of matrix m is 64 m + 8
 * row + column. */
int place(int m, int row) { return (m * 8 + row) * 5 % 32 * 24; }

void load_kernel(arguments a) {
    DYNAMIC_SHARED(memory);
    uint16_t *halves = (uint16_t *)memory;
    int lane = (int)threadIdx.x;
    unsigned r[4];
    for (int j = 0; j < 8; j++) halves[place(lane / 8, lane % 8) + j] = (uint16_t)(8 * lane + j);
    __syncwarp();
    const uint16_t *row = &halves[place(lane / 8, lane % 8)];
    if (a.n < 2)
        a.n ? matrices_load_transposed(r, row) : matrices_load(r, row);
    else
        matrices_load(r, row + 4);
    for (int m = 0; m < 4; m++) a.out[4 * lane + m] = (int)r[m];
}

void unaligned_load_kernel(arguments a) {
    a.n = 2;
    load_kernel(a);
}

void test_loads_of_matrices(void **) {
    enum { SHARED = 32 * 24 * 2 };
    for (int transposed = 0; transposed < 2; transposed++) {
        device_ints out(128);
        assert_int_equal(run(load_kernel, 1, 32, SHARED, {out.data, transposed}), cudaSuccess);
        std::vector<int> found = out.read();
        for (int lane = 0; lane < WARP; lane++)
            for (int m = 0; m < 4; m++) {
                int g = lane / 4, t = lane % 4;
                int low = 64 * m + (transposed ? 16 * t + g : 8 * g + 2 * t),
                    high = low + (transposed ? 8 : 1);
                assert_int_equal(found[(size_t)(4 * lane + m)], low | high << 16);
            }
    }
    assert_noticed(unaligned_load_kernel, 32, SHARED, "unaligned");
}

/* Thread i copies the first i % 17 bytes of four ints. With n it does not wait
 * for it, and reads neither what comes nor what was there. */
void copy_kernel(arguments a) {
    DYNAMIC_SHARED(memory);
    int *to = (int *)memory + 4 * threadIdx.x, i = (int)threadIdx.x;
    for (int j = 0; j < 4; j++) to[j] = 7;
    copy_begin(to, a.out + 4 * i, i % 17);
    if (a.n == 0) copies_wait();
    for (int j = 0; j < 4; j++) a.out[4 * (i + 32) + j] = to[j];
}
void unaligned_copy_kernel(arguments a) {
    DYNAMIC_SHARED(memory);
    copy_begin(memory, a.out + 1, 16);
}

void test_copies(void **) {
    std::vector<int> host(128);
    for (size_t i = 0; i < host.size(); i++) host[i] = 0x01010101 * (int)(i % 100 + 1);
    for (int waits = 0; waits < 2; waits++) {
        device_ints out(256);
        cudaMemcpyAsync(out.data, host.data(), host.size() * sizeof(int), cudaMemcpyHostToDevice,
                        nullptr);
        assert_int_equal(run(copy_kernel, 1, 32, 32 * 16, {out.data, !waits}), cudaSuccess);
        std::vector<int> found = out.read();
        for (int thread = 0; thread < 32; thread++)
            for (int byte = 0; byte < 16; byte++) {
                int at = 16 * thread + byte,
                    expected = byte < thread % 17 ? ((char *)host.data())[at] : 0;
                assert_int_equal(((char *)found.data())[512 + at], waits ? expected : -1);
            }
    }
    assert_noticed(unaligned_copy_kernel, 1, 64, "unaligned");
}

/* Wrong kernels */

void divergent_kernel(arguments a) {
    if (threadIdx.x < 32)
        __syncthreads();
    else
        a.out[threadIdx.x] = 1;
}
void two_barriers_kernel(arguments) {
    if (threadIdx.x % 2)
        __syncthreads();
    else
        __syncthreads();
}
void early_kernel(arguments) {
    if (threadIdx.x == 3) return;
    __shfl_xor_sync(ALL_LANES, 1, 1);
}
void two_shuffles_kernel(arguments) {
    if (threadIdx.x % 2)
        __shfl_xor_sync(ALL_LANES, 1, 1);
    else
        __shfl_xor_sync(ALL_LANES, 1, 1);
}
void mixed_kernel(arguments) {
    if (threadIdx.x == 0)
        __syncthreads();
    else
        __syncwarp();
}
void partial_kernel(arguments) { __syncwarp(); }
void below_kernel(arguments) {
    DYNAMIC_SHARED(memory);
    memory[-1 - (int)threadIdx.x] = 0;
}

void test_divergence(void **) {
    assert_noticed(divergent_kernel, 64, 0, "barrier");
    assert_noticed(two_barriers_kernel, 64, 0, "barrier");
    assert_noticed(early_kernel, 32, 0, "never reach this warp operation");
    assert_noticed(two_shuffles_kernel, 32, 0, "other lanes are at another");
    assert_noticed(mixed_kernel, 32, 0, "never reach");
    assert_noticed(partial_kernel, 40, 0, "partial warps");
    assert_noticed(below_kernel, 32, 64, "outside of shared memory");
}

/* A sum without the barrier it needs depends on the order of the threads. */
void racy_kernel(arguments a) {
    DYNAMIC_SHARED(memory);
    int *values = (int *)memory;
    values[threadIdx.x] = 1;
    if (a.n) __syncthreads();
    if (threadIdx.x != 17) return;
    int sum = 0;
    for (unsigned i = 0; i < blockDim.x; i++) sum += values[i];
    a.out[0] = sum;
}

void test_missing_barrier_shows(void **) {
    for (int barrier = 0; barrier < 2; barrier++) {
        bool wrong = false;
        for (uint64_t seed = 0; seed < 4; seed++) {
            cuda_host_seed(seed);
            device_ints out(1);
            assert_int_equal(run(racy_kernel, 1, 64, 64 * sizeof(int), {out.data, barrier}),
                             cudaSuccess);
            wrong = wrong || out.read()[0] != 64;
        }
        assert_true(wrong == (barrier == 0));
    }
}

void read_shared_kernel(arguments a) {
    DYNAMIC_SHARED(memory);
    a.out[0] = std::isnan(((float *)memory)[0]);
}

/* Memory that was never written is NaN: shared memory (again for each block) and device memory. */
void test_uninitialised_is_nan(void **) {
    device_ints out(2);
    assert_int_equal(out.read()[1], -1);
    assert_int_equal(run(read_shared_kernel, 2, 1, 4, {out.data, 0}), cudaSuccess);
    assert_int_equal(out.read()[0], 1);
}

/* Accesses that end the process; each runs in a child. */

void past_shared_kernel(arguments a) {
    DYNAMIC_SHARED(memory);
    a.out[0] = memory[64];
}
void past_device_kernel(arguments a) { a.out[0] = a.out[16]; }
/* A GPU loads and stores 8 and 16 bytes at a time only where they are aligned as a whole. */
void misaligned_load_kernel(arguments a) {
    float4 v = *(const float4 *)(const void *)(a.out + a.n);
    a.out[0] = (int)v.y;
}
void misaligned_store_kernel(arguments a) { *(uint2 *)(void *)(a.out + a.n) = {1, 2}; }

bool child_is_killed(void (*access)(device_ints &out)) {
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        for (int caught : {SIGSEGV, SIGILL}) signal(caught, SIG_DFL); /* cmocka catches them */
        device_ints out(16);
        access(out);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

void test_guard_pages(void **) {
    assert_false(child_is_killed([](device_ints &out) { out.read(); }));
    assert_true(child_is_killed([](device_ints &out) { *(volatile int *)out.data = 1; }));
    assert_true(child_is_killed([](device_ints &out) {
        run(past_shared_kernel, 1, 1, 64, {out.data, 0});
    }));
    assert_true(child_is_killed([](device_ints &out) {
        run(past_device_kernel, 1, 1, 0, {out.data, 0});
    }));
}

void test_alignment(void **) {
    assert_false(child_is_killed([](device_ints &out) {
        run(misaligned_load_kernel, 1, 1, 0, {out.data, 4});
    }));
    assert_true(child_is_killed([](device_ints &out) {
        run(misaligned_load_kernel, 1, 1, 0, {out.data, 6});
    }));
    assert_false(child_is_killed([](device_ints &out) {
        run(misaligned_store_kernel, 1, 1, 0, {out.data, 6});
    }));
    assert_true(child_is_killed([](device_ints &out) {
        run(misaligned_store_kernel, 1, 1, 0, {out.data, 5});
    }));
}

/* The runtime */

void store_kernel(arguments a) { a.out[0] = a.n; }

/* Work waits for the host to wait; host memory, pageable or not, is read then. */
void test_work_is_deferred(void **) {
    device_ints out(2);
    int pageable = 1, *pinned;
    uint64_t before = cuda_host_launches();
    assert_int_equal(cudaMallocHost((void **)&pinned, sizeof *pinned), cudaSuccess);
    *pinned = 1;
    cudaMemcpyAsync(out.data, &pageable, sizeof(int), cudaMemcpyHostToDevice, nullptr);
    cudaMemcpyAsync(out.data + 1, pinned, sizeof(int), cudaMemcpyHostToDevice, nullptr);
    pageable = *pinned = 2;
    std::vector<int> found = out.read();
    assert_int_equal(found[0], 2);
    assert_int_equal(found[1], 2);
    cudaLaunchConfig_t config = {};
    cudaLaunchKernelEx(&config, store_kernel, arguments{out.data, 5});
    assert_int_equal(cuda_host_launches(), before);
    assert_int_equal(out.read()[0], 5);
    assert_int_equal(cuda_host_launches(), before + 1);
    cudaFreeHost(pinned);
}

void other_kernel(arguments a) { a.out[0] = a.n + 1; }

/* Calls that a GPU may refuse while a stream is captured are refused; afterwards all is as before.
 */
void test_capture_rules(void **) {
    device_ints out(1);
    int pageable = 1;
    void *p;
    cudaLaunchConfig_t config = {};
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    assert_int_equal(run(store_kernel, 1, 1, 0, {out.data, 5}), cudaSuccess);
    assert_int_equal(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal),
                     cudaSuccess);
    assert_int_equal(cudaLaunchKernelEx(&config, store_kernel, arguments{out.data, 6}),
                     cudaSuccess);
    assert_int_equal(cudaLaunchKernelEx(&config, other_kernel, arguments{out.data, 6}),
                     cudaErrorStreamCaptureUnsupported);
    assert_int_equal(
        cudaMemcpyAsync(out.data, &pageable, sizeof(int), cudaMemcpyHostToDevice, nullptr),
        cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaMalloc(&p, 64), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaMallocHost(&p, 64), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaFree(nullptr), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaStreamSynchronize(nullptr), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaGetLastError(), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(cudaStreamEndCapture(nullptr, &graph), cudaSuccess);
    assert_int_equal(out.read()[0], 5);
    assert_int_equal(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    assert_int_equal(cudaGraphLaunch(exec, nullptr), cudaSuccess);
    assert_int_equal(out.read()[0], 6);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
}

/* Another thread has a device to choose, its work is no part of this thread's capture, and it may
 * allocate meanwhile unless the capture is a global one. */
void test_threads(void **) {
    for (auto mode : {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal}) {
        device_ints out(1);
        cudaGraph_t graph;
        cudaError_t before = cudaSuccess, after = cudaSuccess, launched = cudaErrorInvalidValue;
        assert_int_equal(run(store_kernel, 1, 1, 0, {out.data, 5}), cudaSuccess);
        assert_int_equal(cudaStreamBeginCapture(nullptr, mode), cudaSuccess);
        std::thread([&] {
            void *p = nullptr;
            before = cudaMalloc(&p, 64);
            cudaSetDevice(0);
            after = cudaMalloc(&p, 64);
            launched = run(store_kernel, 1, 1, 0, {out.data, 7});
            if (after == cudaSuccess) cudaFree(p);
        }).join();
        assert_int_equal(cudaStreamEndCapture(nullptr, &graph), cudaSuccess);
        cudaGraphDestroy(graph);
        assert_int_equal(before, cudaErrorDeviceUninitialized);
        assert_int_equal(after, mode ? cudaSuccess : cudaErrorStreamCaptureUnsupported);
        assert_int_equal(launched, cudaSuccess);
        assert_int_equal(out.read()[0], 7);
    }
}

void test_launch_limits(void **) {
    device_ints out(1);
    assert_int_equal(run(store_kernel, 1, 1025, 0, {out.data, 0}), cudaErrorInvalidConfiguration);
    assert_int_equal(run(store_kernel, dim3(1, 65536), 1, 0, {out.data, 0}),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(run(store_kernel, dim3(0), 1, 0, {out.data, 0}),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(run(store_kernel, 1, 1, (48 << 10) + 1, {out.data, 0}),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(run(store_kernel, 1, 1, 48 << 10, {out.data, 3}), cudaSuccess);
    assert_int_equal(out.read()[0], 3);
    void *p;
    assert_int_equal(cudaMalloc(&p, SIZE_MAX), cudaErrorMemoryAllocation);
    assert_int_equal(cudaFree(&p), cudaErrorInvalidValue);
    assert_int_equal(cudaSetDevice(1), cudaErrorInvalidDevice);
}

} // namespace

int main() {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_barriers),
                                       cmocka_unit_test(test_warp_operations),
                                       cmocka_unit_test(test_block_sum_and_atomics),
                                       cmocka_unit_test(test_votes),
                                       cmocka_unit_test(test_products),
                                       cmocka_unit_test(test_loads_of_matrices),
                                       cmocka_unit_test(test_copies),
                                       cmocka_unit_test(test_divergence),
                                       cmocka_unit_test(test_missing_barrier_shows),
                                       cmocka_unit_test(test_uninitialised_is_nan),
                                       cmocka_unit_test(test_guard_pages),
                                       cmocka_unit_test(test_alignment),
                                       cmocka_unit_test(test_work_is_deferred),
                                       cmocka_unit_test(test_capture_rules),
                                       cmocka_unit_test(test_threads),
                                       cmocka_unit_test(test_launch_limits)};
    cudaSetDevice(0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
