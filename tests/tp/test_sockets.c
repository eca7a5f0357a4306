/* tests/tp/test_sockets.c: ranks that are processes and meet at an address: what they do together,
 * what they do not take for each other, and what is said when one does not come, is of another run,
 * or ends. */
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

static char folder[] = "/tmp/retro-sockets-XXXXXX", meet[32], secret[64], other_secret[64],
            short_secret[64];
static int port;

static struct comm_options options_of(int rank, int size, double timeout) {
    return (struct comm_options){.kind = COMM_SOCKETS,
                                 .size = size,
                                 .stages = 1,
                                 .timeout = timeout,
                                 .rendezvous = meet,
                                 .secret_file = secret,
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
        r.status =
            n == 1 && strcmp(c[0]->ops->name, "sockets") == 0 ? w(c[0], &r.error) : STATUS_INTERNAL;
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
    if (r.status != status || (words && strstr(r.error.text, words) == NULL))
        fail_msg("%s", r.error.text);
}

/* Numbers whose sum depends on the order they are added in. */
static float number(int rank, int i) {
    return (rank % 2 ? 1e7f : -1e7f) + 0.1f * (float)(i * (rank + 1));
}

static enum status sum_and_gather(struct comm *c, struct backend *b, struct error *e) {
    float sum[ROWS * COLS], part[ROWS * COLS], whole[ROWS * COLS * MAX_RANKS];
    int cols = COLS * c->size - c->size / 2; /* the last parts overlap */
    for (int i = 0; i < ROWS * COLS; i++) {
        sum[i] = number(c->rank, i);
        part[i] = (float)(1000 * (i / COLS) + gathered_col(cols, COLS, c->rank) + i % COLS);
    }
    comm_allreduce_sum(c, b, tensor_make(sum, DTYPE_F32, ROWS, COLS));
    comm_allgather_cols(c, b, tensor_make(whole, DTYPE_F32, ROWS, cols),
                        tensor_make(part, DTYPE_F32, ROWS, COLS));
    if (backend_sync(b, e)) return e->status;
    for (int i = 0; i < ROWS * COLS; i++) {
        float expected = 0;
        for (int r = 0; r < c->size; r++) expected += number(r, i);
        if (memcmp(&sum[i], &expected, sizeof expected) != 0)
            return error_set(e, STATUS_INTERNAL, "sum %d", i);
    }
    for (int i = 0; i < ROWS * cols; i++)
        if (whole[i] != (float)(1000 * (i / cols) + i % cols))
            return error_set(e, STATUS_INTERNAL, "gather %d", i);
    return STATUS_OK;
}

/* Shares bytes as NCCL's id is shared: rank 0 makes them and all must have them. Then an outcome
 * that all learn. */
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
    if (c->size > 1 &&
        (comm_agree(c, outcome, &mine) != STATUS_NO_MEMORY ||
         strncmp(mine.text, "rank 1 on ", 10) != 0 || strstr(mine.text, "): no room") == NULL))
        return error_set(e, STATUS_INTERNAL, "agreed on %s", mine.text);
    return STATUS_OK;
}

static enum status talk(struct comm *c, struct error *e) {
    struct backend *b;
    if (share_id(c, e) || backend_open(&b, "cpu", &(struct backend_options){.threads = 1}, e))
        return e->status;
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
    }
}

/* Two stages of two: each sums on its own, and more rows than a connection holds go to the next, in
 * order. */
static enum status hand_on(struct comm *c, struct error *e) {
    enum { MANY = 1 << 20 };
    struct comm *world = c->world;
    struct backend *b;
    if (c->size != 2 || world->size != 4 || c->rank != world->rank % 2 ||
        c->stage != world->rank / 2 || c->cpus < 1 || c->local_rank != world->rank)
        return error_set(e, STATUS_INTERNAL, "rank %d of %d is %d of stage %d", world->rank,
                         world->size, c->rank, c->stage);
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

/* A connection to rank 0, which may not listen yet. */
static int stranger_open(void) {
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < 1000; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) return fd;
        close(fd);
        usleep(10000);
    }
    fail_msg("rank 0 does not listen");
    return -1;
}

/* A rank 0 that was killed while it waited. The rank that waits with it joins the rank 0 that
 * comes. */
