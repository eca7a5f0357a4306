/* tests/unit/test_budget.c: what a model and its sessions will take is known before they are
 * opened: the same bytes as are then asked of the backend, on every rank, and an error that names
 * the option when there are fewer. */
#include <string.h>

#include "server/host/models/budget.h"
#include "tests/folder.h"
#include "tools/convert/sink/sink.h"

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
    if (backend_open(&b, "cpu", &(struct backend_options){.threads = 1}, &e))
        fail_msg("%s", e.text);
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
        if (model_open(&checked, folders[i], b, c, &(struct model_options){.check_only = true},
                       &e) ||
            session_pool_measure(&bytes, checked, &usual, &e))
            fail_msg("%s", e.text);
        assert_int_equal(device.asked, 0);
        assert_true(bytes.cache > 0 && bytes.cross > 0 && bytes.steps > 0);
        if (model_open(&m, folders[i], b, c, &(struct model_options){0}, &e))
            fail_msg("%s", e.text);
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

/* Int8 keys and values take half of f16's bytes and a scale for each head; what is measured is what
 * is taken; and who has too little memory is told of them. */
static void test_narrow_cache(void **state) {
    (void)state;
    struct session_limits wide = usual, narrow = usual;
    struct backend *b = open_device(SIZE_MAX);
    struct session_bytes of_wide, of_narrow;
    struct session_pool *pool;
    struct comm *c;
    struct model *m;
    struct error e = {0};
    narrow.kv_dtype = DTYPE_INT8;
    assert_int_equal(comm_open_single(&c, NULL), STATUS_OK);
    assert_int_equal(model_open(&m, folder, b, c, &(struct model_options){0}, &e), STATUS_OK);
    assert_true(model_info(m)->cache_narrows);
    assert_int_equal(session_pool_measure(&of_wide, m, &wide, &e), STATUS_OK);
    assert_int_equal(session_pool_measure(&of_narrow, m, &narrow, &e), STATUS_OK);
    /* The rows that condition the neighbour encoder stay f32. */
    size_t rows = 3 * ATTENTION_BLOCK, normed = rows * (size_t)model_info(m)->hidden * 4;
    size_t halves = of_wide.cache - normed, bytes = of_narrow.cache - normed,
           head_dim = (size_t)model_info(m)->head_dim;
    assert_int_equal(bytes, halves / 2 + halves / head_dim);
    assert_int_equal(of_narrow.cross, of_wide.cross);
    device.asked = 0;
    assert_int_equal(session_pool_open(&pool, m, &narrow, &e), STATUS_OK);
    assert_int_equal(session_pool_bytes(pool), device.asked);
    session_pool_close(pool);
    model_close(m);
    device.asked = 0;
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

static enum status give_limits(void *context, const struct model_info *info,
                               struct session_limits *l, struct error *e) {
    assert_non_null(info->family);
    (void)e;
    *l = *(const struct session_limits *)context;
    return STATUS_OK;
}

static enum status check_folder(const char *path, struct session_limits limits, size_t available,
                                int ranks_here, struct error *e) {
    struct backend *b = open_device(available);
    struct budget_use use = {.limits = give_limits, .context = &limits};
    struct comm *c;
    assert_int_equal(comm_open_single(&c, NULL), STATUS_OK);
    c->local_ranks = ranks_here;
    enum status status = budget_check(path, b, c, &(struct model_options){0}, &use, e);
    assert_int_equal(device.asked, 0);
    comm_close(c);
    backend_close(b);
    return status;
}

static enum status check(struct session_limits limits, size_t available, int ranks_here,
                         struct error *e) {
    return check_folder(folder, limits, available, ranks_here, e);
}

/* The option of the largest part is named. */
static void test_too_little_memory(void **state) {
    (void)state;
    struct session_limits many = usual, narrow, steps = usual, neighbors = usual;
    many.max_sessions = 1 << 12;
    many.max_step_rows += many.max_sessions;
    many.max_tokens = 1 << 14;
    narrow = many;
    narrow.kv_dtype = DTYPE_INT8;
    steps.max_step_rows = 1 << 20;
    steps.max_neighbors = 1;
    neighbors.max_neighbors = 4096;
    const struct {
        const struct session_limits *limits;
        size_t available;
        const char *words;
    } cases[] = {{&many, (size_t)1 << 30,
                  "lower server.max_sequences (4096) or server.max_context (16384), or set "
                  "model.cache_dtype to int8"},
                 {&narrow, (size_t)1 << 30,
                  "lower server.max_sequences (4096) or server.max_context (16384)"},
                 {&steps, (size_t)64 << 20, "lower server.max_step_tokens (1048573)"},
                 {&neighbors, (size_t)4 << 20, "lower retrieval.max_neighbors (4096)"},
                 {&usual, 1 << 10, "available"}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct error e = {0};
        assert_int_equal(check(*cases[i].limits, cases[i].available, 1, &e), STATUS_NO_MEMORY);
        if (strstr(e.text, cases[i].words) == NULL ||
            strstr(e.text, "not enough memory: weights ") == NULL)
            fail_msg("%s", e.text);
    }
}

/* A model that reads its prompt through an encoder has no neighbours, and no option of theirs helps
 * it. */
static void test_too_little_memory_for_encoded_prompts(void **state) {
    (void)state;
    struct session_limits limits = usual;
    struct error e = {0};
    limits.max_neighbors = 0;
    limits.max_source = 4096;
    assert_int_equal(check_folder("tests/golden/hf/t5_v1_1", limits, 64 << 10, 1, &e),
                     STATUS_NO_MEMORY);
    if (strstr(e.text, "encoded prompts ") == NULL || strstr(e.text, "neighbours") ||
        strstr(e.text, "max_neighbors") ||
        strstr(e.text, "lower server.max_sequences (3) or server.max_context (4096)") == NULL)
        fail_msg("%s", e.text);
}

/* Bytes for a folder's model with the usual sessions, and not one less. */
static size_t least_enough_of(const char *of) {
    size_t low = 0, high = (size_t)1 << 40;
    struct error e;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (check_folder(of, usual, middle, 1, &e) == STATUS_OK)
            high = middle;
        else
            low = middle;
    }
    return high;
}

