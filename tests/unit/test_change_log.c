/* tests/unit/test_change_log.c: a log of changes that another program takes back while it is read.
 */
#include <string.h>

#include "retrieval/generation/change_log.h"
#include "tests/folder.h"

/* A change of several pages. */
enum { CHANGE_BYTES = 100000 };

static const struct generation_origin origin = {1, 0};
static char folder[FOLDER_SIZE], path[FOLDER_PATH_SIZE];

struct taken {
    int n;
    uint64_t cut; /* bytes of the log that stay when the first change is taken */
};

static enum status take(void *context, enum change_kind kind, char *bytes, size_t size,
                        struct error *e) {
    struct taken *taken = context;
    (void)e;
    assert_int_equal(kind, CHANGE_PUT);
    assert_int_equal(size, CHANGE_BYTES);
    assert_int_equal(bytes[size - 1], 'a' + taken->n);
    free(bytes);
    if (taken->n == 0) assert_int_equal(truncate(path, (off_t)taken->cut), 0);
    taken->n++;
    return STATUS_OK;
}

/* Three changes, of which the first is on the disk; *first: where it ends. */
static void write_log(struct change_log_end *first) {
    static char payload[CHANGE_BYTES];
    struct change_log *log;
    struct change_log_end end = {0};
    struct error e;
    assert_int_equal(change_log_read(folder, origin, take, NULL, &end, &e), STATUS_OK);
    assert_int_equal(change_log_open(&log, folder, origin, &end, &e), STATUS_OK);
    for (int i = 0; i < 3; i++) {
        memset(payload, 'a' + i, sizeof payload);
        assert_int_equal(
            change_log_append(log, CHANGE_PUT, (struct text_span){payload, sizeof payload}, &e),
            STATUS_OK);
        if (i > 0) continue;
        *first = change_log_end(log);
        assert_int_equal(change_log_sync(log, first, &e), STATUS_OK);
    }
    change_log_close(log);
}

/* As a program does whose disk is full: whoever reads sees the log end there, and nothing amiss. */
static void check_cut(uint64_t behind, int n, bool torn) {
    struct change_log_end first, end = {0};
    struct error e;
    folder_make(folder);
    folder_path(path, folder, "changes.log");
    write_log(&first);
    struct taken taken = {.cut = first.size + behind};
    assert_int_equal(change_log_read(folder, origin, take, &taken, &end, &e), STATUS_OK);
    assert_int_equal(taken.n, n);
    assert_int_equal(end.sequence, n);
    assert_int_equal(end.torn > 0, torn);
    assert_false(end.damaged);
    folder_remove(folder);
}

static void test_taken_back(void **state) {
    (void)state;
    check_cut(0, 1, false);
    check_cut(10, 1, true);
    check_cut(5000, 1, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_taken_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