static void test_killed_while_meeting(void **state) {
    (void)state;
    struct child lost = start(options_of(0, 3, PATIENCE), nothing);
    struct child followers[2] = {start(options_of(1, 3, PATIENCE), talk)};
    close(stranger_open());
    sleep_a_little();
    kill(lost.pid, SIGKILL);
    assert_int_equal(finish(lost).status, STATUS_INTERNAL);
    followers[1] = start(options_of(2, 3, PATIENCE), talk);
    expect(start(options_of(0, 3, PATIENCE), talk), STATUS_OK, NULL);
    for (int i = 0; i < 2; i++) expect(followers[i], STATUS_OK, NULL);
}

/* Another program at the address, which takes connections and says nothing, or something else. The
 * rank goes on, and joins the rank 0 that comes. */
static void test_another_program(void **state) {
    const char *answer = *state;
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct child follower = start(options_of(1, 2, PATIENCE), talk);
    int other = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(other, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    assert_int_equal(bind(other, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(other, 5), 0);
    int fd = accept(other, NULL, NULL);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, answer, strlen(answer)), strlen(answer));
    sleep_a_little();
    close(fd);
    close(other);
    expect(start(options_of(0, 2, PATIENCE), talk), STATUS_OK, NULL);
    expect(follower, STATUS_OK, NULL);
}

/* Strangers at rank 0's port neither join nor hold anybody up, however many they are and whatever
 * they say. */
static void test_strangers(void **state) {
    (void)state;
    static const char *const words[] = {
        "", "\n\n", "GET / HTTP/1.1\r\n\r\n", "retro-server ranks 2\n\n",
        "rank 1 of 2 1\nchannel 0\nversion " RETRO_VERSION
        "\nseat a 127.0.0.1 9\nchallenge 00112233445566778899aabbccddeeff\n"
        "proof 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n\n"};
    enum { SILENT = 200 };
    int silent[SILENT];
    char zeros[4000] = "";
    struct child leader = start(options_of(0, 2, PATIENCE), talk);
    for (size_t i = 0; i < ARRAY_COUNT(words); i++) {
        int fd = stranger_open();
        assert_int_equal(write(fd, words[i], strlen(words[i])), strlen(words[i]));
        if (i % 2) assert_true(write(fd, zeros, sizeof zeros) > 0);
        close(fd);
    }
    for (int i = 0; i < SILENT; i++) silent[i] = stranger_open();
    struct child follower = start(options_of(1, 2, PATIENCE), talk);
    expect(leader, STATUS_OK, NULL);
    expect(follower, STATUS_OK, NULL);
    for (int i = 0; i < SILENT; i++) close(silent[i]);
}

/* A rank with another secret does not join, and both sides say so; nor does one without a secret.
 */
static void test_secrets(void **state) {
    (void)state;
    const char *words =
        "this rank has another secret; give all ranks the same parallel.secret_file";
    struct comm_options other = options_of(1, 2, PATIENCE), none = options_of(1, 2, PATIENCE);
    struct child leader = start(options_of(0, 2, 2), nothing);
    other.secret_file = other_secret;
    none.secret_file = "";
    expect(start(other, nothing), STATUS_INVALID, words);
    expect(start(none, nothing), STATUS_INVALID, words);
    expect(leader, STATUS_IO,
           "; did not come: 1; 2 connections were refused, the last from 127.0.0.1");

    none.secret_file = folder;
    expect(start(none, nothing), STATUS_INVALID, "parallel.secret_file: ");
    none.secret_file = short_secret;
    expect(start(none, nothing), STATUS_INVALID, " has 5 bytes; 16 is the least");
}

/* On a machine alone a secret may be left out; where others could come it may not. */
static void test_without_a_secret(void **state) {
    (void)state;
    struct child ranks[2];
    for (int r = 0; r < 2; r++) {
        struct comm_options o = options_of(r, 2, PATIENCE);
        o.secret_file = NULL;
        ranks[r] = start(o, talk);
    }
    for (int r = 0; r < 2; r++) expect(ranks[r], STATUS_OK, NULL);
    struct comm_options o = options_of(0, 2, 1);
    o.secret_file = NULL;
    o.host = "0.0.0.0";
    expect(start(o, nothing), STATUS_INVALID,
           "other machines reach parallel.rendezvous 127.0.0.1:");
}

static void test_who_does_not_come(void **state) {
    (void)state;
    struct child leader = start(options_of(0, 4, 1), nothing),
                 one = start(options_of(2, 4, 1), nothing);
    struct result r = finish(leader);
    assert_int_equal(r.status, STATUS_IO);
    assert_non_null(strstr(r.error.text, "waited 1 s (parallel.timeout) at 127.0.0.1 port "));
    if (strstr(r.error.text, "for the others of 4 ranks; did not come: 1 3") == NULL)
        fail_msg("%s", r.error.text);
    assert_true(r.seconds > 0.9 && r.seconds < PATIENCE);
    assert_int_not_equal(finish(one).status, STATUS_OK);
    expect(start(options_of(1, 2, 1), nothing), STATUS_IO, "Connection refused");
}

