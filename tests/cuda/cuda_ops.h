/* tests/cuda/cuda_ops.h: what the CUDA op tests share: the two backends, tensors that live on both,
 * comparisons.
 *
 * `reference` is the CPU in plain loops, which is the specification; `device` is the backend under
 * test, by name the program's first argument, or the emulated device. */
#pragma once

#include "tests/ops/ops.h"
#if HAVE_CUDA_HOST
#include "tests/cuda_host/emulator.h"
#endif

static struct backend *reference, *device;
static const char *device_name = "cuda-host";
static uint64_t schedule; /* the order of threads on the emulated device */
static int one_in = 1;    /* how many cases make one that runs */

/* How many kernels the emulated device ran so far; 0 on a GPU. */
static inline uint64_t device_launches(void) {
#if HAVE_CUDA_HOST
    return cuda_host_launches();
#else
    return 0;
#endif
}

/* Whether the next case runs. */
static inline bool chosen(void) {
    static int cases;
    return cases++ % one_in == 0;
}

/* The same rows on both backends; `host` is the reference's, and gaps between rows hold NaN. */
struct both {
    struct tensor host, device;
};

static inline size_t tensor_bytes(struct tensor t) {
    return (size_t)t.rows * (size_t)t.stride * dtype_bytes(t.dtype);
}

static inline struct both both_copy(struct tensor host) {
    struct both t = {host, host};
    struct error e;
    if (backend_alloc(device, &t.device.data, tensor_bytes(host), "a test", &e))
        fail_msg("%s", e.text);
    backend_upload(device, t.device.data, host.data, tensor_bytes(host));
    return t;
}

static inline struct both both_random(enum dtype dtype, int rows, int cols, int gap) {
    return both_copy(random_tensor(dtype, rows, cols, gap));
}

static inline struct both both_empty(enum dtype dtype, int rows, int cols, int gap) {
    return both_copy(padded_tensor(dtype, rows, cols, gap));
}

static inline void both_free(struct both t) {
    free(t.host.data);
    backend_release(device, t.device.data);
}

/* A vector of n floats on both. */
static inline struct both both_vector(int n) { return both_random(DTYPE_F32, 1, n, 0); }

/* Waits for the device; a failure there fails the test. */
static inline void device_sync(void) {
    struct error e;
    if (backend_sync(device, &e)) fail_msg("%s", e.text);
}

/* Elements agree within `tolerance` of the largest magnitude of their pair or of 1; gaps were not
 * written. */
static inline void assert_both(struct both t, double tolerance, const char *what) {
    char *found = xmalloc(tensor_bytes(t.host) + 1);
    backend_download(device, found, t.device.data, tensor_bytes(t.host));
    device_sync();
    struct tensor copy = t.host;
    copy.data = found;
    for (int i = 0; i < copy.rows; i++)
        for (int j = 0; j < copy.cols; j++) {
            double a = (double)tensor_get(t.host, i, j), b = (double)tensor_get(copy, i, j);
            if (a == b || (isnan(a) && isnan(b))) continue;
            if (!(fabs(a - b) <= tolerance * fmax(1, fmax(fabs(a), fabs(b)))))
                fail_msg("%s: row %d column %d of [%d, %d]: %.9g, expected %.9g", what, i, j,
                         copy.rows, copy.cols, b, a);
        }
    assert_gaps_untouched(copy);
    free(found);
}

/* A copy of a host array that is spoilt and freed once the op is enqueued: arguments are read at
 * the call. */
static inline void *lend(const void *array, size_t bytes) {
    char *copy = xmalloc(bytes + 1);
    if (bytes) memcpy(copy, array, bytes);
    return copy;
}
static inline void take_back(void *array, size_t bytes) {
    memset(array, 0x5a, bytes);
    free(array);
}

static inline void open_both(void) {
    struct error e;
    setenv("RETRO_CPU", "generic", 1);
    if (backend_open(&reference, "cpu", &(struct backend_options){.threads = 1}, &e))
        fail_msg("%s", e.text);
    unsetenv("RETRO_CPU");
    if (backend_open(&device, device_name, NULL, &e)) fail_msg("%s", e.text);
}

static inline void close_both(void) {
    backend_close(device);
    backend_close(reference);
    device = reference = NULL;
}

static inline void order_threads(uint64_t order) {
#if HAVE_CUDA_HOST
    cuda_host_seed(order);
#else
    (void)order;
#endif
}

/* Around each test. */
static inline int open_device(void **state) {
    (void)state;
    order_threads(schedule);
    open_both();
    return 0;
}
static inline int close_device(void **state) {
    (void)state;
    device_sync();
    close_both();
    return 0;
}
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_device, close_device)

/* The main function of such tests: without an argument on the emulated device, once for each of
 * several orders of threads; `cuda:0` on a GPU; `cuda:0 16` every 16th case of each op there, for
 * tools that slow it down. */
#define RUN_TESTS(argc, argv, tests) \
    do { \
        static const uint64_t schedules[] = {0, 1, 20261121}; \
        int failed = 0; \
        if ((argc) > 1) { \
            device_name = (argv)[1]; \
            if ((argc) > 2) one_in = atoi((argv)[2]) > 0 ? atoi((argv)[2]) : 1; \
            return cmocka_run_group_tests(tests, NULL, NULL); \
        } \
        for (size_t i = 0; i < ARRAY_COUNT(schedules); i++) { \
            schedule = schedules[i]; \
            failed += cmocka_run_group_tests(tests, NULL, NULL); \
        } \
        return failed; \
    } while (0)
