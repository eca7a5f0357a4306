/* kernels/cuda/gemm_cublas.cu: Y = X W^T by cuBLASLt: the only file that knows it.
 *
 * The library is large and takes long to map, so it is opened with the first device and not linked:
 * a program that uses no GPU starts without it, and runs where there is none.
 *
 * cuBLASLt counts in columns: our row-major Y [rows, n_out] is its Y^T, n_out x rows, the product
 * of W^T transposed (n_out x n_in, stored n_in x n_out) and X^T (n_in x rows). The heuristics'
 * choice for a shape is kept; choosing allocates on the host, so the first step of a shape is
 * slower than the others. */
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
    struct gemm *gemm = (struct gemm *)xcalloc(1, sizeof *gemm);
    *out = gemm;
    static const char *const why = library_load(); /* once, whichever thread comes first */
    if (why)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: %s; install the CUDA toolkit's cuBLAS, or use \"cpu\"",
                         CUBLAS_LIBRARY, why);
    cublasStatus_t code = lt.Create(&gemm->library);
    if (code != CUBLAS_STATUS_SUCCESS) {
        gemm->library = NULL;
        return error_set(e, STATUS_DEVICE, "cuBLASLt does not start: %s", lt.GetStatusString(code));
    }
    if (cudaMalloc(&gemm->workspace, GEMM_WORKSPACE_BYTES) != cudaSuccess)
        return error_set(e, STATUS_NO_MEMORY,
                         "no device memory for cuBLASLt's workspace (%d bytes)",
                         GEMM_WORKSPACE_BYTES);
    return STATUS_OK;
}

static void plan_close(struct gemm_plan *plan) {
    if (plan->x) lt.MatrixLayoutDestroy(plan->x);
    if (plan->w) lt.MatrixLayoutDestroy(plan->w);
    if (plan->y) lt.MatrixLayoutDestroy(plan->y);
    if (plan->product) lt.MatmulDescDestroy(plan->product);
    *plan = (struct gemm_plan){};
}

void gemm_close(struct gemm *gemm) {
    if (gemm == NULL) return;
    for (auto &places : gemm->plans)
        for (struct gemm_plan &plan : places) plan_close(&plan);
    cudaFree(gemm->workspace);
    if (gemm->library) lt.Destroy(gemm->library);
    free(gemm);
}

static cudaDataType_t dtype_cuda(enum dtype dtype) {
    return dtype == DTYPE_F32 ? CUDA_R_32F : dtype == DTYPE_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

static bool epilogue_has_bias(cublasLtEpilogue_t epilogue) {
    return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_BIAS ||
           epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
}

/* `bias` is not read until the product runs, but the choice goes by how it is aligned; NULL for
 * none. It is of y's type, as the library takes it to be. */
static cublasStatus_t plan_describe(struct gemm_plan *plan, const float *bias) {
    const struct gemm_shape *shape = &plan->shape;
    cublasOperation_t transpose = CUBLAS_OP_T;
    cudaDataType_t type = dtype_cuda(shape->dtype);
    cublasStatus_t codes[] = {
        lt.MatmulDescCreate(&plan->product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        lt.MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                  sizeof transpose),
        lt.MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &shape->epilogue,
                                  sizeof shape->epilogue),
        lt.MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                  sizeof bias),
        lt.MatrixLayoutCreate(&plan->w, type, (uint64_t)shape->n_in, (uint64_t)shape->n_out,
                              shape->n_in),
        lt.MatrixLayoutCreate(&plan->x, type, (uint64_t)shape->n_in, (uint64_t)shape->rows,
                              shape->x_stride),
        lt.MatrixLayoutCreate(&plan->y, CUDA_R_32F, (uint64_t)shape->n_out, (uint64_t)shape->rows,
                              shape->y_stride)};
    for (cublasStatus_t code : codes)
        if (code != CUBLAS_STATUS_SUCCESS) return code;
    return CUBLAS_STATUS_SUCCESS;
}

/* The library's first choice within our workspace, for pointers no better aligned than ours. */
static cublasStatus_t plan_choose(struct gemm *gemm, struct gemm_plan *plan) {
    const struct gemm_shape *shape = &plan->shape;
    cublasLtMatmulPreference_t limits;
    cublasStatus_t code = lt.MatmulPreferenceCreate(&limits);
    if (code != CUBLAS_STATUS_SUCCESS) return code;
    uint64_t workspace = GEMM_WORKSPACE_BYTES;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        int value;
    } alignments[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape->w_alignment},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape->x_alignment},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape->y_alignment},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape->y_alignment}};
    code = lt.MatmulPreferenceSetAttribute(limits, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &workspace, sizeof workspace);
    for (auto &a : alignments) {
        uint32_t value = (uint32_t)a.value;
        if (code == CUBLAS_STATUS_SUCCESS)
            code = lt.MatmulPreferenceSetAttribute(limits, a.name, &value, sizeof value);
    }
    cublasLtMatmulHeuristicResult_t best = {};
    int found = 0;
    if (code == CUBLAS_STATUS_SUCCESS)
        code = lt.MatmulAlgoGetHeuristic(gemm->library, plan->product, plan->w, plan->x, plan->y,
                                         plan->y, limits, 1, &best, &found);
    lt.MatmulPreferenceDestroy(limits);
    plan->algorithm = best.algo;
    if (code != CUBLAS_STATUS_SUCCESS) return code;
    return found == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : best.state;
}

