/* tests/tp/test_sockets.c: ranks that are processes and meet at a file: what they do together, what they do not take
 * for each other, and what is said when one does not come, is of another run, or ends. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels/comm/comm.h"

enum { MAX_RANKS = 5, ROWS = 3, COLS = 7, ID_BYTES = 128, PATIENCE = 120 };

static char folder[] = "/tmp/retro-sockets-XXXXXX", file[64];

static struct comm_options options_of(int rank, int size, double timeout) {
    return (struct comm_options){.kind = COMM_SOCKETS,
                                 .size = size,
                                 .stages = 1,
                                 .timeout = timeout,
                                 .rendezvous = file,
                                 .host = "127.0.0.1",
                                 .rank = rank};
}

/* A process that is a rank. Its result and its error come back by a pipe. */
struct child {
    pid_t pid;
    int pipe;
};

struct result {
    enum status status;
    struct error error;
    double seconds;
};

typedef enum status work(struct comm *c, struct error *e);

static struct child start(struct comm_options o, work *w) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) {
        close(ends[1]);
        return (struct child){pid, ends[0]};
    }
    struct result r = {.status = STATUS_OK};
    struct comm *c[COMM_MAX_RANKS];
    int n;
    double begin = time_now();
    r.status = comm_open(c, &n, &o, &r.error);
    if (r.status == STATUS_OK) {
        r.status = n == 1 && strcmp(c[0]->ops->name, "sockets") == 0 ? w(c[0], &r.error) : STATUS_INTERNAL;
        comm_close(c[0]);
    }
    r.seconds = time_now() - begin;
    _exit(write(ends[1], &r, sizeof r) != sizeof r);
}

static struct result finish(struct child child) {
    struct result r = {.status = STATUS_INTERNAL};
    int status;
    bool told = read(child.pipe, &r, sizeof r) == sizeof r;
    close(child.pipe);
    assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
    if (!told) error_set(&r.error, STATUS_INTERNAL, "ended with %#x", (unsigned)status);
    return r;
}

static void expect(struct child child, enum status status, const char *words) {
    struct result r = finish(child);
    if (r.status != status || (words && strstr(r.error.text, words) == NULL)) fail_msg("%s", r.error.text);
}

/* Numbers whose sum depends on the order they are added in. */
static float number(int rank, int i) { return (rank % 2 ? 1e7f : -1e7f) + 0.1f * (float)(i * (rank + 1)); }

static enum status sum_and_gather(struct comm *c, struct backend *b, struct error *e) {
    float sum[ROWS * COLS], part[ROWS * COLS], whole[ROWS * COLS * MAX_RANKS];
    int cols = COLS * c->size - c->size / 2; /* the last parts overlap */
    for (int i = 0; i < ROWS * COLS; i++) {
        sum[i] = number(c->rank, i);
        part[i] = (float)(1000 * (i / COLS) + gathered_col(cols, COLS, c->rank) + i % COLS);
    }
    comm_allreduce_sum(c, b, tensor_make(sum, DTYPE_F32, ROWS, COLS));
    comm_allgather_cols(c, b, tensor_make(whole, DTYPE_F32, ROWS, cols), tensor_make(part, DTYPE_F32, ROWS, COLS));
    if (backend_sync(b, e)) return e->status;
    for (int i = 0; i < ROWS * COLS; i++) {
        float expected = 0;
        for (int r = 0; r < c->size; r++) expected += number(r, i);
        if (memcmp(&sum[i], &expected, sizeof expected) != 0) return error_set(e, STATUS_INTERNAL, "sum %d", i);
    }
    for (int i = 0; i < ROWS * cols; i++)
        if (whole[i] != (float)(1000 * (i / cols) + i % cols)) return error_set(e, STATUS_INTERNAL, "gather %d", i);
    return STATUS_OK;
}

