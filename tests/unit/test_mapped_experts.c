/* tests/unit/test_mapped_experts.c: experts that memory does not hold: the pages of those that rows
 * have chosen are asked for, and no others; results have the same bits; all other weights are in
 * memory of our own. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "kernels/cpu/fetch.h"
#include "retro/model/model_private.h"
#include "retro/run/session/session.h"
#include "retro/weights/weights.h"
#include "tests/folder.h"
#include "tools/convert/sink/sink.h"

enum { ADVICE_LIMIT = 1 << 14 };

/* Advice to the system, which this program's madvise takes down and passes on, or refuses. */
static struct {
    struct {
        uintptr_t begin, end;
        int advice;
    } calls[ADVICE_LIMIT];
    int n;
    bool refuses; /* with EINVAL */
} told;

int madvise(void *at, size_t bytes, int advice) {
    CHECK(told.n < ADVICE_LIMIT);
    told.calls[told.n].begin = (uintptr_t)at;
    told.calls[told.n].end = (uintptr_t)at + bytes;
    told.calls[told.n].advice = advice;
    told.n++;
    if (!told.refuses) return (int)syscall(SYS_madvise, at, bytes, advice);
    errno = EINVAL;
    return -1;
}

/* Memory holds the pages outside [begin, end), as this program's mincore says. */
static struct {
    uintptr_t begin, end;
    bool fails; /* with ENOSYS */
} absent;

int mincore(void *at, size_t bytes, unsigned char *there) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i * page < bytes; i++) {
        uintptr_t place = (uintptr_t)at + i * page;
        there[i] = place < absent.begin || place >= absent.end;
    }
    if (!absent.fails) return 0;
    errno = ENOSYS;
    return -1;
}

/* Pages that the program waits for between two questions. */
static long waits;

int getrusage(__rusage_who_t who, struct rusage *usage) {
    static long waited;
    int status = (int)syscall(SYS_getrusage, who, usage);
    usage->ru_majflt = waited += waits;
    return status;
}

static void set_absent(const void *begin, size_t bytes) {
    absent.begin = (uintptr_t)begin;
    absent.end = absent.begin + bytes;
}
static void set_all_absent(void) { set_absent(NULL, UINTPTR_MAX); }

static bool was_asked_for(uintptr_t at) {
    for (int i = 0; i < told.n; i++)
        if (told.calls[i].advice == MADV_WILLNEED && told.calls[i].begin <= at &&
            at < told.calls[i].end)
            return true;
    return false;
}

static int count_advice(int advice) {
    int n = 0;
    for (int i = 0; i < told.n; i++) n += told.calls[i].advice == advice;
    return n;
}

/* A layer's experts in a file: large enough that pages in their middle are theirs alone. */
enum { EXPERTS = 12, USED = 2, HIDDEN = 64, FFN = 1024, ROWS = 9 };

struct mixture {
    struct backend *backend;
    struct weight fc1[EXPERTS], fc2[EXPERTS];
    struct tensor x, routes;
    char *map;
    size_t bytes;
};

static struct tensor make_rows(int rows, int cols) {
    return tensor_make(xcalloc((size_t)rows * (size_t)cols, sizeof(float)), DTYPE_F32, rows, cols);
}

static void fill(struct tensor rows, unsigned seed) {
    float *at = rows.data;
    for (int i = 0; i < rows.rows * rows.cols; i++) {
        seed = seed * 1103515245 + 12345;
        at[i] = (float)(seed >> 16 & 1023) / 512 - 1;
    }
}

/* A packed matrix moves to its place in the file. */
static void put_matrix(struct mixture *m, struct weight *weight, int fd, size_t at, int n_out,
                       int n_in) {
    struct tensor host = make_rows(n_out, n_in);
    struct error e = {0};
    fill(host, (unsigned)at + 7);
    *weight = (struct weight){.dtype = DTYPE_F32, .n_out = n_out, .n_in = n_in};
    struct host_matrix matrix = {.values = host.data, .dtype = DTYPE_F32};
    if (backend_pack(m->backend, weight, &matrix, &e)) fail_msg("%s", e.text);
    size_t bytes = cpu_packed_bytes(weight);
    assert_int_equal(pwrite(fd, weight->data, bytes, (off_t)at), bytes);
    backend_release(m->backend, weight->data);
    free(host.data);
}