static size_t least_enough(void) { return least_enough_of(folder); }

/* Ranks of one machine share what it has: what is enough for one is not for two. */
static void test_ranks_share_memory(void **state) {
    (void)state;
    struct error e = {0};
    size_t least = least_enough();
    assert_int_equal(check(usual, 2 * least - 1, 2, &e), STATUS_NO_MEMORY);
    assert_int_equal(check(usual, 2 * least, 2, &e), STATUS_OK);
    assert_int_equal(check(usual, SIZE_MAX, 2, &e),
                     STATUS_OK); /* a device that does not tell refuses nothing */
}

/* The parts that rank 0 opens beside a model: an index and files in the host's memory, and
 * something on the device. */
struct beside {
    struct session_limits limits;
    size_t device, host;
};

static enum status give_beside_limits(void *context, const struct model_info *info,
                                      struct session_limits *l, struct error *e) {
    return give_limits(&((struct beside *)context)->limits, info, l, e);
}

static enum status give_beside(void *context, const struct model_info *info, struct backend *b,
                               struct budget_parts *p, struct error *e) {
    const struct beside *x = context;
    assert_true(info->chunk_length > 0 && b->ops == &device.ops);
    if (x->device == 1) return error_set(e, STATUS_NOT_FOUND, "no embedder");
    budget_add(p, (struct budget_part){.name = "embedder", .bytes = x->device},
               "lower the embedder (%d)", 7);
    budget_add(p, (struct budget_part){.name = "index", .bytes = x->host, .on_host = true},
               "compress the index");
    budget_add(p,
               (struct budget_part){
                   .name = "documents", .bytes = SIZE_MAX / 2, .on_host = true, .mapped = true},
               "-");
    return STATUS_OK;
}

static enum status check_beside(struct beside x, const char *device_name, size_t available,
                                int ranks_here, struct error *e) {
    struct backend *b = open_device(available);
    struct budget_use use = {give_beside_limits, give_beside, &x};
    struct comm *c;
    device.ops.name = device_name;
    assert_int_equal(comm_open_single(&c, NULL), STATUS_OK);
    c->local_ranks = ranks_here;
    enum status status = budget_check(folder, b, c, &(struct model_options){0}, &use, e);
    comm_close(c);
    backend_close(b);
    return status;
}

static void expect_refused(struct beside x, const char *device_name, size_t available,
                           const char *words, const char *advice) {
    struct error e = {0};
    assert_int_equal(check_beside(x, device_name, available, 1, &e), STATUS_NO_MEMORY);
    if (strstr(e.text, words) == NULL || strstr(e.text, advice) == NULL) fail_msg("%s", e.text);
}

