/* tests/unit/test_budget.c: what a model and its sessions will take is known before they are opened: the same bytes as
 * are then asked of the backend, on every rank, and an error that names the option when there are fewer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first. */
#include <cmocka.h>

#include "retro/budget.h"

static const char folder[] = "tests/golden/retro/case_b";

/* The CPU, with a memory of a size that the test chooses, which counts what is asked of it. */
static struct {
    const struct backend_ops *original;
    struct backend_ops ops;
    size_t available, asked;
} device;

static void *count_alloc(struct backend *b, size_t bytes) {
    device.asked += bytes;
    return device.original->alloc(b, bytes);
}

static size_t tell_available(struct backend *b) {
    (void)b;
    return device.available;
}

static struct backend *open_device(size_t available) {
    struct backend *b;
    struct error e;
    if (backend_open(&b, "cpu", &(struct backend_options){.threads = 1}, &e)) fail_msg("%s", e.text);
    device.original = b->ops;
    device.ops = *b->ops;
    device.ops.alloc = count_alloc;
    device.ops.available = tell_available;
    device.available = available;
    device.asked = 0;
    b->ops = &device.ops;
    return b;
}

static const struct session_limits usual = {.max_sessions = 3,
                                            .max_tokens = 50,
                                            .max_step_rows = 70,
                                            .max_logit_rows = 9,
                                            .max_neighbors = 4,
                                            .kv_dtype = DTYPE_F16};

static void test_measure_is_what_opening_takes(void **state) {
    (void)state;
    static const char *const folders[] = {"tests/golden/retro/case_a", "tests/golden/retro/case_b"};
    struct backend *b = open_device(SIZE_MAX);
    struct comm *c;
    assert_int_equal(comm_open_single(&c, NULL), STATUS_OK);
    for (size_t i = 0; i < ARRAY_COUNT(folders); i++) {
        struct error e = {0};
        struct model *m, *checked;
        struct session_pool *pool;
        struct session_bytes bytes;
        if (model_open(&checked, folders[i], b, c, &(struct model_options){.check_only = true}, &e) ||
            session_pool_measure(&bytes, checked, &usual, &e))
            fail_msg("%s", e.text);
        assert_int_equal(device.asked, 0);
        assert_true(bytes.cache > 0 && bytes.neighbors > 0 && bytes.steps > 0);
        if (model_open(&m, folders[i], b, c, &(struct model_options){0}, &e)) fail_msg("%s", e.text);
        assert_int_equal(model_info(m)->weight_bytes, model_info(checked)->weight_bytes);
        assert_int_equal(model_info(m)->decode_bytes, model_info(checked)->decode_bytes);
        assert_int_equal(model_info(m)->dtype, model_info(checked)->dtype);
        device.asked = 0;
        if (session_pool_open(&pool, m, &usual, &e)) fail_msg("%s", e.text);
        assert_int_equal(device.asked, session_bytes_all(&bytes));
        assert_int_equal(session_pool_bytes(pool), device.asked);
        session_pool_close(pool);
        model_close(m);
        model_close(checked);
        device.asked = 0;
    }
    comm_close(c);
    backend_close(b);
}

/* A rank keeps a part of the parameters, and knows how many there are in all. */
static void test_parameters_of_ranks(void **state) {
    (void)state;
    struct backend *b = open_device(SIZE_MAX);
    struct comm *ranks[2], *single;
    struct model_options options = {.check_only = true};
    struct model *m;
    int64_t all;
    assert_int_equal(comm_open_single(&single, NULL), STATUS_OK);
    assert_int_equal(model_open(&m, folder, b, single, &options, NULL), STATUS_OK);
    all = model_info(m)->n_parameters;
    assert_int_equal(model_info(m)->local_parameters, all);
    model_close(m);
    comm_open_threads(ranks, 2, 10);
    int64_t sum = 0;
    for (int r = 0; r < 2; r++) {
        assert_int_equal(model_open(&m, folder, b, ranks[r], &options, NULL), STATUS_OK);
        assert_int_equal(model_info(m)->n_parameters, all);
        assert_true(model_info(m)->local_parameters < all);
        sum += model_info(m)->local_parameters;
        model_close(m);
    }
    assert_true(sum > all); /* norms, biases and the word table are on both */
    for (int r = 0; r < 2; r++) comm_close(ranks[r]);
    comm_close(single);
    backend_close(b);
}

static enum status give_limits(void *context, const struct model_info *info, struct session_limits *l,
                               struct error *e) {
    assert_non_null(info->family);
    (void)e;
    *l = *(const struct session_limits *)context;
    return STATUS_OK;
}

static enum status check(struct session_limits limits, size_t available, int ranks_here, struct error *e) {
    struct backend *b = open_device(available);
    struct budget_sessions sessions = {give_limits, &limits};
    struct comm *c;
    assert_int_equal(comm_open_single(&c, NULL), STATUS_OK);
    c->local_ranks = ranks_here;
    enum status status = budget_check(folder, b, c, (struct model_options){0}, &sessions, e);
    assert_int_equal(device.asked, 0);
    comm_close(c);
    backend_close(b);
    return status;
}

/* The option of the largest part is named. */
static void test_too_little_memory(void **state) {
    (void)state;
    struct session_limits many = usual, steps = usual, neighbors = usual;
    many.max_sessions = 1 << 12;
    many.max_step_rows += many.max_sessions;
    many.max_tokens = 1 << 14;
    steps.max_step_rows = 1 << 20;
    steps.max_neighbors = 1;
    neighbors.max_neighbors = 4096;
    const struct {
        const struct session_limits *limits;
        size_t available;
        const char *words;
    } cases[] = {{&many, (size_t)1 << 30, "lower server.max_sequences (4096) or server.max_context (16384)"},
                 {&steps, (size_t)64 << 20, "lower server.max_step_tokens (1048573)"},
                 {&neighbors, (size_t)4 << 20, "lower retrieval.max_k (4096)"},
                 {&usual, 1 << 10, "available"}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct error e = {0};
        assert_int_equal(check(*cases[i].limits, cases[i].available, 1, &e), STATUS_NO_MEMORY);
        if (strstr(e.text, cases[i].words) == NULL || strstr(e.text, "not enough memory: weights ") == NULL)
            fail_msg("%s", e.text);
    }
}

/* Ranks of one machine share what it has: what is enough for one is not for two. */
static void test_ranks_share_memory(void **state) {
    (void)state;
    struct error e = {0};
    size_t low = 0, high = (size_t)1 << 40;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (check(usual, middle, 1, &e) == STATUS_OK)
            high = middle;
        else
            low = middle;
    }
    assert_int_equal(check(usual, 2 * high - 1, 2, &e), STATUS_NO_MEMORY);
    assert_int_equal(check(usual, 2 * high, 2, &e), STATUS_OK);
    assert_int_equal(check(usual, SIZE_MAX, 2, &e), STATUS_OK); /* a device that does not tell refuses nothing */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measure_is_what_opening_takes), cmocka_unit_test(test_parameters_of_ranks),
        cmocka_unit_test(test_too_little_memory), cmocka_unit_test(test_ranks_share_memory)};
    log_set_level(LOG_LEVEL_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
