/* tests/unit/test_memory.c: the memory that is left is that of the tightest of the machine and the
 * control groups, in folders that look like /proc and /sys of machines, containers and services. */
#include <string.h>

#include "config/base/memory.h"
#include "tests/folder.h"

#define MEGABYTES(n) ((size_t)(n) << 20)
#define V1 "/sys/fs/cgroup/memory"
#define V2 "/sys/fs/cgroup"

/* A file below the folder that stands for the root, with its folders. */
static void put(const char *path, const char *text) {
    char whole[400];
    snprintf(whole, sizeof whole, "%s%s", test_folder, path);
    for (char *slash = strchr(whole + strlen(test_folder) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(whole, 0777);
        *slash = '/';
    }
    FILE *f = fopen(whole, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void put_number(const char *folder, const char *name, size_t number) {
    char path[300], text[40];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(text, sizeof text, "%zu\n", number);
    put(path, text);
}

/* A group of version 2 that uses so much, `pages` of it for files. */
static void put_group(const char *folder, size_t limit, size_t used, size_t pages) {
    char path[300], stat[200];
    put_number(folder, "memory.max", limit);
    put_number(folder, "memory.current", used);
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    snprintf(stat, sizeof stat,
             "anon 1\nfile 99\ninactive_file %zu\nactive_file %zu\nslab_reclaimable 0\n", pages / 2,
             pages - pages / 2);
    put(path, stat);
}

static void put_machine(size_t megabytes, const char *mounts, const char *groups) {
    char text[200];
    snprintf(text, sizeof text,
             "MemTotal:       99999999 kB\nMemFree:  1 kB\nMemAvailable:   %zu kB\n",
             megabytes * 1024);
    put("/proc/meminfo", text);
    if (mounts) put("/proc/self/mountinfo", mounts);
    if (groups) put("/proc/self/cgroup", groups);
}

static void expect(size_t bytes, const char *limit) {
    struct memory m;
    memory_read(&m, test_folder);
    if (m.available != bytes || strcmp(m.limit, limit) != 0)
        fail_msg("%zu of \"%s\", expected %zu of \"%s\"", m.available, m.limit, bytes, limit);
}

static const char mounts_v2[] =
    "22 1 0:20 / /proc rw - proc proc rw\n"
    "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
static const char mounts_v1[] =
    "30 22 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs mode=755\n"
    "31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,memory_not\n"
    "32 30 0:28 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n";

static void test_machine(void **state) {
    (void)state;
    expect(SIZE_MAX, ""); /* nothing to read */
    put_machine(1000, NULL, NULL);
    expect(MEGABYTES(1000), "");
    put_machine(1000, mounts_v2, "0::/user.slice\n");
    expect(MEGABYTES(1000), ""); /* groups without files */
    put(V2 "/user.slice/memory.max", "max\n");
    put_number(V2 "/user.slice", "memory.current", MEGABYTES(50));
    expect(MEGABYTES(1000), "");
}

/* Every group above counts, and the tightest decides; files' pages can be taken back. */
static void test_nested_version_2(void **state) {
    (void)state;
    put_machine(1000, mounts_v2, "0::/system.slice/retro.service\n");
    put_group(V2 "/system.slice/retro.service", MEGABYTES(600), MEGABYTES(200), MEGABYTES(150));
    expect(MEGABYTES(550), V2 "/system.slice/retro.service/memory.max");
    put_group(V2 "/system.slice", MEGABYTES(700), MEGABYTES(500), 0);
    expect(MEGABYTES(200), V2 "/system.slice/memory.max");
    put_number(V2 "/system.slice/retro.service", "memory.high", MEGABYTES(100));
    expect(MEGABYTES(50), V2 "/system.slice/retro.service/memory.high");
    put_group(V2 "/system.slice", MEGABYTES(700), MEGABYTES(800), 0);
    expect(0, V2 "/system.slice/memory.max"); /* a limit that was lowered */
    put_machine(10, mounts_v2, "0::/elsewhere\n");
    expect(MEGABYTES(10), "");
}

/* In a container the mounted folder is its own group, whatever the path says. */
static void test_containers(void **state) {
    (void)state;
    static const char own[] = "30 22 0:26 /docker/abc " V2 " ro shared:4 - cgroup2 cgroup rw\n";
    put_group(V2, MEGABYTES(300), MEGABYTES(100), 0);
    put_machine(1000, own, "0::/docker/abc\n");
    expect(MEGABYTES(200), V2 "/memory.max");
    put_group(V2 "/inner", MEGABYTES(60), MEGABYTES(20), 0);
    put_machine(1000, own, "0::/docker/abc/inner\n");
    expect(MEGABYTES(40), V2 "/inner/memory.max");
    put_machine(1000, mounts_v2, "0::/\n"); /* a name space of its own */
    expect(MEGABYTES(200), V2 "/memory.max");
    put_machine(1000, mounts_v2, "0::/../other\n"); /* outside of what is seen */
    expect(MEGABYTES(200), V2 "/memory.max");
}

static void test_version_1(void **state) {
    (void)state;
    put_machine(1000, mounts_v1, "9:cpu,memory_not:/wrong\n5:memory:/a/b\n0::/a\n");
    put_number(V1, "memory.limit_in_bytes", 9223372036854771712u); /* none */
    put_number(V1, "memory.usage_in_bytes", MEGABYTES(500));
    expect(MEGABYTES(1000), "");
    put_number(V1 "/a/b", "memory.limit_in_bytes", MEGABYTES(400));
    put_number(V1 "/a/b", "memory.usage_in_bytes", MEGABYTES(300));
    put(V1 "/a/b/memory.stat",
        "inactive_file 7\ntotal_inactive_file 1048576\ntotal_active_file 2097152\n");
    expect(MEGABYTES(103), V1 "/a/b/memory.limit_in_bytes");
    put_number(V1 "/a", "memory.limit_in_bytes", MEGABYTES(350));
    put_number(V1 "/a", "memory.usage_in_bytes", MEGABYTES(330));
    expect(MEGABYTES(20), V1 "/a/memory.limit_in_bytes");
}

/* This machine's own, whatever it has. */
static void test_here(void **state) {
    (void)state;
    struct memory m;
    memory_read(&m, "");
    assert_true(m.available > 0 && m.available < SIZE_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_machine, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(test_nested_version_2, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(test_containers, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(test_version_1, folder_set_up, folder_tear_down),
        cmocka_unit_test(test_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
