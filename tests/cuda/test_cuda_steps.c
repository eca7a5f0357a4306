/* tests/cuda/test_cuda_steps.c: models on the CUDA backend, step by step. Steps as graphs: the same
 * bits as op by op, few graphs for many steps, and old graphs that give way. Quantised models: the
 * CPU's logits of the same weights. Without an argument on the emulated device; `test_cuda_steps
 * cuda:0` on a GPU. */
#include <unistd.h>

#include "kernels/cuda/open.h"
#include "retro/run/session/session.h"
#include "tests/cuda/cuda_ops.h"
#include "tools/convert/sink/sink.h"

enum { SESSIONS = 2, PROMPT = 5, LONG_PROMPT = 12, STEPS = 43, MOST_VOCAB = 1024, NEIGHBORS = 2 };

/* The model and the device that a fixture opens. */
struct steps_subject {
    const char *folder, *device;
    struct model_options options;
    bool eager;
    int prompt, neighbors; /* neighbors: of every chunk */
};

struct steps_fixture {
    struct steps_subject subject;
    struct backend *backend;
    struct comm *comm;
    struct model *model;
    struct session_pool *pool;
    struct session *sessions[SESSIONS];
};

static void fixture_open(struct steps_fixture *f, const struct steps_subject *s) {
    struct error e = {0};
    struct session_limits limits = {.max_sessions = SESSIONS,
                                    .max_tokens = s->prompt + STEPS,
                                    .max_step_rows = SESSIONS * s->prompt,
                                    .max_logit_rows = SESSIONS,
                                    .max_neighbors = NEIGHBORS,
                                    .kv_dtype = DTYPE_F32};
    f->subject = *s;
    if (backend_open(&f->backend, s->device, &(struct backend_options){.eager = s->eager}, &e) ||
        comm_open_single(&f->comm, &e) ||
        model_open(&f->model, s->folder, f->backend, f->comm, &s->options, &e) ||
        session_pool_open(&f->pool, f->model, &limits, &e))
        fail_msg("%s", e.text);
    for (int i = 0; i < SESSIONS; i++)
        if (session_open(&f->sessions[i], f->pool,
                         grid_make(GRID_END, s->prompt, model_info(f->model)->chunk_length), &e))
            fail_msg("%s", e.text);
}

static void fixture_close(struct steps_fixture *f) {
    for (int i = 0; i < SESSIONS; i++) session_close(f->sessions[i]);
    session_pool_close(f->pool);
    model_close(f->model);
    comm_close(f->comm);
    backend_close(f->backend);
}

/* The step at row `at`: the prompt, or one token a session; the logits of the last. Arrays are
 * other ones in each step, as in a server. */
static void fixture_step(struct steps_fixture *f, int at, float *logits) {
    struct error e = {0};
    const struct model_info *info = model_info(f->model);
    int rows = at ? 1 : f->subject.prompt;
    int32_t *tokens = xmalloc(SESSIONS * LONG_PROMPT * sizeof *tokens), found[NEIGHBORS * 64];
    struct neighbor_tokens neighbors[LONG_PROMPT];
    struct step_item items[SESSIONS];
    struct tensor out;
    assert_true(info->retrieved_length <= 64 && info->padded_vocab <= MOST_VOCAB);
    for (int i = 0; i < NEIGHBORS * info->retrieved_length; i++)
        found[i] = (at * 31 + i * 7) % info->vocab;
    for (int i = 0; i < LONG_PROMPT; i++)
        neighbors[i] = (struct neighbor_tokens){found, f->subject.neighbors};
    for (int i = 0; i < SESSIONS; i++) {
        for (int j = 0; j < rows; j++)
            tokens[i * LONG_PROMPT + j] = ((at + j) * 17 + i * 5) % info->vocab;
        items[i] = (struct step_item){.session = f->sessions[i],
                                      .tokens = tokens + i * LONG_PROMPT,
                                      .n_tokens = rows,
                                      .neighbors = neighbors,
                                      .n_logits = 1};
    }
    if (session_step(f->pool, items, SESSIONS, &out, &e)) fail_msg("%s", e.text);
    backend_download(f->backend, logits, out.data,
                     SESSIONS * (size_t)info->padded_vocab * sizeof *logits);
    if (backend_sync(f->backend, &e)) fail_msg("%s", e.text);
    free(tokens);
}

