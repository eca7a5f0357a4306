/* tests/cuda_host/cuda_runtime.h: the part of the CUDA runtime and language that kernels/cuda uses,
 * on the CPU.
 *
 * The same .cu files compile against this header with a host compiler and run in one thread: every
 * CUDA thread of a block is a fiber (emulator.cc), so barriers and shuffles really make threads
 * wait for each other. It is strict about these, because a machine without a GPU has no other way
 * to notice:
 *   - launches and copies are queued and run only when the host waits, as late as a GPU may run
 * them;
 *   - device memory is inaccessible to the host between those runs, and ends at an inaccessible
 * page;
 *   - memory is filled with NaN patterns when allocated, shared memory before each block, with red
 * zones around it;
 *   - the order of blocks and of threads between two barriers follows a seed;
 *   - threads that wait at different barriers or shuffles, or leave while others wait, fail the
 * launch with both lines;
 *   - copies take what is in host memory as late as that, pinned or not;
 *   - who launches or allocates has chosen a device: a host thread begins with the first GPU,
 * whichever it wants;
 *   - a capture is its thread's own, and nothing is launched, copied or allocated in it that a GPU
 * might refuse there;
 *   - loads and stores of several numbers at once end the process where they are not aligned as a
 * whole (Makefile). There is no static __shared__: kernels take their shared memory from the
 * launch, where it can be checked. */
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned i = 1, unsigned j = 1, unsigned k = 1) : x(i), y(j), z(k) {}
};

/* Set by the scheduler whenever it switches to a fiber. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

/* The block's dynamic shared memory. On the device: extern __shared__ unsigned char name[]. */
unsigned char *cuda_host_shared();
#define DYNAMIC_SHARED(name) unsigned char *name = cuda_host_shared()

/* Every thread of the block waits here; `line` tells one barrier from another. */
void __syncthreads(int line = __builtin_LINE());
/* The same; returns to all of them whether anybody's predicate was not 0. */
int __syncthreads_or(int predicate, int line = __builtin_LINE());

/* All lanes of `mask` bring one value; returns the 32 values, valid until the lane's next warp
 * operation. */
constexpr size_t CUDA_HOST_LANE_BYTES = 48; /* the longest such value */
const void *cuda_host_gather_bytes(unsigned mask, const void *value, size_t bytes, int line);
inline const uint64_t *cuda_host_gather(unsigned mask, uint64_t value, int line) {
    return (const uint64_t *)cuda_host_gather_bytes(mask, &value, sizeof value, line);
}
/* The launch fails: the thread that runs did what a GPU does not allow. */
void cuda_host_break_rule(const char *rule, int line);

inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
    cuda_host_gather(mask, 0, line);
}

template <typename T>
inline T cuda_host_exchange(unsigned mask, T value, unsigned source, int line) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = cuda_host_gather(mask, bits, line)[source % 32];
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline unsigned cuda_host_lane() {
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
}
template <typename T>
inline T __shfl_sync(unsigned mask, T value, int source, int line = __builtin_LINE()) {
    return cuda_host_exchange(mask, value, (unsigned)source, line);
}
template <typename T>
inline T __shfl_xor_sync(unsigned mask, T value, int bits, int line = __builtin_LINE()) {
    return cuda_host_exchange(mask, value, cuda_host_lane() ^ (unsigned)bits, line);
}
template <typename T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int line = __builtin_LINE()) {
    unsigned lane = cuda_host_lane();
    return cuda_host_exchange(mask, value, lane + by < 32 ? lane + by : lane, line);
}
template <typename T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int line = __builtin_LINE()) {
    unsigned lane = cuda_host_lane();
    return cuda_host_exchange(mask, value, lane >= by ? lane - by : lane, line);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    const uint64_t *votes = cuda_host_gather(mask, predicate != 0, line);
    unsigned ballot = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        if (mask >> lane & 1) ballot |= (unsigned)votes[lane] << lane;
    return ballot;
}

/* Fibers change places only where they wait, so a plain sum is atomic. */
template <typename T>
inline T atomicAdd(T *at, T by) {
    T before = *at;
    *at = before + by;
    return before;
}

inline unsigned __float_as_uint(float v) {
    unsigned u;
    std::memcpy(&u, &v, sizeof u);
    return u;
}
inline float __uint_as_float(unsigned u) {
    float v;
    std::memcpy(&v, &u, sizeof v);
    return v;
}
inline long long __double_as_longlong(double v) {
    long long u;
    std::memcpy(&u, &v, sizeof u);
    return u;
}
inline double __longlong_as_double(long long u) {
    double v;
    std::memcpy(&v, &u, sizeof v);
    return v;
}
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }

/* The runtime's functions, with the documented meaning of those arguments that are used. */
enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorDeviceUninitialized = 201,
    cudaErrorInvalidDevice = 101,
    cudaErrorNotReady = 600,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorLaunchFailure = 719
};
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3
};
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };
typedef struct cuda_host_stream *cudaStream_t;
typedef struct cuda_host_event *cudaEvent_t;
typedef struct cuda_host_graph *cudaGraph_t;
typedef struct cuda_host_graph *cudaGraphExec_t;
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1
};
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem;
    int major, minor, multiProcessorCount;
};

/* After a failed launch every call returns cudaErrorLaunchFailure and this says which kernel rule
 * was broken. */
const char *cudaGetErrorString(cudaError_t code);
/* The thread's latest failure, once. */
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaSetDevice(int ordinal);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int ordinal);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
/* Not ready as often as cuda_host_lag says, then everything is done. */
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *v, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t v, cudaStream_t s);
cudaError_t cudaEventSynchronize(cudaEvent_t v);
cudaError_t cudaEventDestroy(cudaEvent_t v);
/* While a thread captures, what it enqueues becomes the graph and does not run; its waiting and
 * allocating fail, and so do copies of pageable memory and kernels that were never launched before,
 * whose code might have to be loaded. In the global mode everybody's allocating fails. */
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaMalloc(void **out, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaMemGetInfo(size_t *available, size_t *all);
cudaError_t cudaMallocHost(void **out, size_t bytes);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s);
cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t s);

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
};
cudaError_t cuda_host_launch(const cudaLaunchConfig_t *c, const void *kernel,
                             std::function<void()> thread);

/* Whether some bytes of a T belong to no member. */
template <typename T>
inline bool cuda_host_padded() {
#if defined(__GNUC__) && !defined(__clang__)
    alignas(T) unsigned char bytes[sizeof(T)];
    std::memset(bytes, 0xff, sizeof bytes);
    __builtin_clear_padding((T *)(void *)bytes);
    for (unsigned char byte : bytes)
        if (byte != 0xff) return true;
#endif
    return false;
}

/* Arguments with padding are refused: the backend compares them as bytes. */
template <typename... P, typename... A>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*kernel)(P...),
                                      A &&...arguments) {
    if ((cuda_host_padded<P>() || ...)) return cudaErrorInvalidValue;
    return cuda_host_launch(c, (const void *)kernel,
                            [kernel, arguments...] { kernel(arguments...); });
}
