/* tests/cuda/test_cuda_ops.c: every op of the CUDA backend but attention, which is in
 * test_cuda_attention.c, against the CPU in plain loops, over awkward sizes.
 *
 * Argument arrays are destroyed right after each call, as the contract allows. */
#include "kernels/cuda/open.h"
#include "tests/cuda/cuda_ops.h"

/* Linear */

struct linear_case {
    int rows, n_out, n_in, gap;
    enum dtype dtype;
    enum activation activation;
    bool bias;
};

/* Where the product is the library's the device rounds x to the weight's type, so the reference
 * gets x rounded; the rest differs by the order of sums. */
static void check_linear(const struct linear_case *c) {
    if (!chosen()) return;
    struct both x = both_random(DTYPE_F32, c->rows, c->n_in, c->gap),
                y = both_empty(DTYPE_F32, c->rows, c->n_out, c->gap);
    struct both bias = both_vector(c->n_out);
    struct weight on_cpu = {.dtype = c->dtype, .n_out = c->n_out, .n_in = c->n_in},
                  on_device = on_cpu;
    struct host_matrix matrix = {.values = random_array((size_t)c->n_out * (size_t)c->n_in)};
    struct error e;
    assert_int_equal(backend_pack(reference, &on_cpu, &matrix, &e), STATUS_OK);
    assert_int_equal(backend_pack(device, &on_device, &matrix, &e), STATUS_OK);
    bool rounds = c->dtype != DTYPE_F32 && (c->rows > CUDA_FEW_ROWS || c->n_in % 4);
    for (int i = 0; i < c->rows && rounds; i++)
        for (int j = 0; j < c->n_in; j++) {
            uint16_t half;
            float v = tensor_get(x.host, i, j);
            dtype_convert(&half, c->dtype, &v, DTYPE_F32, 1);
            dtype_convert(&v, DTYPE_F32, &half, c->dtype, 1);
            tensor_set(x.host, i, j, v);
        }
    struct linear_args a = {
        .y = y.host, .x = x.host, .weight = &on_cpu, .activation = c->activation};
    if (c->bias) a.bias = bias.host.data;
    backend_linear(reference, &a);
    a.y = y.device;
    a.x = x.device;
    a.weight = &on_device;
    if (c->bias) a.bias = bias.device.data;
    backend_linear(device, &a);
    assert_both(y, 2e-5, "linear");
    backend_release(reference, on_cpu.data);
    backend_release(device, on_device.data);
    free((void *)(uintptr_t)matrix.values);
    both_free(x);
    both_free(y);
    both_free(bias);
}

static void test_linear_shapes(void **state) {
    (void)state;
    static const int rows[] = {0, 1, 2, 7, 65},
                     sizes[][2] = {{1, 1}, {3, 5}, {16, 32}, {61, 67}, {64, 48}, {128, 257}};
    for (size_t r = 0; r < ARRAY_COUNT(rows); r++)
        for (size_t s = 0; s < ARRAY_COUNT(sizes); s++)
            for (int dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++)
                for (int bias = 0; bias < 2; bias++)
                    check_linear(&(struct linear_case){.rows = rows[r],
                                                       .n_out = sizes[s][0],
                                                       .n_in = sizes[s][1],
                                                       .gap = (int)(r + s) % 3 * 2,
                                                       .dtype = (enum dtype)dtype,
                                                       .bias = bias});
}

static void test_linear_activations(void **state) {
    (void)state;
    for (int activation = ACTIVATION_NONE; activation <= ACTIVATION_SIGMOID; activation++)
        for (int bias = 0; bias < 2; bias++)
            for (int n_out = 19; n_out < 21; n_out++)
                check_linear(&(struct linear_case){.rows = 3,
                                                   .n_out = n_out,
                                                   .n_in = 24,
                                                   .dtype = DTYPE_F32,
                                                   .activation = (enum activation)activation,
                                                   .bias = bias});
}

/* Norm, add, glu */

static const int widths[] = {1, 2, 31, 32, 64, 257, 1024, 1028};
static const int row_counts[] = {0, 1, 3, 17};

static void check_norm(int rows, int cols, enum norm_kind kind, bool in_place) {
    if (!chosen()) return;
    struct both x = both_random(DTYPE_F32, rows, cols, cols % 4),
                y = both_empty(DTYPE_F32, rows, cols, 4);
    int skip = rows == 3; /* gamma and beta need not be aligned */
    struct both gamma = both_vector(cols + 1), beta = both_vector(cols + 1);
    struct norm_args a = {
        .y = in_place ? x.host : y.host, .x = x.host, .epsilon = 1e-5f, .kind = kind};
    a.gamma = (float *)gamma.host.data + skip;
    a.beta = kind == NORM_LAYER ? (float *)beta.host.data + skip : NULL;
    backend_norm(reference, &a);
    a.y = in_place ? x.device : y.device;
    a.x = x.device;
    a.gamma = (float *)gamma.device.data + skip;
    a.beta = kind == NORM_LAYER ? (float *)beta.device.data + skip : NULL;
    backend_norm(device, &a);
    assert_both(in_place ? x : y, 1e-5, "norm");
    both_free(x);
    both_free(y);
    both_free(gamma);
    both_free(beta);
}