static void mixture_open(struct mixture *m, const char *path) {
    struct error e = {0};
    size_t wide = (size_t)2 * FFN * HIDDEN * sizeof(float), back = wide / 2;
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    if (backend_open(&m->backend, "cpu", &(struct backend_options){.threads = 2}, &e))
        fail_msg("%s", e.text);
    for (size_t i = 0; i < EXPERTS; i++) {
        put_matrix(m, &m->fc1[i], fd, i * wide, 2 * FFN, HIDDEN);
        put_matrix(m, &m->fc2[i], fd, EXPERTS * wide + i * back, HIDDEN, FFN);
    }
    m->bytes = EXPERTS * (wide + back);
    m->map = mmap(NULL, m->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(m->map != MAP_FAILED);
    for (size_t i = 0; i < EXPERTS; i++) {
        m->fc1[i].data = m->map + i * wide;
        m->fc2[i].data = m->map + EXPERTS * wide + i * back;
    }
    /* Out of memory, where the file is not in memory as a whole: what is asked for is then read. */
    assert_int_equal(fsync(fd), 0);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    m->x = make_rows(ROWS, HIDDEN);
    m->routes = make_rows(ROWS, 2 * USED);
    fill(m->x, 3);
}

static void mixture_close(struct mixture *m) {
    munmap(m->map, m->bytes);
    free(m->x.data);
    free(m->routes.data);
    backend_close(m->backend);
}

/* Rows choose experts 1, 4, 7 and 10. */
static void choose(struct mixture *m) {
    float *routes = m->routes.data;
    for (int i = 0; i < ROWS; i++) {
        float *row = routes + (ptrdiff_t)i * 2 * USED;
        row[0] = 0.75f;
        row[1] = 0.25f;
        row[USED] = (float)(1 + 3 * (i % 4));
        row[USED + 1] = (float)(1 + 3 * ((i + 1) % 4));
    }
}

static struct tensor run_mixture(struct mixture *m, bool fetched) {
    int rows = m->x.rows;
    struct tensor y = make_rows(rows, HIDDEN), few = make_rows(rows, HIDDEN),
                  parts = make_rows(rows, USED * HIDDEN), wide = make_rows(rows, 2 * FFN),
                  gated = make_rows(rows, FFN);
    backend_experts(m->backend, &(struct experts_args){.y = y,
                                                       .x = m->x,
                                                       .routes = m->routes,
                                                       .fc1 = m->fc1,
                                                       .fc2 = m->fc2,
                                                       .few = few,
                                                       .parts = parts,
                                                       .wide = wide,
                                                       .gated = gated,
                                                       .n_experts = EXPERTS,
                                                       .fetched = fetched,
                                                       .gating = {.activation = ACTIVATION_SILU}});
    assert_int_equal(backend_sync(m->backend, NULL), STATUS_OK);
    free(few.data);
    free(parts.data);
    free(wide.data);
    free(gated.data);
    return y;
}

static void open_chosen(struct mixture *mixture) {
    char path[FOLDER_PATH_SIZE];
    folder_path(path, test_folder, "experts");
    mixture_open(mixture, path);
    choose(mixture);
}

/* Every page of a chosen expert was asked for; of another one none that is its alone. */
static void check_pages(const struct weight *weight, bool chosen) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)weight->data,
              end = begin + cpu_packed_bytes(weight);
    for (uintptr_t at = begin / page * page; at < end; at += page) {
        bool shared = at < begin || at + page > end;
        if (chosen) assert_true(was_asked_for(at));
        if (!chosen && !shared) assert_false(was_asked_for(at));
    }
}

static void test_chosen_experts_are_asked_for(void **state) {
    (void)state;
    struct mixture m;
    open_chosen(&m);
    set_all_absent();
    told.n = 0;
    struct tensor fetched = run_mixture(&m, true);
    for (int i = 0; i < EXPERTS; i++) {
        check_pages(&m.fc1[i], i % 3 == 1);
        check_pages(&m.fc2[i], i % 3 == 1);
    }
    told.n = 0;
    struct tensor plain = run_mixture(&m, false);
    assert_int_equal(told.n, 0);
    assert_memory_equal(fetched.data, plain.data, sizeof(float) * ROWS * HIDDEN);
    free(fetched.data);
    free(plain.data);
    mixture_close(&m);
}

