/* tests/crash/shim.c: preloaded into a program whose files it watches. It numbers each change of
 * the folder CRASH_ROOT, writes it to CRASH_JOURNAL, and lets the one of CRASH_FAULT
 * ("kind:number") go wrong:
 *
 *   kill    the process ends before it
 *   torn    half of a write happens, then the process ends
 *   short   a write takes half of its bytes, and says so
 *   eio     it fails with EIO
 *   enospc  it fails with ENOSPC
 *   full    from here on nothing more fits: writes take half once, then fail, and nothing new can
 * be made
 *
 * A line of the journal is "NUMBER BYTES-ON-STDOUT KIND ARGUMENT...", paths relative to the root;
 * that of a write is followed by its bytes and a newline. Files are told apart by their inode.
 * Standard output has to be a file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FDS = 4096, PATH_SIZE = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_SIZE];
static size_t root_size;
static int journal = -1;
static long count, fault_at = -1;
static char fault[16];
static bool full;
static bool watched[MAX_FDS]; /* descriptors of files under the root that may be written */

/* The C library's own function of that name. */
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void fail(const char *what) {
    dprintf(2, "crash shim: %s: %s\n", what, strerror(errno));
    _exit(98);
}

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("CRASH_ROOT"), *path = getenv("CRASH_JOURNAL"),
               *which = getenv("CRASH_FAULT");
    if (folder == NULL || path == NULL) return;
    if (realpath(folder, root) == NULL) fail(folder);
    root_size = strlen(root);
    journal = REAL(open)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (journal < 0) fail(path);
    if (which && sscanf(which, "%15[a-z]:%ld", fault, &fault_at) != 2) fail(which);
}

/* Where a path lies below the root; NULL for any other. The file itself need not be there. */
static const char *below(const char *path, char place[PATH_SIZE]) {
    char folder[PATH_SIZE], real[PATH_SIZE];
    if (journal < 0 || path == NULL || strlen(path) >= PATH_SIZE) return NULL;
    strcpy(folder, path);
    size_t size = strlen(folder);
    while (size > 1 && folder[size - 1] == '/') {
        size--;
        folder[size] = '\0';
    }
    char *slash = strrchr(folder, '/');
    const char *name = slash ? slash + 1 : folder;
    if (slash) *slash = '\0';
    if (realpath(slash == NULL ? "." : slash == folder ? "/" : folder, real) == NULL) return NULL;
    if (snprintf(place, PATH_SIZE, "%s/%s", real, name) >= PATH_SIZE) return NULL;
    if (strncmp(place, root, root_size) != 0 || place[root_size] != '/') return NULL;
    return place + root_size + 1;
}

static void put(const void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = REAL(write)(journal, (const char *)bytes + done, size - done);
        if (n < 0) fail("journal");
        done += (size_t)n;
    }
}

static void note(const char *format, ...) {
    char line[2 * PATH_SIZE + 100];
    struct stat out;
    long long printed = fstat(1, &out) == 0 && S_ISREG(out.st_mode) ? (long long)out.st_size : 0;
    int n = snprintf(line, sizeof line, "%ld %lld ", count, printed);
    va_list arguments;
    va_start(arguments, format);
    n += vsnprintf(line + n, sizeof line - (size_t)n - 1, format, arguments);
    va_end(arguments);
    line[n] = '\n';
    put(line, (size_t)n + 1);
}

