/* config/sandbox/landlock.c: which files a process reaches, by Landlock, which kernels have
 * since 5.13 and where it is switched on. Each version knows more rights; those that a kernel does
 * not know are not asked for. */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "config/sandbox/sandbox_private.h"

/* Of newer headers than Debian 12 has. */
struct landlock_rules {
    uint64_t files, network, scoped;
};
enum {
    RIGHTS_FILES_1 = (1 << 13) - 1, /* all of version 1 */
    RIGHT_REFER = 1 << 13,          /* 2 */
    RIGHT_TRUNCATE = 1 << 14,       /* 3 */
    RIGHT_IOCTL_DEVICE = 1 << 15,   /* 5 */
    RIGHTS_NETWORK = 3,             /* 4 */
    RIGHTS_SCOPED = 3               /* 6: abstract sockets, signals */
};
enum { RIGHTS_READ = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR };

int sandbox_landlock_version(void) {
    long version = syscall(__NR_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    return version > 0 ? (int)version : 0;
}

static struct landlock_rules rules_of(int version) {
    struct landlock_rules rules = {.files = RIGHTS_FILES_1};
    if (version >= 2) rules.files |= RIGHT_REFER;
    if (version >= 3) rules.files |= RIGHT_TRUNCATE;
    if (version >= 4) rules.network = RIGHTS_NETWORK;
    if (version >= 5) rules.files |= RIGHT_IOCTL_DEVICE;
    if (version >= 6) rules.scoped = RIGHTS_SCOPED;
    return rules;
}

/* A path that is not there needs no rule. */
static bool allow_path(int ruleset, const char *path, uint64_t rights) {
    struct landlock_path_beneath_attr rule = {.allowed_access = rights};
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) return true;
    rule.parent_fd = fd;
    bool done = syscall(__NR_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
    close(fd);
    return done;
}

/* Where distributions keep programs, libraries and what these read: never /etc as a whole, /proc or
 * a home. */
static bool allow_libraries(int ruleset) {
    static const char *const folders[] = {"/usr",   "/lib",       "/lib64",
                                          "/lib32", "/nix/store", "/gnu/store"};
    static const char *const data[] = {"/etc/fonts", "/var/cache/fontconfig"};
    static const char *const files[] = {"/etc/ld.so.cache", "/etc/localtime", "/dev/null"};
    bool done = true;
    for (size_t i = 0; i < ARRAY_COUNT(folders); i++)
        done = done && allow_path(ruleset, folders[i], RIGHTS_READ | LANDLOCK_ACCESS_FS_EXECUTE);
    for (size_t i = 0; i < ARRAY_COUNT(data); i++)
        done = done && allow_path(ruleset, data[i], RIGHTS_READ);
    for (size_t i = 0; i < ARRAY_COUNT(files); i++)
        done = done && allow_path(ruleset, files[i], LANDLOCK_ACCESS_FS_READ_FILE);
    return done;
}

static bool restrict_by(bool libraries, const char *program) {
    int version = sandbox_landlock_version();
    if (version == 0) return true;
    struct landlock_rules rules = rules_of(version);
    int ruleset = (int)syscall(__NR_landlock_create_ruleset, &rules, sizeof rules, 0);
    if (ruleset < 0) return false;
    bool done = !libraries || allow_libraries(ruleset);
    if (done && program)
        done =
            allow_path(ruleset, program, LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_EXECUTE);
    if (done) done = syscall(__NR_landlock_restrict_self, ruleset, 0) == 0;
    close(ruleset);
    return done;
}

const char *confine_files(const char *program) {
    return restrict_by(true, program) ? NULL : "a list of files (Landlock)";
}

const char *confine_no_files(void) {
    return restrict_by(false, NULL) ? NULL : "an empty list of files (Landlock)";
}