/* Of the pages of chosen experts only those are asked for that memory does not hold, one stretch of
 * them at once, and no other page. */
static void test_pages_in_memory_are_not_asked_for(void **state) {
    (void)state;
    enum { PAGES_ABSENT = 5 };
    struct mixture m;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    open_chosen(&m);
    set_absent(NULL, 0);
    told.n = 0;
    struct tensor whole = run_mixture(&m, true);
    assert_int_equal(told.n, 0);

    char *hole = (char *)m.fc1[4].data + 3 * page;
    set_absent(hole, PAGES_ABSENT * page);
    told.n = 0;
    struct tensor holed = run_mixture(&m, true);
    assert_true(told.n > 0);
    for (int i = 0; i < told.n; i++) {
        assert_int_equal(told.calls[i].begin, (uintptr_t)hole);
        assert_int_equal(told.calls[i].end, (uintptr_t)hole + PAGES_ABSENT * page);
    }
    assert_memory_equal(whole.data, holed.data, sizeof(float) * ROWS * HIDDEN);
    free(whole.data);
    free(holed.data);
    mixture_close(&m);
}

/* A single row's experts are multiplied side by side where memory holds them, and else one after
 * the other. */
static void test_lone_rows_have_the_same_bits(void **state) {
    (void)state;
    struct mixture m;
    open_chosen(&m);
    m.x = tensor_rows(m.x, 0, 1);
    m.routes = tensor_rows(m.routes, 0, 1);
    struct tensor plain = run_mixture(&m, false);
    set_absent(NULL, 0);
    struct tensor there = run_mixture(&m, true);
    set_all_absent();
    struct tensor missing = run_mixture(&m, true);
    assert_memory_equal(there.data, plain.data, sizeof(float) * HIDDEN);
    assert_memory_equal(missing.data, plain.data, sizeof(float) * HIDDEN);
    free(plain.data);
    free(there.data);
    free(missing.data);
    mixture_close(&m);
}

/* Pages whose advice the system has dropped are asked for again when the turn of their expert has
 * come. */
static void test_dropped_advice_is_given_again(void **state) {
    (void)state;
    struct mixture m;
    open_chosen(&m);
    set_absent(m.fc1[10].data, (size_t)sysconf(_SC_PAGESIZE));
    told.n = 0;
    struct tensor y = run_mixture(&m, true);
    assert_int_equal(told.n, 2);
    free(y.data);
    mixture_close(&m);
}

/* A system that neither says which pages there are nor takes advice: all pages of chosen experts
 * are asked for, and the result is the same. */
static void test_refused_advice_changes_nothing(void **state) {
    (void)state;
    struct mixture m;
    open_chosen(&m);
    struct tensor plain = run_mixture(&m, false);
    absent.fails = true;
    told.refuses = true;
    told.n = 0;
    struct tensor refused = run_mixture(&m, true);
    absent.fails = false;
    told.refuses = false;
    check_pages(&m.fc1[1], true);
    check_pages(&m.fc1[2], false);
    assert_true(atomic_load(&cpu_of(m.backend)->advice_refused));
    assert_true(atomic_load(&cpu_of(m.backend)->pages_hidden));
    assert_memory_equal(refused.data, plain.data, sizeof(float) * ROWS * HIDDEN);
    free(refused.data);
    free(plain.data);
    mixture_close(&m);
}

/* Of files that are somebody else's Linux says that memory holds all pages. Waiting for pages shows
 * that it does not, and from then on all are asked for. */
static void test_hidden_pages_are_asked_for(void **state) {
    (void)state;
    struct mixture m;
    open_chosen(&m);
    set_absent(NULL, 0);
    told.n = 0;
    struct tensor there = run_mixture(&m, true);
    assert_int_equal(told.n, 0);
    waits = 100;
    struct tensor waiting = run_mixture(&m, true);
    waits = 0;
    assert_int_equal(told.n, 0);
    struct tensor asked = run_mixture(&m, true);
    for (int i = 0; i < EXPERTS; i++) check_pages(&m.fc1[i], i % 3 == 1);
    assert_memory_equal(asked.data, there.data, sizeof(float) * ROWS * HIDDEN);
    free(there.data);
    free(waiting.data);
    free(asked.data);
    mixture_close(&m);
}

