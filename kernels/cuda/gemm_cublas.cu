/* kernels/cuda/gemm_cublas.cu: Y = X W^T by cuBLASLt: the only file that knows it.
 *
 * The library is large and takes long to map, so it is opened with the first device and not linked: a program that uses
 * no GPU starts without it, and runs where there is none.
 *
 * cuBLASLt counts in columns: our row-major Y [rows, n_out] is its Y^T, n_out x rows, the product of W^T transposed
 * (n_out x n_in, stored n_in x n_out) and X^T (n_in x rows). The heuristics' choice for a shape is kept; choosing
 * allocates on the host, so the first step of a shape is slower than the others. */
#include "kernels/cuda/gemm.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The library of the version that was compiled against, and the functions used. */
#define TEXT_OF(x) #x
#define LIBRARY_OF(major) "libcublasLt.so." TEXT_OF(major)
#define CUBLAS_LIBRARY LIBRARY_OF(CUBLAS_VER_MAJOR)
#define CUBLAS_FUNCTIONS(X) \
    X(Create) \
    X(Destroy) \
    X(GetStatusString) \
    X(Matmul) \
    X(MatmulAlgoGetHeuristic) \
    X(MatmulDescCreate) \
    X(MatmulDescDestroy) \
    X(MatmulDescSetAttribute) \
    X(MatmulPreferenceCreate) \
    X(MatmulPreferenceDestroy) \
    X(MatmulPreferenceSetAttribute) \
    X(MatrixLayoutCreate) \
    X(MatrixLayoutDestroy)

/* Without the prefix, as the header's inline functions have it. */
static struct {
#define DECLARE(name) decltype(&cublasLt##name) name;
    CUBLAS_FUNCTIONS(DECLARE)
#undef DECLARE
} lt;

enum { PLANS = 512, WAYS = 8, GEMM_WORKSPACE_BYTES = 32 << 20, MOST_ALIGNMENT = 256 };

/* Everything that a choice depends on, without padding: compared as bytes. */
struct gemm_shape {
    int64_t x_stride, y_stride;
    int rows, n_out, n_in;
    int x_alignment, w_alignment, y_alignment, bias_alignment;
    enum dtype dtype;
    cublasLtEpilogue_t epilogue;
    int unused;
};

static_assert(sizeof(struct gemm_shape) == 56, "shapes are compared as bytes");

struct gemm_plan {
    struct gemm_shape shape; /* rows 0: there is no plan here */
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t x, w, y;
    cublasLtMatmulAlgo_t algorithm;
    cublasStatus_t chosen; /* why there is no algorithm */
};

/* A shape's plan is in one of the WAYS places that its hash names. */
struct gemm {
    cublasLtHandle_t library;
    void *workspace;
    struct gemm_plan plans[PLANS / WAYS][WAYS];
    unsigned replaced; /* so many plans gave way */
};

/* NULL, or why the library cannot be used. */
static const char *library_load() {
    static char why[300];
    void *library = dlopen(CUBLAS_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(why, sizeof why, "%s", dlerror());
        return why;
    }
    const struct {
        const char *name;
        void **place;
    } functions[] = {
#define ROW(name) {"cublasLt" #name, (void **)&lt.name},
        CUBLAS_FUNCTIONS(ROW)
#undef ROW
    };
    for (auto &f : functions) {
        *f.place = dlsym(library, f.name);
        if (*f.place) continue;
        snprintf(why, sizeof why, "it has no function %s", f.name);
        return why;
    }
    return NULL;
}

enum status gemm_open(struct gemm **out, struct error *e) {
    struct gemm *g = (struct gemm *)xcalloc(1, sizeof *g);
    *out = g;
    static const char *const why = library_load(); /* once, whichever thread comes first */
    if (why)
        return error_set(e, STATUS_UNSUPPORTED, "%s: %s; install the CUDA toolkit's cuBLAS, or use \"cpu\"",
                         CUBLAS_LIBRARY, why);
    cublasStatus_t code = lt.Create(&g->library);
    if (code != CUBLAS_STATUS_SUCCESS) {
        g->library = NULL;
        return error_set(e, STATUS_DEVICE, "cuBLASLt does not start: %s", lt.GetStatusString(code));
    }
    if (cudaMalloc(&g->workspace, GEMM_WORKSPACE_BYTES) != cudaSuccess)
        return error_set(e, STATUS_NO_MEMORY, "no device memory for cuBLASLt's workspace (%d bytes)",
                         GEMM_WORKSPACE_BYTES);
    return STATUS_OK;
}

