/* tests/folder.h: a temporary folder of a test, and the files that it puts there. */
#pragma once

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
/* cmocka wants the headers above first. */
#include <cmocka.h>

enum { FOLDER_SIZE = 40, FOLDER_PATH_SIZE = 120 };

/* A new one, in memory where there is such a place: some tests sync hundreds of times. */
static inline void folder_make(char folder[FOLDER_SIZE]) {
    snprintf(folder, FOLDER_SIZE, "%s/retro-test-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(folder));
}

static inline void folder_path(char path[FOLDER_PATH_SIZE], const char *folder, const char *name) {
    assert_in_range(snprintf(path, FOLDER_PATH_SIZE, "%s/%s", folder, name), 1,
                    FOLDER_PATH_SIZE - 1);
}

static inline void folder_write(const char *folder, const char *name, const void *bytes,
                                size_t size) {
    char path[FOLDER_PATH_SIZE];
    folder_path(path, folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static inline int folder_remove_entry(const char *path, const struct stat *st, int flag,
                                      struct FTW *walk) {
    (void)st, (void)flag, (void)walk;
    return remove(path);
}

/* With all that is in it. */
static inline void folder_remove(const char *folder) {
    assert_int_equal(nftw(folder, folder_remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* The folder of the test at hand, where these are its set-up and tear-down. */
static char test_folder[FOLDER_SIZE];

static inline int folder_set_up(void **state) {
    (void)state;
    folder_make(test_folder);
    return 0;
}

static inline int folder_tear_down(void **state) {
    (void)state;
    folder_remove(test_folder);
    return 0;
}