static void test_norm(void **state) {
    (void)state;
    for (size_t w = 0; w < ARRAY_COUNT(widths); w++)
        for (size_t r = 0; r < ARRAY_COUNT(row_counts); r++)
            for (int kind = NORM_LAYER; kind <= NORM_RMS; kind++)
                check_norm(row_counts[r], widths[w], (enum norm_kind)kind, (w + r) % 2);
    static const int wide[] = {1027, 4096, 4100, 12292}; /* what a block's threads hold, and more */
    for (size_t w = 0; w < ARRAY_COUNT(wide); w++)
        for (int kind = NORM_LAYER; kind <= NORM_RMS; kind++)
            check_norm(2 + (int)w % 2, wide[w], (enum norm_kind)kind, kind == NORM_RMS);
}

/* Each head of a row by itself, in odd numbers with its own gamma, and columns of longer rows whose
 * squares are given. */
static void check_norm_heads(int rows, int heads, int head_dim, int gap) {
    if (!chosen()) return;
    int cols = heads * head_dim;
    struct both x = both_random(DTYPE_F32, rows, cols, gap),
                y = both_empty(DTYPE_F32, rows, cols, 4);
    struct both squares = both_empty(DTYPE_F32, rows, 2, 0), gamma = both_vector(cols);
    for (int i = 0; i < 2; i++) {
        struct backend *backend = i ? device : reference;
        struct norm_args a = {
            .y = i ? y.device : y.host, .x = i ? x.device : x.host, .epsilon = 1e-6f};
        a.kind = NORM_RMS;
        if (heads != 2) a.gamma = i ? gamma.device.data : gamma.host.data;
        a.heads = heads;
        a.each_head = heads % 2 == 1;
        backend_norm(backend, &a);
        a.heads = 0;
        a.squares = tensor_cols(i ? squares.device : squares.host, 1, 1);
        a.whole = 2 * cols;
        a.x = a.y;
        backend_square_rows(
            backend, &(struct square_rows_args){
                         .y = tensor_cols(i ? squares.device : squares.host, 0, 1), .x = a.x});
        backend_square_rows(backend, &(struct square_rows_args){.y = a.squares, .x = a.x});
        backend_norm(backend, &a);
    }
    assert_both(y, 2e-5, "a norm of heads");
    assert_both(squares, 1e-4 * cols, "sums of squares");
    both_free(x);
    both_free(y);
    both_free(squares);
    both_free(gamma);
}

static void test_norm_heads(void **state) {
    (void)state;
    for (size_t r = 0; r < ARRAY_COUNT(row_counts); r++) {
        check_norm_heads(row_counts[r], 1, 8, 0);
        check_norm_heads(row_counts[r], 5, 7, 1);
        check_norm_heads(row_counts[r], 3, 64, 64);
        check_norm_heads(row_counts[r], 2, 257, 4);
    }
}

static void check_clamp(int rows, int cols, int gap) {
    if (!chosen()) return;
    struct both x = both_random(DTYPE_F32, rows, cols, gap),
                y = both_random(DTYPE_F32, rows, cols, 0), bounds = both_vector(2);
    const float *host = bounds.host.data, *on_device = bounds.device.data;
    int least = host[0] < host[1] ? 0 : 1;
    backend_clamp(reference,
                  &(struct clamp_args){
                      .y = y.host, .x = x.host, .least = host + least, .most = host + 1 - least});
    backend_clamp(device, &(struct clamp_args){.y = y.device,
                                               .x = x.device,
                                               .least = on_device + least,
                                               .most = on_device + 1 - least});
    assert_both(y, 0, "a clamp");
    both_free(x);
    both_free(y);
    both_free(bounds);
}

static void test_clamp(void **state) {
    (void)state;
    for (size_t w = 0; w < ARRAY_COUNT(widths); w++)
        for (size_t r = 0; r < ARRAY_COUNT(row_counts); r++)
            check_clamp(row_counts[r], widths[w], (int)(w % 2) * 4);
}

static void check_softcap(int rows, int cols, int gap) {
    if (!chosen()) return;
    struct both x = both_random(DTYPE_F32, rows, cols, gap);
    backend_softcap(reference, &(struct softcap_args){.x = x.host, .cap = 0.3f});
    backend_softcap(device, &(struct softcap_args){.x = x.device, .cap = 0.3f});
    assert_both(x, 1e-6, "soft-cap");
    both_free(x);
}

static void test_softcap(void **state) {
    (void)state;
    for (size_t w = 0; w < ARRAY_COUNT(widths); w++)
        for (size_t r = 0; r < ARRAY_COUNT(row_counts); r++)
            check_softcap(row_counts[r], widths[w], (int)(w % 2) * 4);
}

static void check_scale(int rows, int cols, int gap, bool by) {
    if (!chosen()) return;
    struct both x = both_random(DTYPE_F32, rows, cols, gap), number = both_vector(1);
    struct scale_args args = {.x = x.host, .factor = -0.3f};
    if (by) args.by = number.host.data;
    backend_scale(reference, &args);
    args.x = x.device;
    if (by) args.by = number.device.data;
    backend_scale(device, &args);
    assert_both(x, 0, "scale");
    both_free(x);
    both_free(number);
}

static void test_scale(void **state) {
    (void)state;
    for (size_t w = 0; w < ARRAY_COUNT(widths); w++)
        for (size_t r = 0; r < ARRAY_COUNT(row_counts); r++)
            check_scale(row_counts[r], widths[w], (int)(w % 2) * 4, r % 2);
}

