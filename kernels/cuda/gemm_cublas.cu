/* kernels/cuda/gemm_cublas.cu: Y = X W^T by cuBLASLt: the only file that knows it.
 *
 * The library is large and takes long to map, so it is opened with the first device and not linked: a program that uses
 * no GPU starts without it, and runs where there is none.
 *
 * cuBLASLt counts in columns: our row-major Y [rows, n_out] is its Y^T, n_out x rows, the product of W^T transposed
 * (n_out x n_in, stored n_in x n_out) and X^T (n_in x rows). What the heuristics choose for a shape is kept; choosing
 * allocates on the host, so the first step of a shape is slower than the others. */
#include "kernels/cuda/gemm.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

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

enum { PLANS = 512, GEMM_WORKSPACE_BYTES = 32 << 20, MOST_ALIGNMENT = 256 };

/* What a choice depends on. */
struct shape {
    int64_t x_stride, y_stride;
    int rows, n_out, n_in;
    int x_alignment, w_alignment, y_alignment;
    enum dtype dtype;
    cublasLtEpilogue_t epilogue;
};

struct plan {
    struct shape shape;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t x, w, y;
    cublasLtMatmulAlgo_t algorithm;
};

struct gemm {
    cublasLtHandle_t library;
    void *workspace;
    struct plan plans[PLANS]; /* searched in order of use: models have few shapes */
    int n_plans, next;
};

static bool same_shape(const struct shape *a, const struct shape *b) {
    return a->x_stride == b->x_stride && a->y_stride == b->y_stride && a->rows == b->rows && a->n_out == b->n_out &&
           a->n_in == b->n_in && a->x_alignment == b->x_alignment && a->w_alignment == b->w_alignment &&
           a->y_alignment == b->y_alignment && a->dtype == b->dtype && a->epilogue == b->epilogue;
}

/* NULL, or why the library cannot be used. */
static const char *load_library() {
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
    static const char *const why = load_library(); /* once, whichever thread comes first */
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

static void plan_close(struct plan *p) {
    if (p->x) lt.MatrixLayoutDestroy(p->x);
    if (p->w) lt.MatrixLayoutDestroy(p->w);
    if (p->y) lt.MatrixLayoutDestroy(p->y);
    if (p->product) lt.MatmulDescDestroy(p->product);
    *p = (struct plan){};
}

void gemm_close(struct gemm *g) {
    if (g == NULL) return;
    for (int i = 0; i < g->n_plans; i++) plan_close(&g->plans[i]);
    cudaFree(g->workspace);
    if (g->library) lt.Destroy(g->library);
    free(g);
}

static cudaDataType_t data_type(enum dtype t) {
    return t == DTYPE_F32 ? CUDA_R_32F : t == DTYPE_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

static cublasStatus_t describe(struct plan *p) {
    const struct shape *s = &p->shape;
    cublasOperation_t transpose = CUBLAS_OP_T;
    cudaDataType_t type = data_type(s->dtype);
    cublasStatus_t codes[] = {
        lt.MatmulDescCreate(&p->product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        lt.MatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose),
        lt.MatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &s->epilogue, sizeof s->epilogue),
        lt.MatrixLayoutCreate(&p->w, type, (uint64_t)s->n_in, (uint64_t)s->n_out, s->n_in),
        lt.MatrixLayoutCreate(&p->x, type, (uint64_t)s->n_in, (uint64_t)s->rows, s->x_stride),
        lt.MatrixLayoutCreate(&p->y, CUDA_R_32F, (uint64_t)s->n_out, (uint64_t)s->rows, s->y_stride)};
    for (cublasStatus_t code : codes)
        if (code != CUBLAS_STATUS_SUCCESS) return code;
    return CUBLAS_STATUS_SUCCESS;
}

/* The library's first choice within our workspace, for pointers no better aligned than ours. */
static cublasStatus_t choose(struct gemm *g, struct plan *p) {
    const struct shape *s = &p->shape;
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
    return code == CUBLAS_STATUS_SUCCESS && found == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : code;
}

/* A plan for the shape, made now or kept from before; the oldest gives way. */
static struct plan *find_plan(struct backend *b, struct gemm *g, const struct shape *s) {
    for (int i = 0; i < g->n_plans; i++)
        if (same_shape(&g->plans[i].shape, s)) return &g->plans[i];
    struct plan *p = &g->plans[g->next];
    g->next = (g->next + 1) % PLANS;
    if (g->n_plans < PLANS) g->n_plans++;
    plan_close(p);
    p->shape = *s;
    cublasStatus_t code = describe(p);
    if (code == CUBLAS_STATUS_SUCCESS) code = choose(g, p);
    if (code == CUBLAS_STATUS_SUCCESS) return p;
    plan_close(p);
    error_set(&b->error, STATUS_DEVICE, "cuBLASLt has no way to multiply [%d, %d] by [%d, %d]^T in %s: %s", s->rows,
              s->n_in, s->n_out, s->n_in, dtype_name(s->dtype), lt.GetStatusString(code));
    return NULL;
}

/* The largest power of two that divides an address, as far as it matters. */
static int alignment_of(const void *p) {
    int alignment = MOST_ALIGNMENT;
    while ((uintptr_t)p % (uintptr_t)alignment) alignment /= 2;
    return alignment;
}

/* What the library can add on its way out. Its GELU is the tanh form. The others are the caller's. */
static cublasLtEpilogue_t choose_epilogue(const struct gemm_args *a) {
    if (a->activation == ACTIVATION_NONE) return a->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    if (a->activation == ACTIVATION_GELU_TANH) return a->bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    if (a->activation == ACTIVATION_RELU) return a->bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    return CUBLASLT_EPILOGUE_DEFAULT;
}

bool gemm_finishes(const struct gemm_args *a) {
    return choose_epilogue(a) != CUBLASLT_EPILOGUE_DEFAULT || (a->activation == ACTIVATION_NONE && a->bias == NULL);
}

void gemm_run(struct backend *b, const void *arguments) {
    const struct gemm_args *a = (const struct gemm_args *)arguments;
    struct gemm *g = cuda_of(b)->gemm;
    const struct shape s = {
        a->x_stride,        a->y_stride,        a->rows,  a->n_out,          a->n_in, alignment_of(a->x),
        alignment_of(a->w), alignment_of(a->y), a->dtype, choose_epilogue(a)};
    bool with_bias = s.epilogue != CUBLASLT_EPILOGUE_DEFAULT && a->bias != NULL;
    struct plan *p = find_plan(b, g, &s);
    if (p == NULL) return;
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    if (with_bias)
        code = lt.MatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &a->bias, sizeof a->bias);
    float one = 1, zero = 0;
    if (code == CUBLAS_STATUS_SUCCESS)
        code = lt.Matmul(g->library, p->product, &one, a->w, p->w, a->x, p->x, &zero, a->y, p->y, a->y, p->y,
                         &p->algorithm, g->workspace, GEMM_WORKSPACE_BYTES, cuda_of(b)->stream);
    if (code != CUBLAS_STATUS_SUCCESS && b->error.status == STATUS_OK)
        error_set(&b->error, STATUS_DEVICE, "cuBLASLt, [%d, %d] by [%d, %d]^T in %s: %s", a->rows, a->n_in, a->n_out,
                  a->n_in, dtype_name(a->dtype), lt.GetStatusString(code));
}