/* Chunks of 8: seven plain steps and one that closes a chunk of both sessions, again and again. */
static void test_steps(void **state) {
    (void)state;
    struct steps_fixture eager, graphs;
    static float expected[SESSIONS * MOST_VOCAB], found[SESSIONS * MOST_VOCAB];
    uint64_t captured, launched;
    struct steps_subject subject = {.folder = "tests/golden/retro/case_a",
                                    .device = device_name,
                                    .options = {.convert = true, .dtype = DTYPE_F32},
                                    .eager = true,
                                    .prompt = PROMPT,
                                    .neighbors = NEIGHBORS};
    fixture_open(&eager, &subject);
    subject.eager = false;
    fixture_open(&graphs, &subject);
    size_t bytes = SESSIONS * (size_t)model_info(eager.model)->padded_vocab * sizeof *found;
    for (int at = 0; at < PROMPT + STEPS; at += at ? 1 : PROMPT) {
        fixture_step(&eager, at, expected);
        fixture_step(&graphs, at, found);
        assert_memory_equal(found, expected, bytes);
    }
    cuda_graph_counts(eager.backend, &captured, &launched);
    assert_int_equal(captured, 0);
    assert_int_equal(launched, 0);
    /* One for plain steps and one for those that close; the prompt and the first of each kind ran
     * op by op. */
    cuda_graph_counts(graphs.backend, &captured, &launched);
    assert_int_equal(captured, 2);
    assert_int_equal(launched, STEPS - 2);
    fixture_close(&eager);
    fixture_close(&graphs);
}

/* More different lists than are kept, each three times; what comes out is right each time. */
static void test_old_graphs_give_way(void **state) {
    (void)state;
    enum { LISTS = 70, OPS = 9, ROUNDS = 3 };
    uint64_t captured, launched;
    open_both();
    struct both x = both_random(DTYPE_F32, LISTS, 3, 0), y = both_empty(DTYPE_F32, LISTS, 3, 0);
    int32_t rows[LISTS];
    for (int n = 1; n <= LISTS; n++)
        for (int round = 0; round < ROUNDS; round++) {
            for (int i = 0; i < n; i++) rows[i] = random_int(LISTS);
            struct tensor host = tensor_rows(y.host, 0, n), there = tensor_rows(y.device, 0, n);
            backend_gather_rows(reference,
                                &(struct gather_rows_args){.y = host, .x = x.host, .rows = rows});
            for (int i = 0; i < OPS; i++)
                backend_gather_rows(
                    device, &(struct gather_rows_args){.y = there, .x = x.device, .rows = rows});
            device_sync();
            assert_both((struct both){host, there}, 0, "gather_rows");
        }
    cuda_graph_counts(device, &captured, &launched);
    assert_int_equal(captured, LISTS);
    assert_int_equal(launched, (ROUNDS - 1) * LISTS);
    both_free(x);
    both_free(y);
    close_both();
}

/* Quantised models */

static const char *const references[] = {"tests/golden/retro/case_a", "tests/golden/retro/case_b",
                                         "tests/golden/retro/case_c"};

/* The reference model in another type, in a new folder. */
static void model_convert(const char *from, enum dtype dtype, const char *to) {
    struct convert_options o = {.from = from, .to = to, .dtype = dtype};
    struct conversion p;
    struct output out = {0};
    struct error e;
    if (conversion_open(&p, &o, &e) || output_open(&out, &o, &e) ||
        conversion_write(&p, out.partial, &e) || output_copy(&out, from, "", &e) ||
        output_finish(&out, &e))
        fail_msg("%s", e.text);
    output_discard(&out);
    conversion_close(&p);
}

static void model_remove(const char *folder) {
    static const char *const files[] = {"model.safetensors", "config.json", "README.md"};
    char path[200];
    for (size_t i = 0; i < ARRAY_COUNT(files); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(folder), 0);
}