static void check_xielu(int rows, int cols, int gap) {
    if (!chosen()) return;
    struct both x = both_random(DTYPE_F32, rows, cols, gap),
                y = both_random(DTYPE_F32, rows, cols, 0),
                numbers[4] = {both_vector(1), both_vector(1), both_vector(1), both_vector(1)};
    backend_xielu(reference, &(struct xielu_args){.y = y.host,
                                                  .x = x.host,
                                                  .positive = numbers[0].host.data,
                                                  .negative = numbers[1].host.data,
                                                  .slope = numbers[2].host.data,
                                                  .least = numbers[3].host.data});
    backend_xielu(device, &(struct xielu_args){.y = y.device,
                                               .x = x.device,
                                               .positive = numbers[0].device.data,
                                               .negative = numbers[1].device.data,
                                               .slope = numbers[2].device.data,
                                               .least = numbers[3].device.data});
    assert_both(y, 1e-5, "xIELU");
    both_free(x);
    both_free(y);
    for (int i = 0; i < 4; i++) both_free(numbers[i]);
}

static void test_xielu(void **state) {
    (void)state;
    for (size_t w = 0; w < ARRAY_COUNT(widths); w++)
        for (size_t r = 0; r < ARRAY_COUNT(row_counts); r++)
            check_xielu(row_counts[r], widths[w], (int)(w % 2) * 4);
}

static void check_add(int rows, int cols, bool bias, bool scale, int target) {
    if (!chosen()) return;
    struct both a = both_random(DTYPE_F32, rows, cols, 4),
                b = both_random(DTYPE_F32, rows, cols, 4);
    struct both y = both_empty(DTYPE_F32, rows, cols, cols % 3), offset = both_vector(cols);
    float *scales = random_array((size_t)rows);
    size_t bytes = (size_t)rows * sizeof *scales;
    const struct both *into = target == 0 ? &y : target == 1 ? &a : &b;
    if (rows > 1) scales[1] = 0;
    if (rows > 1 && scale && target != 2) {
        tensor_set(b.host, 1, 0, NAN); /* a closed gate lets nothing through */
        backend_upload(device, b.device.data, b.host.data, tensor_bytes(b.host));
    }
    struct add_args args = {.y = into->host, .a = a.host, .b = b.host};
    args.bias = bias ? offset.host.data : NULL;
    args.row_scale = scale ? scales : NULL;
    args.scale = cols % 2 ? 0.22f : 0;
    backend_add(reference, &args);
    float *lent = lend(scales, bytes);
    args = (struct add_args){.y = into->device, .a = a.device, .b = b.device, .scale = args.scale};
    args.bias = bias ? offset.device.data : NULL;
    args.row_scale = scale ? lent : NULL;
    backend_add(device, &args);
    take_back(lent, bytes);
    assert_both(*into, 1e-6, "add");
    free(scales);
    both_free(a);
    both_free(b);
    both_free(y);
    both_free(offset);
}

static void test_add(void **state) {
    (void)state;
    for (size_t w = 0; w < ARRAY_COUNT(widths); w++)
        for (size_t r = 0; r < ARRAY_COUNT(row_counts); r++)
            for (int flags = 0; flags < 4; flags++)
                check_add(row_counts[r], widths[w], flags & 1, flags & 2, (int)(w + r) % 3);
}

/* A norm makes the sum in front of it on its way where that changes nothing: as many launches as
 * said. y is x, b, or `shift` columns beside b. */
static void check_add_and_norm(int cols, int gap, enum norm_kind kind, const char *target,
                               int shift, int launches) {
    if (!chosen()) return;
    enum { ROWS = 3 };
    struct both x = both_random(DTYPE_F32, ROWS, cols, gap),
                b = both_random(DTYPE_F32, ROWS, cols + shift, gap);
    struct both y = both_empty(DTYPE_F32, ROWS, cols, gap), gamma = both_vector(cols),
                bias = both_vector(cols);
    float scale[ROWS] = {1, 0, -0.5f};
    uint64_t before = device_launches();
    for (int i = 0; i < 2; i++) {
        struct backend *backend = i ? device : reference;
        struct tensor to = i ? x.device : x.host, beside = i ? b.device : b.host,
                      normed = i ? y.device : y.host;
        const float *shared = i ? bias.device.data : bias.host.data,
                    *weights = i ? gamma.device.data : gamma.host.data;
        struct tensor from = tensor_cols(beside, 0, cols);
        if (strcmp(target, "x") == 0) normed = to;
        if (strcmp(target, "b") == 0) normed = tensor_cols(beside, shift, cols);
        struct add_args sum = {.y = to, .a = to, .b = from, .bias = shared, .row_scale = scale};
        struct norm_args a = {
            .y = normed, .x = to, .gamma = weights, .epsilon = 1e-5f, .kind = kind};
        if (kind == NORM_LAYER) a.beta = shared;
        backend_add(backend, &sum);
        backend_norm(backend, &a);
    }
    device_sync();
    if (device_launches() > 0) assert_int_equal(device_launches() - before, launches);
    assert_both(x, strcmp(target, "x") == 0 ? 1e-5 : 0, "a sum before a norm");
    assert_both(b, 1e-5, "a norm in place of what was added");
    if (strcmp(target, "y") == 0) assert_both(y, 1e-5, "a norm of a sum");
    both_free(x);
    both_free(b);
    both_free(y);
    both_free(gamma);
    both_free(bias);
}

static void test_add_and_norm(void **state) {
    (void)state;
    for (int kind = NORM_LAYER; kind <= NORM_RMS; kind++) {
        check_add_and_norm(256, 4, (enum norm_kind)kind, "y", 0, 1);
        check_add_and_norm(4104, 0, (enum norm_kind)kind, "x", 0, 1);
        check_add_and_norm(36, 0, (enum norm_kind)kind, "b", 0, 1);
        check_add_and_norm(64, 0, (enum norm_kind)kind, "b", 8, 2);
        check_add_and_norm(33, 1, (enum norm_kind)kind, "y", 0, 2);
    }
}