static void plan_close(struct gemm_plan *p) {
    if (p->x) lt.MatrixLayoutDestroy(p->x);
    if (p->w) lt.MatrixLayoutDestroy(p->w);
    if (p->y) lt.MatrixLayoutDestroy(p->y);
    if (p->product) lt.MatmulDescDestroy(p->product);
    *p = (struct gemm_plan){};
}

void gemm_close(struct gemm *g) {
    if (g == NULL) return;
    for (auto &places : g->plans)
        for (struct gemm_plan &p : places) plan_close(&p);
    cudaFree(g->workspace);
    if (g->library) lt.Destroy(g->library);
    free(g);
}

static cudaDataType_t dtype_cuda(enum dtype t) {
    return t == DTYPE_F32 ? CUDA_R_32F : t == DTYPE_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

static bool epilogue_has_bias(cublasLtEpilogue_t epilogue) {
    return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_BIAS ||
           epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
}

/* `bias` is not read until the product runs, but the choice goes by how it is aligned; NULL for none. It is of y's
 * type, as the library takes it to be. */
static cublasStatus_t plan_describe(struct gemm_plan *p, const float *bias) {
    const struct gemm_shape *s = &p->shape;
    cublasOperation_t transpose = CUBLAS_OP_T;
    cudaDataType_t type = dtype_cuda(s->dtype);
    cublasStatus_t codes[] = {
        lt.MatmulDescCreate(&p->product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        lt.MatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose),
        lt.MatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &s->epilogue, sizeof s->epilogue),
        lt.MatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias),
        lt.MatrixLayoutCreate(&p->w, type, (uint64_t)s->n_in, (uint64_t)s->n_out, s->n_in),
        lt.MatrixLayoutCreate(&p->x, type, (uint64_t)s->n_in, (uint64_t)s->rows, s->x_stride),
        lt.MatrixLayoutCreate(&p->y, CUDA_R_32F, (uint64_t)s->n_out, (uint64_t)s->rows, s->y_stride)};
    for (cublasStatus_t code : codes)
        if (code != CUBLAS_STATUS_SUCCESS) return code;
    return CUBLAS_STATUS_SUCCESS;
}

/* The library's first choice within our workspace, for pointers no better aligned than ours. */
static cublasStatus_t plan_choose(struct gemm *g, struct gemm_plan *p) {
    const struct gemm_shape *s = &p->shape;
    cublasLtMatmulPreference_t limits;
    cublasStatus_t code = lt.MatmulPreferenceCreate(&limits);
    if (code != CUBLAS_STATUS_SUCCESS) return code;
    uint64_t workspace = GEMM_WORKSPACE_BYTES;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        int value;
    } alignments[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s->w_alignment},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s->x_alignment},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s->y_alignment},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s->y_alignment}};
    code =
        lt.MatmulPreferenceSetAttribute(limits, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    for (auto &a : alignments) {
        uint32_t value = (uint32_t)a.value;
        if (code == CUBLAS_STATUS_SUCCESS) code = lt.MatmulPreferenceSetAttribute(limits, a.name, &value, sizeof value);
    }
    cublasLtMatmulHeuristicResult_t best = {};
    int found = 0;
    if (code == CUBLAS_STATUS_SUCCESS)
        code = lt.MatmulAlgoGetHeuristic(g->library, p->product, p->w, p->x, p->y, p->y, limits, 1, &best, &found);
    lt.MatmulPreferenceDestroy(limits);
    p->algorithm = best.algo;
    if (code != CUBLAS_STATUS_SUCCESS) return code;
    return found == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : best.state;
}

static unsigned shape_place(const struct gemm_shape *s) {
    const unsigned char *bytes = (const unsigned char *)s;
    uint64_t h = 0;
    for (size_t i = 0; i < sizeof *s; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, bytes + i, sizeof word);
        h = (h ^ word) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 29;
    }
    return (unsigned)(h % (PLANS / WAYS));
}

/* The plan for a shape, made now or kept from before; another gives way. Where there is no algorithm, that is kept too.
 * No product is in it when it gives way: what was launched has its own copy. */