/* Shares bytes as NCCL's id is shared: rank 0 makes them and all must have them. Then an outcome that all learn. */
static enum status share_id(struct comm *c, struct error *e) {
    struct buffer id = {0};
    char expected[ID_BYTES];
    for (int i = 0; i < ID_BYTES; i++) expected[i] = (char)(7 * i);
    if (c->rank == 0) buffer_append(&id, expected, sizeof expected);
    enum status status = comm_broadcast(c, &id, e);
    if (status == STATUS_OK && (id.size != ID_BYTES || memcmp(id.data, expected, ID_BYTES) != 0))
        status = error_set(e, STATUS_INTERNAL, "another id");
    buffer_free(&id);
    if (status) return status;
    struct error mine = {0};
    enum status outcome = c->rank == 1 ? error_set(&mine, STATUS_NO_MEMORY, "no room") : STATUS_OK;
    if (c->size > 1 && (comm_agree(c, outcome, &mine) != STATUS_NO_MEMORY || strcmp(mine.text, "rank 1: no room") != 0))
        return error_set(e, STATUS_INTERNAL, "agreed on %s", mine.text);
    return STATUS_OK;
}

static enum status talk(struct comm *c, struct error *e) {
    struct backend *b;
    if (share_id(c, e) || backend_open(&b, "cpu", &(struct backend_options){.threads = 1}, e)) return e->status;
    enum status status = sum_and_gather(c, b, e);
    backend_close(b);
    return status;
}

static void test_together(void **state) {
    (void)state;
    for (int size = 1; size <= MAX_RANKS; size++) {
        struct child ranks[MAX_RANKS];
        for (int r = size - 1; r >= 0; r--) ranks[r] = start(options_of(r, size, PATIENCE), talk);
        for (int r = 0; r < size; r++) expect(ranks[r], STATUS_OK, NULL);
        assert_int_equal(access(file, F_OK), -1);
    }
}

/* Two stages of two: each sums on its own, and more rows than a connection holds go to the next, in order. */
static enum status hand_on(struct comm *c, struct error *e) {
    enum { MANY = 1 << 20 };
    struct comm *world = c->world;
    struct backend *b;
    if (c->size != 2 || world->size != 4 || c->rank != world->rank % 2 || c->stage != world->rank / 2 || c->cpus < 1 ||
        c->local_rank != world->rank)
        return error_set(e, STATUS_INTERNAL, "rank %d of %d is %d of stage %d", world->rank, world->size, c->rank,
                         c->stage);
    if (backend_open(&b, "cpu", &(struct backend_options){.threads = 1}, e)) return e->status;
    float *x = xcalloc(MANY, sizeof *x);
    bool right = true;
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < MANY && c->stage == 0; j++) x[j] = (float)(i + j + c->rank);
        if (c->stage == 0)
            comm_send(world, b, tensor_make(x, DTYPE_F32, MANY, 1), world->rank + 2);
        else
            comm_receive(world, b, tensor_make(x, DTYPE_F32, MANY, 1), world->rank - 2);
        for (int j = 0; j < MANY; j++) right = right && x[j] == (float)(i + j + c->rank);
    }
    x[0] = (float)world->rank;
    comm_allreduce_sum(c, b, tensor_make(x, DTYPE_F32, 1, 1));
    enum status status = backend_sync(b, e);
    if (status == STATUS_OK && (!right || x[0] != (c->stage ? 5.0f : 1.0f)))
        status = error_set(e, STATUS_INTERNAL, "rows went astray");
    free(x);
    backend_close(b);
    return status;
}

static void test_stages(void **state) {
    (void)state;
    struct child ranks[4];
    for (int r = 0; r < 4; r++) {
        struct comm_options o = options_of(r, 2, PATIENCE);
        o.stages = 2;
        ranks[r] = start(o, hand_on);
    }
    for (int r = 0; r < 4; r++) expect(ranks[r], STATUS_OK, NULL);
}

static enum status nothing(struct comm *c, struct error *e) {
    (void)c;
    (void)e;
    return STATUS_OK;
}

static void sleep_a_little(void) { usleep(300000); }

static void wait_for_file(void) {
    for (int i = 0; i < 500 && access(file, F_OK) != 0; i++) usleep(10000);
    assert_int_equal(access(file, F_OK), 0);
}

/* The file of a rank 0 that was killed, where nobody listens any more. A rank that reads it goes on waiting, and joins
 * the rank 0 that comes. */