static void test_glu(void **state) {
    (void)state;
    for (size_t w = 0; w < ARRAY_COUNT(widths); w++)
        for (int activation = ACTIVATION_NONE; activation <= ACTIVATION_SIGMOID; activation++) {
            int rows = row_counts[(w + (size_t)activation) % ARRAY_COUNT(row_counts)];
            struct both x = both_random(DTYPE_F32, rows, 2 * widths[w], activation % 2 * 4);
            struct both y = both_empty(DTYPE_F32, rows, widths[w], activation % 3);
            struct glu_args a = {
                .y = y.host, .x = x.host, .gating = {.activation = (enum activation)activation}};
            backend_glu(reference, &a);
            a.y = y.device;
            a.x = x.device;
            backend_glu(device, &a);
            assert_both(y, 1e-6, "glu");
            a.gating.plain = 1;
            a.x = tensor_cols(a.x, widths[w], widths[w]);
            backend_glu(device, &a);
            a.y = y.host;
            a.x = tensor_cols(x.host, widths[w], widths[w]);
            backend_glu(reference, &a);
            assert_both(y, 1e-6, "a plain unit");
            both_free(x);
            both_free(y);
        }
}

static void check_heads(int rows, const int shape[4], enum dtype dtype) {
    if (!chosen()) return;
    enum { HEADS = 8 };
    int heads = shape[0], n_out = shape[1], n_in = shape[2], kept = shape[3];
    struct both x = both_random(DTYPE_F32, rows, heads * (n_in + kept + 1), rows % 3),
                y = both_empty(DTYPE_F32, rows, heads * (n_out + kept), 2);
    struct weight on_cpu[HEADS], on_device[HEADS];
    struct error e;
    for (int i = 0; i < heads; i++) {
        struct host_matrix matrix = {.values = random_array((size_t)n_out * (size_t)n_in)};
        on_cpu[i] = on_device[i] = (struct weight){.dtype = dtype, .n_out = n_out, .n_in = n_in};
        assert_int_equal(backend_pack(reference, &on_cpu[i], &matrix, &e), STATUS_OK);
        assert_int_equal(backend_pack(device, &on_device[i], &matrix, &e), STATUS_OK);
        free((void *)(uintptr_t)matrix.values);
    }
    struct linear_heads_args a = {
        .y = y.host, .x = x.host, .weights = on_cpu, .heads = heads, .kept = kept};
    backend_linear_heads(reference, &a);
    a.y = y.device;
    a.x = x.device;
    a.weights = on_device;
    backend_linear_heads(device, &a);
    assert_both(y, 2e-5, "linear_heads");
    for (int i = 0; i < heads; i++) {
        backend_release(reference, on_cpu[i].data);
        backend_release(device, on_device[i].data);
    }
    both_free(x);
    both_free(y);
}

static void test_linear_heads(void **state) {
    (void)state;
    static const int shapes[][4] = {{1, 1, 1, 0}, {4, 24, 12, 8}, {3, 20, 24, 0}, {8, 64, 32, 300}};
    for (int rows = 0; rows <= 9; rows += 3)
        for (size_t s = 0; s < ARRAY_COUNT(shapes); s++) check_heads(rows, shapes[s], DTYPE_F32);
}

/* Embed, rope */

static void check_embed(int rows, int cols, enum dtype dtype, bool position, bool type) {
    if (!chosen()) return;
    enum { VOCAB = 41, POSITIONS = 13 };
    struct both y = both_empty(DTYPE_F32, rows, cols, 4),
                at = both_random(DTYPE_F32, POSITIONS, cols, 4);
    struct both kind = both_random(DTYPE_F32, 2, cols, 0);
    struct weight on_cpu = {.dtype = dtype, .n_out = VOCAB, .n_in = cols}, on_device = on_cpu;
    struct host_matrix matrix = {.values = random_array((size_t)VOCAB * (size_t)cols)};
    int32_t ids[32], positions[32];
    struct error e;
    for (int i = 0; i < rows; i++) {
        ids[i] = i == 0 ? VOCAB - 1 : random_int(VOCAB);
        positions[i] = i == 0 ? POSITIONS - 1 : random_int(POSITIONS);
    }
    assert_int_equal(backend_pack(reference, &on_cpu, &matrix, &e), STATUS_OK);
    assert_int_equal(backend_pack(device, &on_device, &matrix, &e), STATUS_OK);
    struct embed_args a = {.y = y.host, .word = &on_cpu, .ids = ids, .positions = positions};
    a.scale = rows % 3 == 0 ? 5.5f : 0;
    a.position = position ? &at.host : NULL;
    a.type = type ? &kind.host : NULL;
    backend_embed(reference, &a);
    size_t bytes = (size_t)rows * sizeof *ids;
    int32_t *lent_ids = lend(ids, bytes), *lent_positions = lend(positions, bytes);
    a = (struct embed_args){
        .y = y.device, .word = &on_device, .ids = lent_ids, .positions = lent_positions};
    a.scale = rows % 3 == 0 ? 5.5f : 0;
    a.position = position ? &at.device : NULL;
    a.type = type ? &kind.device : NULL;
    backend_embed(device, &a);
    take_back(lent_ids, bytes);
    take_back(lent_positions, bytes);
    assert_both(y, 0, "embed");
    backend_release(reference, on_cpu.data);
    backend_release(device, on_device.data);
    free((void *)(uintptr_t)matrix.values);
    both_free(y);
    both_free(at);
    both_free(kind);
}