static struct gemm_plan *plan_find(struct backend *b, const struct gemm_shape *s, const float *bias) {
    struct gemm *g = cuda_of(b)->gemm;
    struct gemm_plan *places = g->plans[shape_place(s)], *p = NULL;
    for (int i = 0; i < WAYS; i++) {
        if (memcmp(&places[i].shape, s, sizeof *s) == 0) return &places[i];
        if (p == NULL && places[i].shape.rows == 0) p = &places[i];
    }
    if (p == NULL) {
        p = &places[g->replaced % WAYS];
        g->replaced++;
    }
    plan_close(p);
    p->shape = *s;
    p->chosen =
        cudaSetDevice(cuda_of(b)->ordinal) == cudaSuccess ? plan_describe(p, bias) : CUBLAS_STATUS_NOT_INITIALIZED;
    if (p->chosen == CUBLAS_STATUS_SUCCESS) p->chosen = plan_choose(g, p);
    return p;
}

/* The largest power of two that divides an address, as far as it matters. */
static int alignment_of(const void *p) {
    int alignment = MOST_ALIGNMENT;
    while ((uintptr_t)p % (uintptr_t)alignment) alignment /= 2;
    return alignment;
}

/* The epilogue that the library can add to a product, by its documentation. Its GELU is the tanh form, with a
 * hyperbolic tangent that is good enough for 16-bit weights but not for f32. The others are the caller's. */
static cublasLtEpilogue_t epilogue_wanted(const struct gemm_args *a) {
    if (a->activation == ACTIVATION_NONE) return a->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    if (a->activation == ACTIVATION_GELU_TANH && a->dtype != DTYPE_F32)
        return a->bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    if (a->activation == ACTIVATION_RELU) return a->bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    return CUBLASLT_EPILOGUE_DEFAULT;
}

/* With what the library adds where it has an algorithm that does, else the product alone. */
static struct gemm_plan *plan_of(struct backend *b, const struct gemm_args *a) {
    cublasLtEpilogue_t wanted = epilogue_wanted(a);
    bool one = a->rows == 1; /* whose stride may be anything */
    struct gemm_shape s = {one ? a->n_in : a->x_stride,
                           one ? a->n_out : a->y_stride,
                           a->rows,
                           a->n_out,
                           a->n_in,
                           alignment_of(a->x),
                           alignment_of(a->w),
                           alignment_of(a->y),
                           epilogue_has_bias(wanted) ? alignment_of(a->bias) : MOST_ALIGNMENT,
                           a->dtype,
                           wanted,
                           0};
    struct gemm_plan *p = plan_find(b, &s, epilogue_has_bias(wanted) ? a->bias : NULL);
    if (p->chosen == CUBLAS_STATUS_SUCCESS || wanted == CUBLASLT_EPILOGUE_DEFAULT) return p;
    s.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    s.bias_alignment = MOST_ALIGNMENT;
    return plan_find(b, &s, NULL);
}

/* Asked when an op is listed, so that the library's choice is made by then and not while a step is captured. */
bool gemm_finishes(struct backend *b, const struct gemm_args *a) {
    cublasLtEpilogue_t wanted = epilogue_wanted(a);
    bool nothing = a->activation == ACTIVATION_NONE && a->bias == NULL;
    return plan_of(b, a)->shape.epilogue == wanted && (wanted != CUBLASLT_EPILOGUE_DEFAULT || nothing);
}

void gemm_run(struct backend *b, const void *arguments) {
    const struct gemm_args *a = (const struct gemm_args *)arguments;
    struct gemm *g = cuda_of(b)->gemm;
    struct gemm_plan *p = plan_of(b, a);
    cublasStatus_t code = p->chosen;
    if (code == CUBLAS_STATUS_SUCCESS && epilogue_has_bias(p->shape.epilogue))
        code = lt.MatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &a->bias, sizeof a->bias);
    float one = 1, zero = 0;
    if (code == CUBLAS_STATUS_SUCCESS)
        code = lt.Matmul(g->library, p->product, &one, a->w, p->w, a->x, p->x, &zero, a->y, p->y, a->y, p->y,
                         &p->algorithm, g->workspace, GEMM_WORKSPACE_BYTES, cuda_of(b)->stream);
    if (code != CUBLAS_STATUS_SUCCESS && b->error.status == STATUS_OK)
        error_set(&b->error, STATUS_DEVICE, "cuBLASLt %s [%d, %d] by [%d, %d]^T in %s: %s",
                  p->chosen ? "has no way to multiply" : "failed to multiply", a->rows, a->n_in, a->n_out, a->n_in,
                  dtype_name(a->dtype), lt.GetStatusString(code));
}