static void test_stale_file(void **state) {
    (void)state;
    struct child lost = start(options_of(0, 2, PATIENCE), nothing);
    wait_for_file();
    kill(lost.pid, SIGKILL);
    assert_int_equal(finish(lost).status, STATUS_INTERNAL);
    assert_int_equal(access(file, F_OK), 0);
    struct child follower = start(options_of(1, 2, PATIENCE), talk);
    sleep_a_little();
    struct child leader = start(options_of(0, 2, PATIENCE), talk);
    expect(leader, STATUS_OK, NULL);
    expect(follower, STATUS_OK, NULL);
}

/* A file whose port is another program's now, which takes connections and says nothing, or says something else. */
static void test_stale_port(void **state) {
    const char *answer = *state;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    int other = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(other, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(other, 5), 0);
    assert_int_equal(getsockname(other, (struct sockaddr *)&a, &size), 0);
    FILE *f = fopen(file, "w");
    fprintf(f, "retro-server ranks 1\n%064d\n127.0.0.1 %d\n", 0, ntohs(a.sin_port));
    fclose(f);
    struct child follower = start(options_of(1, 2, PATIENCE), talk);
    int fd = accept(other, NULL, NULL);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, answer, strlen(answer)), strlen(answer));
    struct child leader = start(options_of(0, 2, PATIENCE), talk);
    expect(leader, STATUS_OK, NULL);
    expect(follower, STATUS_OK, NULL);
    close(fd);
    close(other);
}

/* A foreign file is not read as one of ours; rank 0 replaces it. */
static void test_foreign_files(void **state) {
    (void)state;
    static const char *const texts[] = {"", "\n", "retro-server ranks 1\n", "retro-server ranks 2\n00 a 1\n",
                                        "retro-server ranks 1\n0123 127.0.0.1 99\n"};
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        FILE *f = fopen(file, "w");
        fputs(texts[i], f);
        fclose(f);
        struct child follower = start(options_of(1, 2, PATIENCE), talk),
                     leader = start(options_of(0, 2, PATIENCE), talk);
        expect(leader, STATUS_OK, NULL);
        expect(follower, STATUS_OK, NULL);
    }
}

/* Strangers at rank 0's port, who have not read the file, hold nobody up. */
static void test_strangers(void **state) {
    (void)state;
    char text[200] = "", host[60], secrets[80];
    int port;
    struct child leader = start(options_of(0, 2, PATIENCE), talk);
    wait_for_file();
    int fd = open(file, O_RDONLY);
    assert_true(read(fd, text, sizeof text - 1) > 0);
    close(fd);
    assert_int_equal(sscanf(text, "retro-server ranks 1 %79s %59s %d", secrets, host, &port), 3);
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int strangers[2];
    char bytes[400] = "retro-server ranks 1";
    for (int i = 0; i < 2; i++) {
        strangers[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(strangers[i], (struct sockaddr *)&a, sizeof a), 0);
    }
    assert_int_equal(write(strangers[0], bytes, sizeof bytes), sizeof bytes);
    close(strangers[1]);
    struct child follower = start(options_of(1, 2, PATIENCE), talk);
    expect(leader, STATUS_OK, NULL);
    expect(follower, STATUS_OK, NULL);
    close(strangers[0]);
}

static void test_who_does_not_come(void **state) {
    (void)state;
    struct child leader = start(options_of(0, 4, 1), nothing), one = start(options_of(2, 4, 1), nothing);
    struct result r = finish(leader);
    assert_int_equal(r.status, STATUS_IO);
    assert_non_null(strstr(r.error.text, "rank 0 waited 1 s (parallel.timeout) at parallel.rendezvous"));
    assert_non_null(strstr(r.error.text, "of 4 ranks there did not come: 1 3"));
    assert_true(r.seconds > 0.9 && r.seconds < 5);
    assert_int_equal(finish(one).status, STATUS_IO);
    assert_int_equal(access(file, F_OK), -1);
    expect(start(options_of(1, 2, 1), nothing), STATUS_IO, "rank 1 waited 1 s (parallel.timeout) for rank 0");
}

