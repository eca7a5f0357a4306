/* tests/cuda/test_cuda_steps.c: steps as graphs: the same bits as op by op, few graphs for many steps, and old graphs
 * that give way. Without an argument on the emulated device; `test_cuda_steps cuda:0` on a GPU. */
#include "kernels/cuda/open.h"
#include "retro/session.h"
#include "tests/cuda/cuda_ops.h"

static const char *device_name = "cuda-host";

enum { SESSIONS = 2, PROMPT = 5, STEPS = 43, MOST_VOCAB = 256 };

struct fixture {
    struct backend *backend;
    struct comm *comm;
    struct model *model;
    struct session_pool *pool;
    struct session *sessions[SESSIONS];
};

static void fixture_open(struct fixture *f, bool eager) {
    struct error e = {0};
    struct model_options o = {.convert = true, .dtype = DTYPE_F32};
    struct session_limits limits = {.max_sessions = SESSIONS,
                                    .max_tokens = PROMPT + STEPS,
                                    .max_step_rows = SESSIONS * PROMPT,
                                    .max_logit_rows = SESSIONS,
                                    .max_neighbors = 2,
                                    .kv_dtype = DTYPE_F32};
    if (backend_open(&f->backend, device_name, &(struct backend_options){.eager = eager}, &e) ||
        comm_open_single(&f->comm, &e) ||
        model_open(&f->model, "tests/golden/retro/case_a", f->backend, f->comm, &o, &e) ||
        session_pool_open(&f->pool, f->model, &limits, &e))
        fail_msg("%s", e.text);
    for (int i = 0; i < SESSIONS; i++)
        if (session_open(&f->sessions[i], f->pool, grid_make(GRID_END, PROMPT, model_info(f->model)->chunk_length), &e))
            fail_msg("%s", e.text);
}

static void fixture_close(struct fixture *f) {
    for (int i = 0; i < SESSIONS; i++) session_close(f->sessions[i]);
    session_pool_close(f->pool);
    model_close(f->model);
    comm_close(f->comm);
    backend_close(f->backend);
}

/* One step of `rows` tokens a session; the logits of the last. Arrays are other ones in each step, as in a server. */
static void step(struct fixture *f, int at, int rows, float *logits) {
    struct error e = {0};
    const struct model_info *info = model_info(f->model);
    int32_t *tokens = xmalloc(SESSIONS * PROMPT * sizeof *tokens), found[2 * 64];
    struct neighbor_tokens neighbors[PROMPT];
    struct step_item items[SESSIONS];
    struct tensor out;
    for (int i = 0; i < 2 * info->retrieved_length; i++) found[i] = (at * 31 + i * 7) % info->vocab;
    for (int i = 0; i < PROMPT; i++) neighbors[i] = (struct neighbor_tokens){found, 2};
    for (int i = 0; i < SESSIONS; i++) {
        for (int j = 0; j < rows; j++) tokens[i * PROMPT + j] = ((at + j) * 17 + i * 5) % info->vocab;
        items[i] = (struct step_item){f->sessions[i], tokens + i * PROMPT, rows, neighbors, 1};
    }
    if (session_step(f->pool, items, SESSIONS, &out, &e)) fail_msg("%s", e.text);
    backend_download(f->backend, logits, out.data, SESSIONS * (size_t)info->padded_vocab * sizeof *logits);
    if (backend_sync(f->backend, &e)) fail_msg("%s", e.text);
    free(tokens);
}

/* Chunks of 8: seven plain steps and one that closes a chunk of both sessions, again and again. */
static void test_steps(void **state) {
    (void)state;
    struct fixture eager, graphs;
    static float expected[SESSIONS * MOST_VOCAB], found[SESSIONS * MOST_VOCAB];
    uint64_t captured, launched;
    fixture_open(&eager, true);
    fixture_open(&graphs, false);
    size_t bytes = SESSIONS * (size_t)model_info(eager.model)->padded_vocab * sizeof *found;
    assert_true(bytes <= sizeof found);
    for (int at = 0; at < PROMPT + STEPS; at += at ? 1 : PROMPT) {
        step(&eager, at, at ? 1 : PROMPT, expected);
        step(&graphs, at, at ? 1 : PROMPT, found);
        assert_memory_equal(found, expected, bytes);
    }
    cuda_graph_counts(eager.backend, &captured, &launched);
    assert_int_equal(captured, 0);
    assert_int_equal(launched, 0);
    /* One for plain steps and one for those that close; the prompt and the first of each kind ran op by op. */
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
    open_both(device_name);
    struct both x = both_random(DTYPE_F32, LISTS, 3, 0), y = both_empty(DTYPE_F32, LISTS, 3, 0);
    int32_t rows[LISTS];
    for (int n = 1; n <= LISTS; n++)
        for (int round = 0; round < ROUNDS; round++) {
            for (int i = 0; i < n; i++) rows[i] = random_int(LISTS);
            struct tensor host = tensor_rows(y.host, 0, n), there = tensor_rows(y.device, 0, n);
            gather_rows(reference, &(struct gather_rows_args){.y = host, .x = x.host, .rows = rows});
            for (int i = 0; i < OPS; i++)
                gather_rows(device, &(struct gather_rows_args){.y = there, .x = x.device, .rows = rows});
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

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), cmocka_unit_test(test_old_graphs_give_way)};
    if (argc > 1) device_name = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