static void end_process(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

enum verdict { GOES_ON, FAILS, HALF, HALF_THEN_END };

/* The next change: whether it happens. `grows`: it takes room on the disk. Under the lock. */
static enum verdict judge(bool grows, bool is_write) {
    bool now = ++count == fault_at;
    if (full && grows) {
        errno = ENOSPC;
        return FAILS;
    }
    if (!now) return GOES_ON;
    if (strcmp(fault, "kill") == 0) end_process();
    if (strcmp(fault, "torn") == 0 && is_write) return HALF_THEN_END;
    if (strcmp(fault, "short") == 0 && is_write) return HALF;
    if (strcmp(fault, "full") == 0 && grows) {
        full = true;
        errno = ENOSPC;
        return is_write ? HALF : FAILS;
    }
    errno = strcmp(fault, "enospc") == 0 ? ENOSPC : EIO;
    return strcmp(fault, "eio") == 0 || (strcmp(fault, "enospc") == 0 && grows) ? FAILS : GOES_ON;
}

static unsigned long long inode_of(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 ? (unsigned long long)st.st_ino : 0;
}

static bool is_watched(int fd) { return journal >= 0 && fd >= 0 && fd < MAX_FDS && watched[fd]; }

/* Opening. */

static int open_watched(const char *path, const char *place, int flags, mode_t mode) {
    struct stat st;
    bool creates = (flags & O_CREAT) && lstat(path, &st) != 0;
    pthread_mutex_lock(&lock);
    if (creates && judge(true, false) == FAILS) {
        pthread_mutex_unlock(&lock);
        return -1;
    }
    int fd = REAL(open)(path, flags & ~O_TRUNC, mode);
    int why = errno;
    if (fd >= 0 && creates) note("create %llu %s", inode_of(fd), place);
    if (fd >= 0 && fd < MAX_FDS) watched[fd] = (flags & O_ACCMODE) != O_RDONLY;
    if (fd >= 0 && (flags & O_TRUNC) && !creates) {
        if (judge(false, false) == FAILS) {
            why = errno;
            close(fd);
            fd = -1;
        } else {
            if (REAL(ftruncate)(fd, 0) != 0) fail("ftruncate");
            note("cut %llu 0", inode_of(fd));
        }
    }
    pthread_mutex_unlock(&lock);
    errno = why;
    return fd;
}

static int open_any(const char *path, int flags, mode_t mode) {
    char place[PATH_SIZE];
    const char *found = flags & (O_CREAT | O_WRONLY | O_RDWR) ? below(path, place) : NULL;
    if (found) return open_watched(path, found, flags, mode);
    int fd = REAL(open)(path, flags, mode);
    if (fd >= 0 && fd < MAX_FDS) watched[fd] = false;
    return fd;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list arguments; \
        va_start(arguments, flags); \
        mode_t mode = (mode_t)va_arg(arguments, int); \
        va_end(arguments); \
        return open_any(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

/* Writing. */

static ssize_t write_half(int fd, const void *bytes, size_t size, long long at, bool ends) {
    size_t half = size / 2;
    if (half > 0 && REAL(pwrite)(fd, bytes, half, at) != (ssize_t)half) fail("write");
    note("write %llu %lld %zu", inode_of(fd), at, half);
    put(bytes, half);
    put("\n", 1);
    if (ends) end_process();
    return (ssize_t)half;
}

static ssize_t write_watched(int fd, const void *bytes, size_t size, long long at) {
    enum verdict v = judge(true, true);
    if (v == FAILS) return -1;
    if (v != GOES_ON && (v == HALF_THEN_END || size / 2 > 0))
        return write_half(fd, bytes, size, at, v == HALF_THEN_END);
    if (v != GOES_ON && full) {
        errno = ENOSPC;
        return -1;
    }
    ssize_t n = REAL(pwrite)(fd, bytes, size, at);
    if (n > 0) {
        note("write %llu %lld %zd", inode_of(fd), at, n);
        put(bytes, (size_t)n);
        put("\n", 1);
    }
    return n;
}

ssize_t write(int fd, const void *bytes, size_t size) {
    if (!is_watched(fd)) return REAL(write)(fd, bytes, size);
    pthread_mutex_lock(&lock);
    bool appends = fcntl(fd, F_GETFL) & O_APPEND;
    struct stat st;
    if (fstat(fd, &st) != 0) fail("fstat");
    long long at = appends ? (long long)st.st_size : (long long)lseek(fd, 0, SEEK_CUR);
    ssize_t n = write_watched(fd, bytes, size, at);
    int why = errno;
    if (n > 0) lseek(fd, at + n, SEEK_SET);
    pthread_mutex_unlock(&lock);
    errno = why;
    return n;
}

static ssize_t write_at(int fd, const void *bytes, size_t size, long long at) {
    if (!is_watched(fd)) return REAL(pwrite)(fd, bytes, size, at);
    pthread_mutex_lock(&lock);
    ssize_t n = write_watched(fd, bytes, size, at);
    int why = errno;
    pthread_mutex_unlock(&lock);
    errno = why;
    return n;
}
ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) {
    return write_at(fd, bytes, size, at);
}
ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) {
    return write_at(fd, bytes, size, at);
}

/* stdio, which FAISS writes its index with, calls the C library's own write. */
static ssize_t stream_write(void *cookie, const char *bytes, size_t size) {
    size_t done = 0;
    while (done < size) {
        ssize_t n = write((int)(intptr_t)cookie, bytes + done, size - done);
        if (n < 0) return (ssize_t)done;
        done += (size_t)n;
    }
    return (ssize_t)done;
}
static int stream_close(void *cookie) { return close((int)(intptr_t)cookie); }

static FILE *open_stream(const char *path, const char *mode) {
    char place[PATH_SIZE];
    if (mode[0] != 'w' || below(path, place) == NULL) return NULL;
    int fd = open_any(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0) return NULL;
    return fopencookie((void *)(intptr_t)fd, "w",
                       (cookie_io_functions_t){.write = stream_write, .close = stream_close});
}
#define FOPEN(name) \
    FILE *name(const char *path, const char *mode) { \
        char place[PATH_SIZE]; \
        if (mode[0] == 'w' && below(path, place)) return open_stream(path, mode); \
        return REAL(name)(path, mode); \
    }
FOPEN(fopen)
FOPEN(fopen64)

int close(int fd) {
    if (fd >= 0 && fd < MAX_FDS) watched[fd] = false;
    return REAL(close)(fd);
}

/* Syncing: of files and folders, however they were opened. */
static int sync_any(int fd, int (*real)(int)) {
    char link[40], path[PATH_SIZE], place[PATH_SIZE];
    if (journal < 0) return real(fd);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return real(fd);
    path[n] = '\0';
    const char *found = strcmp(path, root) == 0 ? "." : below(path, place);
    if (found == NULL) return real(fd);
    struct stat st;
    if (fstat(fd, &st) != 0) fail("fstat");
    const char *kind = S_ISDIR(st.st_mode) ? "folder" : "file";
    pthread_mutex_lock(&lock);
    bool fails = judge(false, false) == FAILS;
    int why = errno;
    note("%s-%s %llu %s", fails ? "unsynced" : "sync", kind, (unsigned long long)st.st_ino, found);
    pthread_mutex_unlock(&lock);
    errno = why;
    return fails ? -1 : 0;
}
int fsync(int fd) { return sync_any(fd, REAL(fsync)); }
int fdatasync(int fd) { return sync_any(fd, REAL(fdatasync)); }

/* Lengths. */
static int cut_to(int fd, long long size) {
    pthread_mutex_lock(&lock);
    bool fails = judge(false, false) == FAILS;
    int why = errno, result = fails ? -1 : REAL(ftruncate)(fd, size);
    if (result == 0) note("cut %llu %lld", inode_of(fd), size);
    pthread_mutex_unlock(&lock);
    if (fails) errno = why;
    return result;
}
static int cut_path(const char *path, long long size) {
    char place[PATH_SIZE];
    if (below(path, place) == NULL) return REAL(truncate)(path, size);
    int fd = REAL(open)(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    int result = cut_to(fd, size), why = errno;
    REAL(close)(fd);
    errno = why;
    return result;
}
int truncate(const char *path, off_t size) { return cut_path(path, size); }
int truncate64(const char *path, off64_t size) { return cut_path(path, size); }
int ftruncate(int fd, off_t size) {
    return is_watched(fd) ? cut_to(fd, size) : REAL(ftruncate)(fd, size);
}
int ftruncate64(int fd, off64_t size) {
    return is_watched(fd) ? cut_to(fd, size) : REAL(ftruncate)(fd, size);
}

/* Names. */
int rename(const char *from, const char *to) {
    char place_from[PATH_SIZE], place_to[PATH_SIZE];
    const char *old = below(from, place_from), *new = below(to, place_to);
    if (old == NULL || new == NULL) return REAL(rename)(from, to);
    pthread_mutex_lock(&lock);
    int result = judge(true, false) == FAILS ? -1 : REAL(rename)(from, to), why = errno;
    if (result == 0) note("rename %s %s", old, new);
    pthread_mutex_unlock(&lock);
    errno = why;
    return result;
}

#define NAME_CALL(name, grows, kind, call, ...) \
    int name(__VA_ARGS__) { \
        char place[PATH_SIZE]; \
        const char *found = below(path, place); \
        if (found == NULL) return REAL(name) call; \
        pthread_mutex_lock(&lock); \
        int result = judge(grows, false) == FAILS ? -1 : REAL(name) call; \
        int why = errno; \
        if (result == 0) note(kind " %s", found); \
        pthread_mutex_unlock(&lock); \
        errno = why; \
        return result; \
    }
NAME_CALL(unlink, false, "unlink", (path), const char *path)
NAME_CALL(rmdir, false, "rmdir", (path), const char *path)
NAME_CALL(mkdir, true, "mkdir", (path, mode), const char *path, mode_t mode)

int remove(const char *path) {
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) return rmdir(path);
    return unlink(path);
}

/* Ways around the calls above, which nothing here takes: under the root they would be missed. */
int link(const char *from, const char *to) {
    char place[PATH_SIZE];
    if (below(to, place)) fail("link is not watched");
    return REAL(link)(from, to);
}