/* Experts of a step that uses more than FETCH_AHEAD_BYTES are asked for in turn: never much more
 * ahead than that. The matrices have no memory, and the system refuses the advice. */
static void test_steps_of_many_rows_ask_in_turn(void **state) {
    (void)state;
    enum { MANY = 64, WIDE = 1024, BYTES = 2 * WIDE * WIDE * 4 };
    struct weight fc1[MANY], fc2[MANY];
    struct tensor routes = make_rows(MANY, 2), x = make_rows(MANY, 1);
    char *reserved =
        mmap(NULL, (size_t)MANY * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(reserved != MAP_FAILED);
    for (int i = 0; i < MANY; i++) {
        char *at = reserved + (size_t)i * BYTES;
        fc1[i] = (struct weight){.data = at, .dtype = DTYPE_F32, .n_out = WIDE, .n_in = WIDE};
        fc2[i] = fc1[i];
        fc2[i].data = at + BYTES / 2;
        ((float *)routes.data)[2 * i + 1] = (float)i;
    }
    struct backend *backend;
    struct error e = {0};
    if (backend_open(&backend, "cpu", &(struct backend_options){.threads = 1}, &e))
        fail_msg("%s", e.text);
    struct experts_args args = {
        .x = x, .routes = routes, .fc1 = fc1, .fc2 = fc2, .n_experts = MANY};
    struct expert_fetch fetch;
    set_all_absent();
    told.n = 0;
    expert_fetch_begin(&fetch, backend, &args);
    assert_false(expert_fetch_has_all(&fetch));
    for (int i = 0; i < MANY; i++) {
        expert_fetch_advance(&fetch, i);
        int last = min_int(MANY, i + FETCH_AHEAD_BYTES / BYTES) - 1;
        assert_true(was_asked_for((uintptr_t)fc1[i].data));
        assert_true(was_asked_for((uintptr_t)fc2[last].data + BYTES / 2 - 1));
        assert_true(last == MANY - 1 || !was_asked_for((uintptr_t)fc1[last + 1].data));
    }
    munmap(reserved, (size_t)MANY * BYTES);
    backend_close(backend);
    free(routes.data);
    free(x.data);
}

static const char source[] = "tests/golden/hf/mixtral";

/* As retro-convert --to packed writes it. */
static void pack(const char *to) {
    struct convert_options options = {.from = source, .to = to, .format = &format_packed};
    struct conversion conversion;
    struct buffer config = {0};
    struct error e = {0};
    char path[FOLDER_PATH_SIZE];
    folder_path(path, source, "config.json");
    if (conversion_open(&conversion, &options, &e) ||
        format_packed.write(&conversion, source, to, &e) || file_read(path, 1 << 20, &config, &e))
        fail_msg("%s", e.text);
    folder_write(to, "config.json", config.data, config.size);
    buffer_free(&config);
    conversion_close(&conversion);
}

struct opened {
    struct backend *backend;
    struct comm *comm;
    struct model *model;
};

static void open_packed(struct opened *opened, bool fetch_experts) {
    struct model_options options = {.fetch_experts = fetch_experts};
    struct error e = {0};
    if (backend_open(&opened->backend, "cpu", &(struct backend_options){.threads = 2}, &e) ||
        comm_open_single(&opened->comm, &e) ||
        model_open(&opened->model, test_folder, opened->backend, opened->comm, &options, &e))
        fail_msg("%s", e.text);
}

static void close_packed(struct opened *opened) {
    model_close(opened->model);
    comm_close(opened->comm);
    backend_close(opened->backend);
}

/* The logits of a prompt, and of a token behind it. */
enum { PROMPT = 9, VOCABULARY = 64 };
static void read_text(const struct opened *opened, float logits[(PROMPT + 1) * VOCABULARY]) {
    const int32_t tokens[PROMPT + 1] = {3, 14, 15, 9, 26, 5, 35, 8, 9, 7};
    struct session_limits limits = {.max_sessions = 1,
                                    .max_tokens = PROMPT + 1,
                                    .max_step_rows = PROMPT,
                                    .max_logit_rows = PROMPT,
                                    .kv_dtype = DTYPE_F32};
    struct session_pool *pool;
    struct session *session;
    struct error e = {0};
    if (session_pool_open(&pool, opened->model, &limits, &e) ||
        session_open(&session, pool, grid_make(GRID_END, PROMPT, PROMPT + 1), &e))
        fail_msg("%s", e.text);
    for (int at = 0, rows = PROMPT; at < PROMPT + 1; at += rows, rows = 1) {
        struct tensor out;
        struct step_item item = {
            .session = session, .tokens = tokens + at, .n_tokens = rows, .n_logits = rows};
        if (session_step(pool, &item, 1, &out, &e)) fail_msg("%s", e.text);
        backend_download(opened->backend, logits + (ptrdiff_t)at * VOCABULARY, out.data,
                         sizeof(float) * (size_t)rows * VOCABULARY);
        assert_int_equal(backend_sync(opened->backend, &e), STATUS_OK);
    }
    session_close(session);
    session_pool_close(pool);
}

static bool is_mapped(const struct model *model, const struct weight *weight) {
    for (int i = 0; i < weights_count(model->mapped); i++)
        if (weights_at(model->mapped, i)->data == weight->data) return true;
    return false;
}

static void test_only_experts_stay_mapped(void **state) {
    (void)state;
    struct opened mapped, fetching;
    float of_mapped[(PROMPT + 1) * VOCABULARY], of_fetching[(PROMPT + 1) * VOCABULARY];
    pack(test_folder);
    set_all_absent();
    told.n = 0;
    open_packed(&mapped, false);
    read_text(&mapped, of_mapped);
    assert_int_equal(count_advice(MADV_RANDOM) + count_advice(MADV_WILLNEED), 0);
    open_packed(&fetching, true);
    assert_true(count_advice(MADV_RANDOM) > 0);
    read_text(&fetching, of_fetching);
    assert_true(count_advice(MADV_WILLNEED) > 0);
    assert_memory_equal(of_mapped, of_fetching, sizeof of_mapped);

    const struct layer *all = mapped.model->stacks[STACK_DECODER].layers,
                       *experts = fetching.model->stacks[STACK_DECODER].layers;
    assert_true(is_mapped(mapped.model, &all->qkv.weight));
    assert_true(is_mapped(mapped.model, &all->expert_fc1.weights[0]));
    assert_false(is_mapped(fetching.model, &experts->qkv.weight));
    assert_false(is_mapped(fetching.model, &experts->router.weight));
    assert_false(is_mapped(fetching.model, &fetching.model->embedding.word));
    assert_false(is_mapped(fetching.model, &fetching.model->output.weight));
    assert_true(is_mapped(fetching.model, &experts->expert_fc1.weights[0]));
    assert_true(is_mapped(fetching.model, &experts->expert_fc2.weights[0]));
    close_packed(&mapped);
    close_packed(&fetching);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_chosen_experts_are_asked_for, folder_set_up,
                                        folder_tear_down),
        cmocka_unit_test_setup_teardown(test_pages_in_memory_are_not_asked_for, folder_set_up,
                                        folder_tear_down),
        cmocka_unit_test_setup_teardown(test_lone_rows_have_the_same_bits, folder_set_up,
                                        folder_tear_down),
        cmocka_unit_test_setup_teardown(test_dropped_advice_is_given_again, folder_set_up,
                                        folder_tear_down),
        cmocka_unit_test_setup_teardown(test_refused_advice_changes_nothing, folder_set_up,
                                        folder_tear_down),
        cmocka_unit_test_setup_teardown(test_hidden_pages_are_asked_for, folder_set_up,
                                        folder_tear_down),
        cmocka_unit_test(test_steps_of_many_rows_ask_in_turn),
        cmocka_unit_test_setup_teardown(test_only_experts_stay_mapped, folder_set_up,
                                        folder_tear_down)};
    log_set_level(LOG_LEVEL_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