static void test_embed(void **state) {
    (void)state;
    for (size_t w = 0; w < ARRAY_COUNT(widths); w++)
        for (size_t r = 0; r < ARRAY_COUNT(row_counts); r++)
            check_embed(row_counts[r], widths[w], (enum dtype)((w + r) % 3), w % 2, r % 2);
}

/* Rows of one position, or of several that the pairs take in turn. */
static void check_rope(const int *shape, int rows, int sections, bool interleaved) {
    if (!chosen()) return;
    int heads = shape[0], head_dim = shape[1], rotated = shape[2];
    struct both x = both_random(DTYPE_F32, rows, heads * head_dim, 3);
    int32_t positions[32 * 3];
    uint8_t section_of[ATTENTION_MAX_HEAD / 2];
    float *frequencies = random_array((size_t)rotated / 2);
    for (int i = 0; i < rows * sections; i++) positions[i] = i == 0 ? 131071 : random_int(5000);
    for (int i = 0; i < rotated / 2; i++)
        frequencies[i] = powf(10000, -2.0f * (float)i / (float)rotated);
    for (int i = 0; i < rotated / 2; i++) section_of[i] = (uint8_t)(i % sections);
    struct rope_args a = {
        .x = x.host, .positions = positions, .inv_freq = frequencies, .heads = heads};
    a.section_of = sections > 1 ? section_of : NULL;
    a.sections = sections;
    a.head_dim = head_dim;
    a.first = interleaved ? head_dim - rotated : 0;
    a.rotated = rotated;
    a.interleaved = interleaved;
    a.scale = interleaved ? 1.2f : 0;
    a.growth = 0.3f;
    a.grows_after = rows % 2 ? 700 : 0;
    backend_rope(reference, &a);
    size_t position_bytes = (size_t)(rows * sections) * sizeof *positions,
           pairs = (size_t)rotated / 2;
    int32_t *lent = lend(positions, position_bytes);
    float *lent_frequencies = lend(frequencies, pairs * sizeof(float));
    uint8_t *lent_sections = lend(section_of, pairs);
    a.x = x.device;
    a.positions = lent;
    a.inv_freq = lent_frequencies;
    if (sections > 1) a.section_of = lent_sections;
    backend_rope(device, &a);
    take_back(lent, position_bytes);
    take_back(lent_frequencies, pairs * sizeof(float));
    take_back(lent_sections, pairs);
    assert_both(x, 1e-6, "rope");
    free(frequencies);
    both_free(x);
}

static void test_rope(void **state) {
    (void)state;
    static const int shapes[][3] = {{1, 2, 2},    {3, 8, 4},     {4, 7, 6}, {5, 64, 64},
                                    {2, 128, 32}, {1, 512, 512}, {2, 8, 0}};
    for (size_t i = 0; i < ARRAY_COUNT(shapes); i++)
        for (size_t r = 0; r < ARRAY_COUNT(row_counts); r++)
            for (int sections = 1; sections <= 3; sections += 2)
                check_rope(shapes[i], row_counts[r], sections, (i + r) % 2);
}

/* Gather, scatter, mean */

static void check_move(bool scatter, int n, int cols, enum dtype to, enum dtype from) {
    if (!chosen()) return;
    enum { PLACES = 23 };
    struct both y = both_random(to, scatter ? PLACES : n, cols, 4),
                x = both_random(from, scatter ? n : PLACES, cols, 4);
    int32_t rows[64];
    for (int i = 0; i < n; i++) rows[i] = n % 2 ? random_int(PLACES + 1) - 1 : i % (PLACES + 1) - 1;
    size_t bytes = (size_t)n * sizeof *rows;
    int32_t *lent = lend(rows, bytes);
    if (scatter) {
        backend_scatter_rows(reference,
                             &(struct scatter_rows_args){.y = y.host, .x = x.host, .rows = rows});
        backend_scatter_rows(
            device, &(struct scatter_rows_args){.y = y.device, .x = x.device, .rows = lent});
    } else {
        backend_gather_rows(reference,
                            &(struct gather_rows_args){.y = y.host, .x = x.host, .rows = rows});
        backend_gather_rows(device,
                            &(struct gather_rows_args){.y = y.device, .x = x.device, .rows = lent});
    }
    take_back(lent, bytes);
    assert_both(y, 0, scatter ? "scatter_rows" : "gather_rows");
    both_free(x);
    both_free(y);
}

static void test_gather_and_scatter(void **state) {
    (void)state;
    static const int counts[] = {0, 1, 12, 47, 63};
    for (size_t w = 0; w < ARRAY_COUNT(widths) - 2; w++)
        for (size_t c = 0; c < ARRAY_COUNT(counts); c++)
            for (int types = 0; types < 9; types++)
                check_move((w + c + (size_t)types) % 2, counts[c], widths[w],
                           (enum dtype)(types / 3), (enum dtype)(types % 3));
}