/* All end, and say the same. */
static void test_refused_ranks(void **state) {
    (void)state;
    struct comm_options other = options_of(1, 2, PATIENCE);
    struct child leader = start(options_of(0, 3, PATIENCE), nothing), wrong = start(other, nothing);
    const char *words = "rank 1 has parallel.tensor 2, parallel.pipeline 1; rank 0 has parallel.tensor 3";
    expect(leader, STATUS_INVALID, words);
    expect(wrong, STATUS_INVALID, words);
    struct child again[] = {start(options_of(0, 3, PATIENCE), nothing), start(options_of(1, 3, PATIENCE), nothing),
                            start(options_of(1, 3, PATIENCE), nothing)};
    for (int i = 0; i < 3; i++)
        expect(again[i], STATUS_INVALID, "two processes came as rank 1: give each a parallel.rank of its own");
}

static void test_paths_and_hosts(void **state) {
    (void)state;
    struct comm_options o = options_of(0, 2, 1);
    o.rendezvous = "/no/such/folder/file";
    expect(start(o, nothing), STATUS_IO, "cannot write parallel.rendezvous /no/such/folder/file: No such file");
    o = options_of(0, 2, 1);
    o.host = "no.such.host.invalid";
    expect(start(o, nothing), STATUS_INVALID, "parallel.host \"no.such.host.invalid\"");
    o.host = "192.0.2.1";
    expect(start(o, nothing), STATUS_IO, "cannot listen for other ranks at parallel.host 192.0.2.1");
}

/* Rank 1 ends while rank 0 waits for its rows, and rank 2 for a message of rank 0. */
static enum status end_one(struct comm *c, struct error *e) {
    struct buffer message = {0};
    struct backend *b;
    float x[4] = {0};
    if (c->rank == 1) raise(SIGKILL);
    if (c->rank == 2) {
        comm_broadcast(c, &message, e);
        buffer_free(&message);
        return e->status;
    }
    if (backend_open(&b, "cpu", &(struct backend_options){.threads = 1}, e)) return e->status;
    comm_receive(c, b, tensor_make(x, DTYPE_F32, 2, 2), 1);
    enum status status = backend_sync(b, e);
    backend_close(b);
    return status;
}

/* Rank 0 that does nothing still can know. */
static enum status notice_one(struct comm *c, struct error *e) {
    if (c->rank == 1) raise(SIGKILL);
    for (int i = 0; i < 500 && comm_check(c, e) == STATUS_OK; i++) usleep(10000);
    return comm_check(c, e);
}

static void test_a_rank_that_ends(void **state) {
    (void)state;
    work *const works[] = {end_one, notice_one};
    for (size_t w = 0; w < ARRAY_COUNT(works); w++) {
        struct child ranks[3];
        for (int r = 0; r < 3; r++) ranks[r] = start(options_of(r, 3, PATIENCE), works[w]);
        for (int r = 0; r < 3; r++) {
            struct result found = finish(ranks[r]);
            if (r == 1) continue;
            assert_int_equal(found.status, STATUS_DEVICE);
            assert_non_null(strstr(found.error.text, "of 3 lost rank "));
            assert_true(found.seconds < 5);
        }
    }
}

/* Rank 1 does not come to a sum. */
static enum status miss_one(struct comm *c, struct error *e) {
    struct backend *b;
    float x[4] = {0};
    if (c->rank == 1) {
        sleep(3);
        return STATUS_OK;
    }
    if (backend_open(&b, "cpu", &(struct backend_options){.threads = 1}, e)) return e->status;
    comm_allreduce_sum(c, b, tensor_make(x, DTYPE_F32, 2, 2));
    enum status status = backend_sync(b, e);
    backend_close(b);
    return status;
}

static void test_a_rank_that_hangs(void **state) {
    (void)state;
    struct child ranks[2];
    for (int r = 0; r < 2; r++) ranks[r] = start(options_of(r, 2, 2), miss_one);
    expect(ranks[0], STATUS_DEVICE, "rank 0 of 2 waited 2 s for the others (parallel.timeout)");
    expect(ranks[1], STATUS_OK, NULL);
}