/* All end, and say the same. */
static void test_refused_ranks(void **state) {
    (void)state;
    struct comm_options other = options_of(1, 2, PATIENCE);
    struct child leader = start(options_of(0, 3, PATIENCE), nothing), wrong = start(other, nothing);
    const char *words =
        "(127.0.0.1) has parallel.tensor 2, parallel.pipeline 1; rank 0 has parallel.tensor 3";
    expect(leader, STATUS_INVALID, words);
    expect(wrong, STATUS_INVALID, words);
    struct comm_options twin = options_of(1, 3, PATIENCE);
    twin.host = "127.0.0.2";
    struct child again[] = {start(options_of(0, 3, PATIENCE), nothing),
                            start(options_of(1, 3, PATIENCE), nothing), start(twin, nothing)};
    for (int i = 0; i < 3; i++)
        expect(again[i], STATUS_INVALID, "two processes came as rank 1, on ");
}

/* The port of a rank is another process's. */
static void test_a_port_in_use(void **state) {
    (void)state;
    struct child leader = start(options_of(0, 3, PATIENCE), nothing);
    close(stranger_open());
    expect(start(options_of(0, 3, PATIENCE), nothing), STATUS_IO,
           "cannot listen for other ranks at 127.0.0.1 port ");
    kill(leader.pid, SIGKILL);
    finish(leader);
}

static void test_hosts(void **state) {
    (void)state;
    struct comm_options o = options_of(0, 2, 1);
    o.host = "no.such.host.invalid";
    expect(start(o, nothing), STATUS_INVALID, "no.such.host.invalid: ");
    o.host = "192.0.2.1";
    expect(start(o, nothing), STATUS_IO, "cannot listen for other ranks at 192.0.2.1 port ");
    static const char *const wrong[] = {"127.0.0.1",       "127.0.0.1:", ":99",
                                        "127.0.0.1:70000", "a b:7000",   "::1:7000"};
    o.host = "";
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        o.rendezvous = wrong[i];
        expect(start(o, nothing), STATUS_INVALID,
               "expected host:port, an address of rank 0's machine and a port");
    }
}

/* Ranks at addresses of their own count as machines of their own. */
static enum status be_apart(struct comm *c, struct error *e) {
    if (c->local_ranks == 1 && c->local_rank == 0) return talk(c, e);
    return error_set(e, STATUS_INTERNAL, "rank %d is %d of %d here", c->rank, c->local_rank,
                     c->local_ranks);
}

static void test_addresses(void **state) {
    (void)state;
    static const char *const hosts[] = {"127.0.0.1", "127.0.0.2", "127.0.0.3"};
    struct child ranks[3];
    for (int r = 0; r < 3; r++) {
        struct comm_options o = options_of(r, 3, PATIENCE);
        o.host = hosts[r];
        ranks[r] = start(o, be_apart);
    }
    for (int r = 0; r < 3; r++) expect(ranks[r], STATUS_OK, NULL);
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

static enum status wait_for_failure(struct comm *c, struct error *e) {
    for (double end = time_now() + PATIENCE; time_now() < end && comm_check(c, e) == STATUS_OK;)
        usleep(10000);
    return comm_check(c, e);
}

/* Rank 0 that does nothing still can know. */
static enum status notice_one(struct comm *c, struct error *e) {
    if (c->rank == 1) raise(SIGKILL);
    return wait_for_failure(c, e);
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
            assert_non_null(strstr(found.error.text, " lost rank 1 on "));
            assert_non_null(strstr(found.error.text, " (127.0.0.1), which has ended"));
            assert_true(found.seconds < PATIENCE);
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
    expect(ranks[0], STATUS_DEVICE, " (127.0.0.1) waited 2 s (parallel.timeout) for rank 1 on ");
    expect(ranks[1], STATUS_OK, NULL);
}

/* Work that takes the last rank several time limits, with and without saying that it comes further.
 */
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
    if (c->rank == c->size - 1) return wait_for_failure(c, e);
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
        assert_true(found.seconds < PATIENCE);
        named += strstr(found.error.text, "waited 1 s (parallel.timeout) for rank 2 on ") != NULL;
    }
    assert_int_equal(named, 2); /* the first to give up tells the other */
    expect(ranks[2], STATUS_DEVICE, "waited 1 s (parallel.timeout) for rank 2 on ");
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
    expect(ranks[0], STATUS_DEVICE, " lost rank 1 on ");
    expect(ranks[1], STATUS_OK, NULL);
    expect(ranks[2], STATUS_DEVICE, " lost rank 1 on ");
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
        expect(ranks[r], STATUS_INVALID,
               " (127.0.0.1): has b 3; rank 0 has b 2. Give all ranks the same");
}