static void test_what_is_open_beside(void **state) {
    (void)state;
    const size_t gigabyte = (size_t)1e9;
    struct error e = {0};
    struct beside x = {usual, 3 * gigabyte, 2 * gigabyte};
    assert_int_equal(check_beside(x, "cpu", 6 * gigabyte, 1, &e), STATUS_OK);
    expect_refused(x, "cpu", 5 * gigabyte, ", embedder 3.0 GB, index 2.0 GB, documents ",
                   ": lower the embedder (7)");
    x.host = 4 * gigabyte;
    expect_refused(x, "cpu", 6 * gigabyte, " mapped make 7.0 GB, and 6.0 GB are available",
                   ": compress the index");
    /* A GPU's memory is compared with the parts on it; the index is in the host's, which no machine
     * has so much of. */
    assert_int_equal(check_beside((struct beside){usual, gigabyte, 1}, "gpu", 2 * gigabyte, 1, &e),
                     STATUS_OK);
    expect_refused((struct beside){usual, 3 * gigabyte, 1}, "gpu", 2 * gigabyte, "weights ",
                   ": lower the embedder (7)");
    expect_refused((struct beside){usual, 1000, SIZE_MAX / 4}, "gpu", 2 * gigabyte,
                   "not enough memory: index 4611686018.4 GB, documents ",
                   " are available on the host");
    x.device = 1;
    assert_int_equal(check_beside(x, "cpu", SIZE_MAX, 1, &e), STATUS_NOT_FOUND);
}

/* Rank 0 alone has it among several ranks of a machine, so it counts once. */
static void test_beside_counts_once(void **state) {
    (void)state;
    const size_t gigabyte = (size_t)1e9;
    struct beside x = {usual, gigabyte, gigabyte};
    struct error e = {0};
    assert_int_equal(check_beside(x, "cpu", 2 * gigabyte + (size_t)64e6, 4, &e), STATUS_OK);
    assert_int_equal(check_beside(x, "cpu", 2 * gigabyte, 4, &e), STATUS_NO_MEMORY);
    if (strstr(e.text, "available beside the other ranks of this machine") == NULL)
        fail_msg("%s", e.text);
}

/* A folder's model as retro-convert --to packed writes it. */
static void pack(const char *from, const char *to) {
    struct convert_options o = {.from = from, .to = to, .format = &format_packed};
    struct conversion p;
    struct buffer config = {0};
    struct error e;
    char path[FOLDER_PATH_SIZE];
    snprintf(path, sizeof path, "%s/config.json", from);
    if (conversion_open(&p, &o, &e) || format_packed.write(&p, from, to, &e) ||
        file_read(path, 1 << 20, &config, &e))
        fail_msg("%s", e.text);
    folder_write(to, "config.json", config.data, config.size);
    buffer_free(&config);
    conversion_close(&p);
}

/* The lines that budget_check, which finds enough memory, logs about a folder. */
static void log_of(const char *of, size_t available, char *text, size_t size) {
    struct session_limits limits = usual;
    struct budget_use use = {.limits = give_limits, .context = &limits};
    struct backend *b = open_device(available);
    struct comm *c;
    struct error e = {0};
    FILE *log = tmpfile();
    int before = dup(STDERR_FILENO);
    assert_true(log != NULL && before >= 0 && dup2(fileno(log), STDERR_FILENO) == STDERR_FILENO);
    assert_int_equal(comm_open_single(&c, NULL), STATUS_OK);
    log_set_level(LOG_LEVEL_INFO);
    enum status status = budget_check(of, b, c, &(struct model_options){0}, &use, &e);
    log_set_level(LOG_LEVEL_WARN);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(log);
    text[fread(text, 1, size - 1, log)] = '\0';
    fclose(log);
    comm_close(c);
    backend_close(b);
    if (status) fail_msg("%s", e.text);
}

/* Mapped weights count as nothing; when they do not stay in memory beside the rest, a warning says
 * so. */
static void test_mapped_weights(void **state) {
    (void)state;
    char packed[FOLDER_SIZE], text[1000];
    folder_make(packed);
    pack(folder, packed);
    log_of(packed, (size_t)1 << 40, text, sizeof text);
    if (strstr(text, " mapped, cache ") == NULL || strstr(text, "warn")) fail_msg("%s", text);
    log_of(packed, least_enough() - 1000, /* what the model that is not packed does not fit in */
           text, sizeof text);
    if (strstr(text, "mapped weights do not stay in memory beside the rest") == NULL)
        fail_msg("%s", text);
    folder_remove(packed);
}