/* Work that takes the last rank several time limits, with and without saying that it comes further. */
static enum status work_long(struct comm *c, struct error *e) {
    double end = time_now() + 3.5;
    while (c->rank == c->size - 1 && time_now() < end) {
        if (comm_working(c, e)) return e->status;
        usleep(20000);
    }
    return comm_agree(c, STATUS_OK, e);
}

static enum status hang_long(struct comm *c, struct error *e) {
    if (comm_working(c, e)) return e->status;
    if (c->rank == c->size - 1) sleep(6);
    return comm_agree(c, STATUS_OK, e);
}

static void test_a_rank_that_loads(void **state) {
    (void)state;
    struct child ranks[3];
    for (int r = 0; r < 3; r++) ranks[r] = start(options_of(r, 3, 1), work_long);
    for (int r = 0; r < 3; r++) expect(ranks[r], STATUS_OK, NULL);
}

static void test_a_rank_that_hangs_loading(void **state) {
    (void)state;
    struct child ranks[3];
    for (int r = 0; r < 3; r++) ranks[r] = start(options_of(r, 3, 1), hang_long);
    int named = 0;
    for (int r = 0; r < 2; r++) {
        struct result found = finish(ranks[r]);
        assert_int_equal(found.status, STATUS_DEVICE);
        assert_true(found.seconds < 5);
        named += strstr(found.error.text, "waited 1 s for rank 2, which hangs or has not started") != NULL;
    }
    assert_true(named > 0); /* the first to give up; the other may see it go */
    finish(ranks[2]);       /* what the others said before they left is enough for it to go on */
}

/* Rank 1 ends while the others load for minutes. */
static enum status end_early(struct comm *c, struct error *e) {
    if (c->rank == 1) return STATUS_OK;
    for (double end = time_now() + PATIENCE; time_now() < end; usleep(20000))
        if (comm_working(c, e)) return e->status;
    return STATUS_INTERNAL;
}

static void test_a_rank_that_ends_loading(void **state) {
    (void)state;
    struct child ranks[3];
    for (int r = 0; r < 3; r++) ranks[r] = start(options_of(r, 3, 8), end_early);
    expect(ranks[0], STATUS_DEVICE, "of 3 lost rank ");
    expect(ranks[1], STATUS_OK, NULL);
    expect(ranks[2], STATUS_DEVICE, "of 3 lost rank ");
}

/* Lines are compared one by one; ranks with the same go on. */
static enum status compare(struct comm *c, struct error *e) {
    static const char *const texts[] = {"a 1\nb 2\n", "a 1\nb 3\n", "a 1\n"};
    if (comm_same(c, "all the same\n", e)) return e->status;
    return comm_same(c, texts[c->rank % 3], e);
}

static void test_what_must_be_the_same(void **state) {
    (void)state;
    struct child ranks[3];
    for (int r = 0; r < 3; r++) ranks[r] = start(options_of(r, 3, PATIENCE), compare);
    for (int r = 0; r < 3; r++)
        expect(ranks[r], STATUS_INVALID, "rank 1: has b 3; rank 0 has b 2. Give all ranks the same");
}

static int make_folder(void **state) {
    (void)state;
    if (mkdtemp(folder) == NULL) return 1;
    snprintf(file, sizeof file, "%s/ranks", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(file);
    return rmdir(folder); /* fails when a rank left something */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_stale_file),
        cmocka_unit_test_prestate(test_stale_port, (void *)(uintptr_t) ""),
        cmocka_unit_test_prestate(test_stale_port, (void *)(uintptr_t) "HTTP/1.1 400 Bad Request\r\n\r\n"),
        cmocka_unit_test(test_foreign_files),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_who_does_not_come),
        cmocka_unit_test(test_refused_ranks),
        cmocka_unit_test(test_paths_and_hosts),
        cmocka_unit_test(test_a_rank_that_ends),
        cmocka_unit_test(test_a_rank_that_hangs),
        cmocka_unit_test(test_a_rank_that_loads),
        cmocka_unit_test(test_a_rank_that_hangs_loading),
        cmocka_unit_test(test_a_rank_that_ends_loading),
        cmocka_unit_test(test_what_must_be_the_same),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
