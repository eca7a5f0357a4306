/* retrieval/index/faiss_api.c: opens FAISS' C library and looks up its functions. Where the address
 * space is limited, what OpenBLAS is about to map is mapped and given back first: a refusal is an
 * error here and an endless loop there.
 */
#if HAVE_FAISS

#include "retrieval/index/faiss_api.h"

#include <dlfcn.h>
#include <errno.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "retrieval/index/index.h"

/* The largest buffer of OpenBLAS 0.3 on x86-64. FAISS, OpenBLAS and what they need are 100 MB of
 * mapped files. */
#define BUFFER_BYTES ((size_t)128 << 20)
enum { LIBRARY_BUFFERS = 1, MOST_BUFFERS = 512 };

struct faiss_api faiss;

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static int opened_threads; /* that OpenBLAS has buffers for; 0: not open */

/* How many of n buffers the system would give now. */
static int count_buffers(int n) {
    void *buffers[MOST_BUFFERS];
    int mapped = 0;
    while (mapped < n) {
        buffers[mapped] =
            mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (buffers[mapped] == MAP_FAILED) break;
        mapped++;
    }
    for (int i = 0; i < mapped; i++) munmap(buffers[i], BUFFER_BYTES);
    return mapped;
}

static enum status check_buffers(int n, int threads, struct error *e) {
    struct rlimit limit;
    char refused[64] = "the system refuses it";
    n = min_int(n, MOST_BUFFERS);
    if (count_buffers(n) == n) return STATUS_OK;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        snprintf(refused, sizeof refused, "ulimit -v is %llu",
                 (unsigned long long)limit.rlim_cur >> 10);
    return error_set(e, STATUS_NO_MEMORY,
                     "FAISS needs %zu kB more of address space to multiply matrices in %d threads; "
                     "%s: raise it, set "
                     "OMP_NUM_THREADS=1, or build the collection with --index " INDEX_EXACT
                     ", which needs no FAISS",
                     (size_t)n * (BUFFER_BYTES >> 10), threads, refused);
}

/* A missing function is NULL in `api`. */
static enum status load(struct faiss_api *api, struct error *e) {
    void *library = dlopen("libfaiss_c.so", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return error_set(e, STATUS_UNSUPPORTED,
                         "FAISS cannot be loaded: %s; run make deps and build again", dlerror());
    const char *missing = NULL;
#define FIND_FUNCTION(name) \
    *(void **)&api->name = dlsym(library, "faiss_" #name); \
    if (api->name == NULL) missing = "faiss_" #name;
    FAISS_FUNCTIONS(FIND_FUNCTION)
    FAISS_GPU_FUNCTIONS(FIND_FUNCTION)
#undef FIND_FUNCTION
    if (missing == NULL) return STATUS_OK;
    dlclose(library);
    return error_set(e, STATUS_UNSUPPORTED, "FAISS has no %s; run make deps and build again",
                     missing);
}

enum status faiss_open(struct error *e) {
    pthread_mutex_lock(&open_lock);
    enum status status = STATUS_OK;
    if (opened_threads == 0) {
        int threads = max_int(1, omp_get_max_threads());
        struct faiss_api api;
        /* One buffer for each thread when it is loaded, one more for the first product. */
        status = check_buffers(LIBRARY_BUFFERS + threads + 1, threads, e);
        if (status == STATUS_OK) status = load(&api, e);
        if (status == STATUS_OK) {
            faiss = api;
            opened_threads = threads;
        }
    }
    pthread_mutex_unlock(&open_lock);
    return status;
}

enum status faiss_check_room(struct error *e) {
    int threads = max_int(1, omp_get_max_threads());
    return check_buffers(1 + max_int(0, threads - opened_threads), threads, e);
}

#else

/* A translation unit is not empty. */
typedef int faiss_is_left_out;

#endif