/* The largest distance of two models' logits over all steps. */
static double logits_distance(const struct steps_subject *a, const struct steps_subject *b) {
    struct steps_fixture f[2];
    static float logits[2][SESSIONS * MOST_VOCAB];
    double largest = 0;
    fixture_open(&f[0], a);
    fixture_open(&f[1], b);
    int count = SESSIONS * model_info(f[0].model)->padded_vocab;
    for (int at = 0; at < a->prompt + STEPS; at += at ? 1 : a->prompt) {
        for (int i = 0; i < 2; i++) fixture_step(&f[i], at, logits[i]);
        for (int i = 0; i < count; i++) {
            double apart = fabs((double)logits[0][i] - (double)logits[1][i]);
            if (!(apart <= largest)) largest = apart; /* NaN sticks */
        }
    }
    for (int i = 0; i < 2; i++) fixture_close(&f[i]);
    return largest;
}

/* Few rows and no neighbours: everything is multiplied as it is, so nothing but the order of sums
 * tells the device from the CPU with these weights in f32. Many rows, and neighbours to encode: the
 * device rounds x and W to bf16 and the CPU rounds x to 8 bits, each of which moves these small
 * models' logits, whose rows are one block, by some tenths. */
static void check_quantised(const char *folder, enum dtype dtype) {
    char parent[] = "/tmp/retro-cuda-XXXXXX", model[sizeof parent + 8];
    assert_non_null(mkdtemp(parent));
    snprintf(model, sizeof model, "%s/model", parent);
    model_convert(folder, dtype, model);
    struct steps_subject on_device = {.folder = model, .device = device_name, .prompt = PROMPT},
                         on_cpu = on_device;
    on_cpu.device = "cpu";
    on_cpu.options = (struct model_options){.convert = true, .dtype = DTYPE_F32};
    double few = logits_distance(&on_device, &on_cpu);
    on_cpu.options.convert = false;
    on_cpu.prompt = on_device.prompt = LONG_PROMPT;
    on_cpu.neighbors = on_device.neighbors = NEIGHBORS;
    double many = logits_distance(&on_device, &on_cpu);
    print_message("  %s %s: few rows %.1e, many %.2f\n", folder, dtype_name(dtype), few, many);
    assert_true(few <= 1e-4);
    assert_true(many <= 0.8);
    model_remove(model);
    rmdir(parent);
}

static void test_quantised(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(references); i++)
        for (int dtype = DTYPE_INT8; dtype <= DTYPE_INT4; dtype++)
            check_quantised(references[i], (enum dtype)dtype);
}

/* Random weights for benchmarks: the same numbers, in bf16 and as fp8 made from that. */
static void test_random_fp8(void **state) {
    (void)state;
    struct steps_subject in_fp8 = {.folder = references[0],
                                   .device = device_name,
                                   .prompt = PROMPT},
                         wide = in_fp8;
    in_fp8.options = (struct model_options){.convert = true, .dtype = DTYPE_FP8, .random = true};
    wide.options = (struct model_options){.convert = true, .dtype = DTYPE_BF16, .random = true};
    double apart = logits_distance(&in_fp8, &wide);
    print_message("  random fp8: %.1e\n", apart);
    assert_true(apart > 1e-6 && apart <= 0.02);
}

/* fp8 is made from the reference models' own weights. Measured, the logits, which lie within 12,
 * move by up to 1.43. */
static void test_fp8(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(references); i++) {
        struct steps_subject in_fp8 = {.folder = references[i],
                                       .device = device_name,
                                       .prompt = PROMPT},
                             wide = in_fp8;
        in_fp8.options = (struct model_options){.convert = true, .dtype = DTYPE_FP8};
        wide.device = "cpu";
        double apart = logits_distance(&in_fp8, &wide);
        print_message("  %s fp8: %.2f\n", references[i], apart);
        assert_true(apart > 1e-3 && apart <= 3);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps),
                                       cmocka_unit_test(test_old_graphs_give_way),
                                       cmocka_unit_test(test_quantised), cmocka_unit_test(test_fp8),
                                       cmocka_unit_test(test_random_fp8)};
    if (argc > 1) device_name = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