static unsigned shape_place(const struct gemm_shape *shape) {
    const unsigned char *bytes = (const unsigned char *)shape;
    uint64_t h = 0;
    for (size_t i = 0; i < sizeof *shape; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, bytes + i, sizeof word);
        h = (h ^ word) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 29;
    }
    return (unsigned)(h % (PLANS / WAYS));
}

/* The plan for a shape, made now or kept from before; another gives way. Where there is no
 * algorithm, that is kept too. No product is in it when it gives way: what was launched has its own
 * copy. */
static struct gemm_plan *plan_find(struct backend *backend, const struct gemm_shape *shape,
                                   const float *bias) {
    struct gemm *gemm = cuda_of(backend)->gemm;
    struct gemm_plan *places = gemm->plans[shape_place(shape)], *plan = NULL;
    for (int i = 0; i < WAYS; i++) {
        if (memcmp(&places[i].shape, shape, sizeof *shape) == 0) return &places[i];
        if (plan == NULL && places[i].shape.rows == 0) plan = &places[i];
    }
    if (plan == NULL) {
        plan = &places[gemm->replaced % WAYS];
        gemm->replaced++;
    }
    plan_close(plan);
    plan->shape = *shape;
    plan->chosen = cudaSetDevice(cuda_of(backend)->ordinal) == cudaSuccess
                       ? plan_describe(plan, bias)
                       : CUBLAS_STATUS_NOT_INITIALIZED;
    if (plan->chosen == CUBLAS_STATUS_SUCCESS) plan->chosen = plan_choose(gemm, plan);
    return plan;
}

/* The largest power of two that divides an address, as far as it matters. */
static int alignment_of(const void *p) {
    int alignment = MOST_ALIGNMENT;
    while ((uintptr_t)p % (uintptr_t)alignment) alignment /= 2;
    return alignment;
}

/* The epilogue that the library can add to a product, by its documentation. Its GELU is the tanh
 * form, with a hyperbolic tangent that is good enough for 16-bit weights but not for f32. The
 * others are the caller's. */
static cublasLtEpilogue_t epilogue_wanted(const struct gemm_args *args) {
    if (args->activation == ACTIVATION_NONE)
        return args->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    if (args->activation == ACTIVATION_GELU_TANH && args->dtype != DTYPE_F32)
        return args->bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    if (args->activation == ACTIVATION_RELU)
        return args->bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    return CUBLASLT_EPILOGUE_DEFAULT;
}

/* With what the library adds where it has an algorithm that does, else the product alone. */
static struct gemm_plan *plan_of(struct backend *backend, const struct gemm_args *args) {
    cublasLtEpilogue_t wanted = epilogue_wanted(args);
    bool one = args->rows == 1; /* whose stride may be anything */
    struct gemm_shape shape = {
        one ? args->n_in : args->x_stride,
        one ? args->n_out : args->y_stride,
        args->rows,
        args->n_out,
        args->n_in,
        alignment_of(args->x),
        alignment_of(args->w),
        alignment_of(args->y),
        epilogue_has_bias(wanted) ? alignment_of(args->bias) : MOST_ALIGNMENT,
        args->dtype,
        wanted,
        0};
    struct gemm_plan *plan =
        plan_find(backend, &shape, epilogue_has_bias(wanted) ? args->bias : NULL);
    if (plan->chosen == CUBLAS_STATUS_SUCCESS || wanted == CUBLASLT_EPILOGUE_DEFAULT) return plan;
    shape.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    shape.bias_alignment = MOST_ALIGNMENT;
    return plan_find(backend, &shape, NULL);
}

/* Asked when an op is listed, so that the library's choice is made by then and not while a step is
 * captured. */
bool gemm_finishes(struct backend *backend, const struct gemm_args *args) {
    cublasLtEpilogue_t wanted = epilogue_wanted(args);
    bool nothing = args->activation == ACTIVATION_NONE && args->bias == NULL;
    return plan_of(backend, args)->shape.epilogue == wanted &&
           (wanted != CUBLASLT_EPILOGUE_DEFAULT || nothing);
}

void gemm_run(struct backend *backend, const void *arguments) {
    const struct gemm_args *args = (const struct gemm_args *)arguments;
    struct gemm *gemm = cuda_of(backend)->gemm;
    struct gemm_plan *plan = plan_of(backend, args);
    cublasStatus_t code = plan->chosen;
    if (code == CUBLAS_STATUS_SUCCESS && epilogue_has_bias(plan->shape.epilogue))
        code = lt.MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                         &args->bias, sizeof args->bias);
    float one = 1, zero = 0;
    if (code == CUBLAS_STATUS_SUCCESS)
        code = lt.Matmul(gemm->library, plan->product, &one, args->w, plan->w, args->x, plan->x,
                         &zero, args->y, plan->y, args->y, plan->y, &plan->algorithm,
                         gemm->workspace, GEMM_WORKSPACE_BYTES, cuda_of(backend)->stream);
    if (code != CUBLAS_STATUS_SUCCESS && backend->error.status == STATUS_OK)
        error_set(&backend->error, STATUS_DEVICE, "cuBLASLt %s [%d, %d] by [%d, %d]^T in %s: %s",
                  plan->chosen ? "has no way to multiply" : "failed to multiply", args->rows,
                  args->n_in, args->n_out, args->n_in, dtype_name(args->dtype),
                  lt.GetStatusString(code));
}