/* Of experts as many bytes are in memory as there are beside the rest, and a model whose other
 * weights do not fit is refused. */
static void test_mapped_experts(void **state) {
    (void)state;
    static const char source[] = "tests/golden/hf/mixtral";
    char packed[FOLDER_SIZE], text[1000];
    struct error e = {0};
    folder_make(packed);
    pack(source, packed);
    log_of(packed, (size_t)1 << 40, text, sizeof text);
    if (strstr(text, "experts") || strstr(text, "warn")) fail_msg("%s", text);

    size_t all = least_enough_of(source);
    log_of(packed, all - 30000, text, sizeof text);
    if (strstr(text, "MB, experts 0.1 MB mapped, cache ") == NULL ||
        strstr(text,
               "experts are 0.1 MB mapped, of which memory holds 0.1 MB: a token uses 0.0 MB "
               "of them, and reads 0.0 MB from disk") == NULL)
        fail_msg("%s", text);

    size_t least = least_enough_of(packed);
    assert_true(least + 100000 < all);
    assert_int_equal(check_folder(packed, usual, least - 1, 1, &e), STATUS_NO_MEMORY);
    if (strstr(e.text, "not enough memory: weights 0.0 MB, experts 0.1 MB mapped, cache ") == NULL)
        fail_msg("%s", e.text);
    folder_remove(packed);
}

/* So little that weights are the largest part. */
static const struct session_limits least = {.max_sessions = 1,
                                            .max_tokens = 8,
                                            .max_step_rows = 8,
                                            .max_logit_rows = 1,
                                            .kv_dtype = DTYPE_F16};

/* Whoever has a model with experts that does not fit is told how large it is, and the command that
 * makes it one that does, where all but the experts fits. */
static void test_experts_that_could_be_mapped(void **state) {
    (void)state;
    static const struct {
        const char *path;
        size_t available;
        const char *words;
    } cases[] = {
        {"tests/golden/hf/mixtral/", 100000,
         "weights 0.2 MB, cache 0.0 MB, step buffers 0.0 MB make "},
        {"tests/golden/hf/mixtral/", 100000,
         ": of a packed model the experts need not fit. Pack it once (the disk needs 0.2 MB), and "
         "set model.path to the new folder: "},
        {"tests/golden/hf/mixtral/", 100000,
         ": retro-convert tests/golden/hf/mixtral tests/golden/hf/mixtral-packed --to packed"},
        {"tests/golden/gguf/mixtral/model.gguf", 50000,
         ": retro-convert tests/golden/gguf/mixtral/model.gguf "
         "tests/golden/gguf/mixtral/model-packed --to packed"}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct error e = {0};
        assert_int_equal(check_folder(cases[i].path, least, cases[i].available, 1, &e),
                         STATUS_NO_MEMORY);
        if (strstr(e.text, cases[i].words) == NULL) fail_msg("%s", e.text);
        assert_int_equal(check_folder(cases[i].path, least, 1000, 1, &e), STATUS_NO_MEMORY);
        if (strstr(e.text, "--to packed wrote need not fit, all else has to") == NULL)
            fail_msg("%s", e.text);
    }
}

/* Numbers of fewer bits are no advice for a model that has them. */
static void test_advice_by_type(void **state) {
    (void)state;
    static const struct {
        const char *path, *words;
    } cases[] = {
        {"tests/golden/hf/llama", ": set model.dtype to bf16, take a quantised or smaller model"},
        {"tests/golden/gguf/qwen2/model.gguf", ": take a smaller model, or more ranks"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct error e = {0};
        assert_int_equal(check_folder(cases[i].path, least, 1000, 1, &e), STATUS_NO_MEMORY);
        if (strstr(e.text, cases[i].words) == NULL) fail_msg("%s", e.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mapped_weights),
                                       cmocka_unit_test(test_mapped_experts),
                                       cmocka_unit_test(test_experts_that_could_be_mapped),
                                       cmocka_unit_test(test_what_is_open_beside),
                                       cmocka_unit_test(test_beside_counts_once),
                                       cmocka_unit_test(test_measure_is_what_opening_takes),
                                       cmocka_unit_test(test_parameters_of_ranks),
                                       cmocka_unit_test(test_narrow_cache),
                                       cmocka_unit_test(test_too_little_memory),
                                       cmocka_unit_test(test_too_little_memory_for_encoded_prompts),
                                       cmocka_unit_test(test_ranks_share_memory),
                                       cmocka_unit_test(test_advice_by_type)};
    log_set_level(LOG_LEVEL_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