/* Rank 1 hangs, rank 2 waits for it and rank 0 for rank 2: all are told of rank 1. */
static enum status wait_in_a_row(struct comm *c, struct error *e) {
    struct backend *b;
    float x[4] = {0};
    if (c->rank == 1) return wait_for_failure(c, e);
    if (backend_open(&b, "cpu", &(struct backend_options){.threads = 1}, e)) return e->status;
    comm_receive(c, b, tensor_make(x, DTYPE_F32, 2, 2), c->rank == 0 ? 2 : 1);
    enum status status = backend_sync(b, e);
    backend_close(b);
    return status;
}

static void test_who_is_waited_for_in_the_end(void **state) {
    (void)state;
    struct child ranks[3];
    for (int r = 0; r < 3; r++) ranks[r] = start(options_of(r, 3, 3), wait_in_a_row);
    for (int r = 0; r < 3; r++)
        expect(ranks[r], STATUS_DEVICE, "waited 3 s (parallel.timeout) for rank 1 on ");
}

/* A rank that is stopped is missed by those who do not wait for it either. */
static enum status stop_one(struct comm *c, struct error *e) {
    if (c->rank == 1) raise(SIGSTOP);
    return wait_for_failure(c, e);
}

static void test_a_rank_that_is_stopped(void **state) {
    (void)state;
    struct child ranks[3];
    for (int r = 0; r < 3; r++) ranks[r] = start(options_of(r, 3, 4), stop_one);
    for (int r = 0; r < 3; r += 2)
        expect(ranks[r], STATUS_DEVICE, " heard nothing for 3 s from rank 1 on ");
    kill(ranks[1].pid, SIGCONT);
    expect(ranks[1], STATUS_DEVICE, " heard nothing for 3 s from rank 1 on ");
}

/* A port that nobody has, with those behind it, below the ones that the system gives away. */
static int port_find(int ranks) {
    for (int first = 20000 + getpid() % 1000 * 10; first < 32000; first += 10) {
        int n = 0;
        for (; n < ranks; n++) {
            struct sockaddr_in a = {.sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)(first + n))};
            int fd = socket(AF_INET, SOCK_STREAM, 0);
            bool is_free = bind(fd, (struct sockaddr *)&a, sizeof a) == 0;
            close(fd);
            if (!is_free) break;
        }
        if (n == ranks) return first;
    }
    return -1;
}

static int write_secret(char *path, const char *name, const char *text) {
    snprintf(path, 64, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    return f == NULL || fputs(text, f) < 0 || fclose(f) != 0;
}

static int make_folder(void **state) {
    (void)state;
    port = port_find(MAX_RANKS);
    if (port < 0 || mkdtemp(folder) == NULL) return 1;
    snprintf(meet, sizeof meet, "127.0.0.1:%d", port);
    return write_secret(secret, "secret", "a secret of these tests\n") ||
           write_secret(other_secret, "other", "another secret of these tests\n") ||
           write_secret(short_secret, "short", "short\n");
}

static int remove_folder(void **state) {
    (void)state;
    unlink(secret);
    unlink(other_secret);
    unlink(short_secret);
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_killed_while_meeting),
        cmocka_unit_test_prestate(test_another_program, (void *)(uintptr_t) ""),
        cmocka_unit_test_prestate(test_another_program,
                                  (void *)(uintptr_t) "HTTP/1.1 400 Bad Request\r\n\r\n"),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_secrets),
        cmocka_unit_test(test_without_a_secret),
        cmocka_unit_test(test_who_does_not_come),
        cmocka_unit_test(test_refused_ranks),
        cmocka_unit_test(test_a_port_in_use),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_a_rank_that_ends),
        cmocka_unit_test(test_a_rank_that_hangs),
        cmocka_unit_test(test_who_is_waited_for_in_the_end),
        cmocka_unit_test(test_a_rank_that_is_stopped),
        cmocka_unit_test(test_a_rank_that_loads),
        cmocka_unit_test(test_a_rank_that_hangs_loading),
        cmocka_unit_test(test_a_rank_that_ends_loading),
        cmocka_unit_test(test_what_must_be_the_same),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