/* Two scatters to the same rows are one launch, unless one touches what the other writes. */
static void test_scatter_twice(void **state) {
    (void)state;
    enum { PLACES = 9, N = 4, COLS = 12 };
    static const int32_t rows[N] = {7, -1, 0, 3};
    for (int kind = 0; kind < 3;
         kind++) { /* apart; the second one's x is the first one's y; both write the same */
        if (!chosen()) continue;
        struct both y = both_random(DTYPE_BF16, PLACES, COLS, 0),
                    z = both_random(DTYPE_BF16, PLACES, COLS, 0);
        struct both x = both_random(DTYPE_F32, N, 2 * COLS, 4), other = kind == 2 ? y : z;
        uint64_t before = device_launches();
        for (int i = 0; i < 2; i++) {
            struct backend *backend = i ? device : reference;
            struct tensor from = i ? x.device : x.host, to = i ? y.device : y.host;
            struct tensor second =
                kind == 1 ? tensor_rows(to, 0, N) : tensor_cols(from, COLS, COLS);
            backend_scatter_rows(backend,
                                 &(struct scatter_rows_args){
                                     .y = to, .x = tensor_cols(from, 0, COLS), .rows = rows});
            to = i ? other.device : other.host;
            backend_scatter_rows(backend,
                                 &(struct scatter_rows_args){.y = to, .x = second, .rows = rows});
        }
        device_sync();
        if (device_launches() > 0) assert_int_equal(device_launches() - before, kind == 0 ? 1 : 2);
        assert_both(y, 0, "the first of two scatters");
        assert_both(z, 0, "the second of two scatters");
        both_free(x);
        both_free(y);
        both_free(z);
    }
}

static void test_mean_rows(void **state) {
    (void)state;
    static const int32_t starts[] = {0, 1, 1, 5, 30};
    enum { RUNS = 4 };
    for (size_t w = 0; w < ARRAY_COUNT(widths); w++)
        for (int normalize = 0; normalize < 2; normalize++)
            for (int runs = 0; runs <= RUNS; runs += RUNS) {
                struct both x = both_random(DTYPE_F32, 31, widths[w], 3),
                            y = both_empty(DTYPE_F32, runs, widths[w], 1);
                int32_t *lent = lend(starts, sizeof starts);
                backend_mean_rows(reference,
                                  &(struct mean_rows_args){y.host, x.host, starts, normalize});
                backend_mean_rows(device,
                                  &(struct mean_rows_args){y.device, x.device, lent, normalize});
                take_back(lent, sizeof starts);
                assert_both(y, 1e-6, "mean_rows");
                both_free(x);
                both_free(y);
            }
}

/* Sample */

enum { SAMPLE_ROWS = 4 };

static void check_sample(struct both logits, int n_vocab, const struct sample_params *params) {
    if (!chosen()) return;
    int rows = logits.host.rows;
    int32_t ids[2][SAMPLE_ROWS];
    float logprobs[2][SAMPLE_ROWS];
    size_t bytes = (size_t)rows * sizeof *params;
    struct sample_params *lent = lend(params, bytes);
    backend_sample(reference,
                   &(struct sample_args){logits.host, params, n_vocab, ids[0], logprobs[0]});
    backend_sample(device,
                   &(struct sample_args){logits.device, lent, n_vocab, ids[1], logprobs[1]});
    take_back(lent, bytes);
    device_sync();
    for (int i = 0; i < rows; i++) {
        const struct sample_params *p = &params[i];
        if (ids[0][i] != ids[1][i])
            fail_msg(
                "token %d, expected %d: vocabulary %d, temperature %g, top_k %d, top_p %g, min_p "
                "%g, draw %d",
                ids[1][i], ids[0][i], n_vocab, (double)p->temperature, p->top_k, (double)p->top_p,
                (double)p->min_p, (int)p->draw);
        if (isfinite(logprobs[0][i]))
            assert_true(fabsf(logprobs[0][i] - logprobs[1][i]) <=
                        1e-5f * fmaxf(1, fabsf(logprobs[0][i])));
        else
            assert_true(logprobs[0][i] == logprobs[1][i]);
    }
}

static struct sample_params random_params(int n_vocab) {
    static const float temperatures[] = {0, 1e-3f, 0.7f, 1, 1, 5},
                       tops[] = {1, 1, 0.95f, 0.5f, 1e-7f, 0.999999f};
    static const float minima[] = {0, 0, 0.05f, 1};
    struct sample_params p = {.temperature = temperatures[random_int(6)],
                              .top_p = tops[random_int(6)]};
    p.min_p = minima[random_int(4)];
    p.top_k = random_int(3) ? 0 : 1 + random_int(n_vocab + 3);
    p.seed = (uint64_t)random_bits() << 32 | random_bits();
    p.draw = random_bits() % 1000;
    return p;
}

/* Plain numbers; few distinct values, so that many ids tie on every cut; and what a broken model
 * may produce. */
static float random_logit(int kind) {
    static const float odd[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 3e38f, -3e38f, 1e-40f};
    if (kind == 0) return 12 * random_value();
    if (kind == 1) return (float)random_int(4);
    return random_int(4) ? 5 * random_value() : odd[random_int(8)];
}

static void test_sample(void **state) {
    (void)state;
    static const int vocabularies[] = {1, 2, 250, 1025, 5003};
    for (size_t v = 0; v < ARRAY_COUNT(vocabularies); v++)
        for (int kind = 0; kind < 3; kind++)
            for (int round = 0; round < 2; round++) {
                int n = vocabularies[v];
                struct tensor t = padded_tensor(DTYPE_F32, SAMPLE_ROWS, n + 5, round);
                struct sample_params params[SAMPLE_ROWS];
                for (int i = 0; i < SAMPLE_ROWS; i++) {
                    params[i] = random_params(n);
                    for (int j = 0; j < n; j++) tensor_set(t, i, j, random_logit(kind));
                    for (int j = n; j < n + 5; j++)
                        tensor_set(t, i, j, 1e9f); /* padding: never drawn */
                }
                struct both logits = both_copy(t);
                check_sample(logits, n, params);
                both_free(logits);
            }
}

/* More slices of the vocabulary than a block has threads, with ties on every cut that reach across
 * them. */
static void test_sample_large(void **state) {
    (void)state;
    if (schedule != 0) return;
    enum { N = 2048 * 257 + 5 };
    struct tensor t = padded_tensor(DTYPE_F32, 2, N, 1);
    for (int j = 0; j < N; j++) {
        tensor_set(t, 0, j, random_logit(1));
        tensor_set(t, 1, j, random_logit(0));
    }
    struct both logits = both_copy(t);
    for (int round = 0; round < 2; round++)
        check_sample(
            logits, N,
            (struct sample_params[]){
                {.temperature = 1,
                 .top_p = 0.9f,
                 .top_k = 300000,
                 .min_p = 0.01f,
                 .seed = 7,
                 .draw = round},
                {.temperature = 0.8f, .top_p = round ? 1 : 0.97f, .seed = 8, .draw = round}});
    both_free(logits);
}

/* Edits draw what the CPU draws, and leave the logits and the log-probabilities as they were. */
static void test_sample_edits(void **state) {
    (void)state;
    enum { N = 5003, EDITS = 600 };
    static struct logit_edit edits[SAMPLE_ROWS][EDITS];
    for (int round = 0; round < 4; round++) {
        struct tensor t = padded_tensor(DTYPE_F32, SAMPLE_ROWS, N + 5, round);
        struct sample_params params[SAMPLE_ROWS];
        for (int i = 0; i < SAMPLE_ROWS; i++) {
            params[i] = random_params(N);
            params[i].edits = edits[i];
            params[i].n_edits = i == round ? 0 : EDITS - 100 * i;
            for (int j = 0; j < N + 5; j++)
                tensor_set(t, i, j, random_logit(j < N ? round % 3 : 0));
            for (int j = 0; j < EDITS; j++) {
                float bias = random_int(5) ? 3 * random_value() : -INFINITY;
                edits[i][j] = (struct logit_edit){
                    .id = j * 8 + i, .bias = bias, .repetition = 0.5f + (float)random_int(3)};
                edits[i][j].penalty = random_value();
            }
        }
        struct both logits = both_copy(t);
        check_sample(logits, N, params);
        assert_both(logits, 0, "logits after edits");
        both_free(logits);
    }
}

/* Masks of some rows, with edits and without. */
static void test_sample_masks(void **state) {
    (void)state;
    enum { N = 5003 };
    static uint32_t masks[SAMPLE_ROWS][N / 32 + 1];
    for (int round = 0; round < 6; round++) {
        struct tensor t = padded_tensor(DTYPE_F32, SAMPLE_ROWS, N + 5, round % 2);
        struct sample_params params[SAMPLE_ROWS];
        struct logit_edit edit = {.id = 17, .bias = 3, .repetition = 1.5f};
        memset(masks, 0, sizeof masks);
        for (int i = 0; i < SAMPLE_ROWS; i++) {
            params[i] = random_params(N);
            if (i != round) params[i].mask = masks[i];
            if (i == 1 && round > 3) params[i].edits = &edit;
            params[i].n_edits = params[i].edits != NULL;
            for (int j = 0; j < N + 5; j++)
                tensor_set(t, i, j, random_logit(j < N ? round % 2 : 0));
            for (int j = random_int(N); j < N; j += 1 + random_int(round % 2 ? 3 : 900))
                masks[i][j / 32] |= (uint32_t)1 << (j % 32);
        }
        struct both logits = both_copy(t);
        check_sample(logits, N, params);
        assert_both(logits, 0, "logits after masks");
        both_free(logits);
    }
}

static void test_sample_empty(void **state) {
    (void)state;
    struct both logits = both_empty(DTYPE_F32, 0, 10, 0);
    check_sample(logits, 10, NULL);
    both_free(logits);
}

/* The contract around the ops */

/* More arrays than the ring of arguments holds at once, all different, enqueued without waiting.
 * The ring is the host's: the order of threads cannot matter, so one schedule is enough. */
static void test_many_arguments(void **state) {
    (void)state;
    if (schedule != 0) return;
    enum { MANY = 1 << 18, ROUNDS = 17, PLACES = 8 };
    struct both x = both_random(DTYPE_F32, PLACES, 1, 0), y[ROUNDS];
    int32_t *rows = xmalloc(MANY * sizeof *rows);
    for (int round = 0; round < ROUNDS; round++) {
        y[round] = both_empty(DTYPE_F32, MANY, 1, 0);
        for (int i = 0; i < MANY; i++) rows[i] = random_int(PLACES + 1) - 1;
        backend_gather_rows(
            reference, &(struct gather_rows_args){.y = y[round].host, .x = x.host, .rows = rows});
        backend_gather_rows(
            device, &(struct gather_rows_args){.y = y[round].device, .x = x.device, .rows = rows});
    }
    memset(rows, 0, MANY * sizeof *rows);
    for (int round = 0; round < ROUNDS; round++) {
        assert_both(y[round], 0, "gather_rows");
        both_free(y[round]);
    }
    both_free(x);
    free(rows);
}

/* The first failure sticks, later ops do nothing, sync reports it once. */
static void test_failures_stick(void **state) {
    (void)state;
    enum { ROWS = 2000000 };
    struct both x = both_random(DTYPE_F32, 1, 1, 0), y = both_empty(DTYPE_F32, ROWS, 1, 0);
    int32_t *rows = xcalloc(ROWS, sizeof *rows);
    struct error e = {0};
    device_sync();
    backend_gather_rows(device,
                        &(struct gather_rows_args){.y = y.device, .x = x.device, .rows = rows});
    y.device.rows = 1;
    backend_gather_rows(device,
                        &(struct gather_rows_args){.y = y.device, .x = x.device, .rows = rows});
    assert_int_equal(backend_sync(device, &e), STATUS_TOO_LARGE);
    assert_non_null(strstr(e.text, "limit"));
    float found;
    backend_download(device, &found, y.device.data, sizeof found);
    device_sync();
    assert_true(isnan(found));
    free(rows);
    both_free(x);
    both_free(y);
}

static void test_memory(void **state) {
    (void)state;
    struct error e = {0};
    void *p = NULL;
    assert_int_equal(backend_alloc(device, &p, 1000, "a test", &e), STATUS_OK);
    assert_int_equal((uintptr_t)p % 64, 0);
    char host[1000];
    memset(host, 1, sizeof host);
    backend_download(device, host, p, sizeof host);
    device_sync();
    for (size_t i = 0; i < sizeof host; i++) assert_int_equal(host[i], 0);
    backend_release(device, p);
    assert_int_equal(backend_alloc(device, &p, SIZE_MAX - 5, "a test", &e), STATUS_NO_MEMORY);
    assert_non_null(strstr(e.text, "a test"));
    assert_non_null(strstr(backend_describe(device), "cuda:0"));
}

/* A weight of several pieces, the last a short one. */
static void test_pack_large(void **state) {
    (void)state;
    if (schedule != 0) return;
    enum { OUT = 5, IN = (1 << 20) - 8 };
    size_t n = (size_t)OUT * IN;
    float *host = random_array(n);
    uint16_t *expected = xmalloc(n * sizeof *expected), *found = xmalloc(n * sizeof *found);
    struct weight w = {.dtype = DTYPE_BF16, .n_out = OUT, .n_in = IN};
    struct error e;
    if (backend_pack(device, &w, &(struct host_matrix){.values = host}, &e)) fail_msg("%s", e.text);
    dtype_convert(expected, DTYPE_BF16, host, DTYPE_F32, n);
    backend_download(device, found, w.data, n * sizeof *found);
    device_sync();
    assert_memory_equal(found, expected, n * sizeof *found);
    backend_release(device, w.data);
    free(host);
    free(expected);
    free(found);
}

#if HAVE_CUDA_HOST
/* The findings and orders of a test's watch. */
struct watched {
    int looks;
    bool gone;
};

static enum status look(void *context, double waited, struct error *e) {
    struct watched *w = context;
    w->looks++;
    cuda_host_lag(0);
    if (waited <= 0) return error_set(e, STATUS_INVALID, "asked at once");
    return w->gone ? error_set(e, STATUS_DEVICE, "rank 1 is gone") : STATUS_OK;
}

/* The watch is asked while the device takes long, and can end the wait; then all goes on. */
static void test_watched_wait(void **state) {
    (void)state;
    struct both x = both_random(DTYPE_F32, 3, 5, 0), y = both_empty(DTYPE_F32, 3, 5, 0);
    struct watched w = {0};
    struct error e = {0};
    cuda_watch_set(device, (struct cuda_watch){look, &w});
    for (int round = 0; round < 3; round++) {
        w.gone = round == 1;
        backend_add(reference, &(struct add_args){.y = y.host, .a = x.host, .b = x.host});
        backend_add(device, &(struct add_args){.y = y.device, .a = x.device, .b = x.device});
        if (round < 2) cuda_host_lag(UINT64_MAX);
        assert_int_equal(backend_sync(device, &e), w.gone ? STATUS_DEVICE : STATUS_OK);
        assert_int_equal(w.looks, round == 0 ? 1 : 2);
    }
    assert_string_equal(e.text, "rank 1 is gone");
    uint64_t captured, launched;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 20; i++)
            backend_add(device, &(struct add_args){.y = y.device, .a = x.device, .b = x.device});
        device_sync();
    }
    cuda_graph_counts(device, &captured, &launched);
    assert_true(captured == 0 && launched == 0);
    assert_both(y, 0, "after a wait that ended");
    cuda_watch_set(device, (struct cuda_watch){NULL, NULL});
    both_free(x);
    both_free(y);
}
#endif

/* The figures of a GPU are its own affair; here, that they are taken at all. */
static void test_measure(void **state) {
    (void)state;
    struct cuda_limits limits = {0};
    struct error e;
    if (cuda_measure(device, 1 << 16, 24, &limits, &e)) fail_msg("%s", e.text);
    assert_true(limits.copy_gbps > 0 && isfinite(limits.copy_gbps));
    assert_true(limits.gemm_tflops > 0 && isfinite(limits.gemm_tflops));
    assert_int_equal(cuda_measure(device, SIZE_MAX / 4, 24, &limits, &e), STATUS_NO_MEMORY);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        TEST(test_linear_shapes),
        TEST(test_linear_activations),
        TEST(test_linear_heads),
        TEST(test_norm),
        TEST(test_norm_heads),
        TEST(test_softcap),
        TEST(test_clamp),
        TEST(test_xielu),
        TEST(test_scale),
        TEST(test_add),
        TEST(test_add_and_norm),
        TEST(test_glu),
        TEST(test_embed),
        TEST(test_rope),
        TEST(test_gather_and_scatter),
        TEST(test_scatter_twice),
        TEST(test_mean_rows),
        TEST(test_sample),
        TEST(test_sample_large),
        TEST(test_sample_edits),
        TEST(test_sample_masks),
        TEST(test_sample_empty),
        TEST(test_many_arguments),
        TEST(test_failures_stick),
        TEST(test_memory),
        TEST(test_pack_large),
#if HAVE_CUDA_HOST
        TEST(test_watched_wait),
#endif
        TEST(test_measure)
    };
    RUN_TESTS(argc, argv, tests);
}
