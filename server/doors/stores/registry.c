/* server/doors/stores/registry.c: see registry.h.
 *
 * "vector_stores.lock" has no content. Whoever changes the records holds its first byte; each
 * server that has done so once holds the byte of its number until it ends, however it ends. */
#include "server/doors/stores/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES = 256 << 20 };

struct registry {
    char *folder, *path, *fresh_path, *lock_path;
    uint64_t server;
    pthread_mutex_t mutex; /* held while somebody has the records; guards the rest */
    int lock;              /* the lock's file, -1: not open yet */
    bool changes;          /* its first byte is held */
    bool read;             /* the records are those of the file that `seen` tells of */
    struct stat seen;
    bool told; /* the log says that the file that `seen` tells of cannot be read */
    struct records records;
};

static char *path_within(const char *folder, const char *name) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/%s", folder, name);
    return path.data;
}

enum status registry_open(struct registry **out, const char *folder, struct error *e) {
    struct registry *registry = xcalloc(1, sizeof *registry);
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != sizeof number) {
        free(registry);
        return error_errno(e, "random bytes");
    }
    registry->server = number >> 2 | 1; /* the place of a byte, behind the first */
    registry->folder = xstrdup(folder);
    registry->path = path_within(folder, "vector_stores.json");
    registry->fresh_path = path_within(folder, "vector_stores.json.new");
    registry->lock_path = path_within(folder, "vector_stores.lock");
    registry->lock = -1;
    pthread_mutex_init(&registry->mutex, NULL);
    *out = registry;
    return STATUS_OK;
}

void registry_close(struct registry *registry) {
    if (registry == NULL) return;
    if (registry->lock >= 0) close(registry->lock);
    records_free(&registry->records);
    pthread_mutex_destroy(&registry->mutex);
    free(registry->folder);
    free(registry->path);
    free(registry->fresh_path);
    free(registry->lock_path);
    free(registry);
}

/* Locks. */

static struct flock byte_of(short type, uint64_t place) {
    return (struct flock){
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)place, .l_len = 1};
}

static enum status set_byte(struct registry *registry, short type, uint64_t place,
                            struct error *e) {
    struct flock byte = byte_of(type, place);
    while (fcntl(registry->lock, F_OFD_SETLKW, &byte) != 0)
        if (errno != EINTR) return error_errno(e, "%s: lock", registry->lock_path);
    return STATUS_OK;
}

/* Whether the file that is open has the lock's name, as it has not where the folder was replaced:
 * other servers lock the one there is. */
static bool has_lock(const struct registry *registry) {
    struct stat own, now;
    return registry->lock >= 0 && fstat(registry->lock, &own) == 0 &&
           stat(registry->lock_path, &now) == 0 && own.st_dev == now.st_dev &&
           own.st_ino == now.st_ino;
}

static enum status open_lock(struct registry *registry, struct error *e) {
    if (has_lock(registry)) return STATUS_OK;
    if (registry->lock >= 0) close(registry->lock);
    registry->lock = open(registry->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (registry->lock < 0) return error_errno(e, "%s: open", registry->lock_path);
    return set_byte(registry, F_WRLCK, registry->server, e);
}

uint64_t registry_server(const struct registry *registry) { return registry->server; }

bool registry_runs(struct registry *registry, uint64_t server) {
    struct flock byte = byte_of(F_WRLCK, server);
    struct error e;
    if (server == registry->server) return true;
    if (server == 0 || server > INT64_MAX || open_lock(registry, &e)) return false;
    return fcntl(registry->lock, F_OFD_GETLK, &byte) == 0 && byte.l_type != F_UNLCK;
}

/* Reading. */

static bool is_same_file(const struct stat *left, const struct stat *right) {
    return left->st_ino == right->st_ino && left->st_size == right->st_size &&
           left->st_mtim.tv_sec == right->st_mtim.tv_sec &&
           left->st_mtim.tv_nsec == right->st_mtim.tv_nsec;
}

/* Where the files lie is the operator's to know. */
static enum status hide(const char *what, const struct error *why, bool tell, struct error *e) {
    if (tell) log_error("vector stores: %s", why->text);
    return error_set(e, why->status == STATUS_INVALID ? STATUS_CORRUPT : why->status,
                     "the server's records of vector stores (vector_stores.json) cannot be %s; its "
                     "log tells why",
                     what);
}

static enum status read_file(struct registry *registry, struct error *e) {
    struct buffer text = {0};
    enum status status = file_read(registry->path, FILE_BYTES, &text, e);
    if (status == STATUS_OK)
        status = records_parse(&registry->records, (struct text_span){text.data, text.size},
                               registry->path, e);
    buffer_free(&text);
    if (status) records_free(&registry->records);
    return status;
}

/* Collections begin without the file; but where the folder is away so is the file. */
static enum status stat_file(const struct registry *registry, struct stat *out, struct error *e) {
    struct stat folder;
    *out = (struct stat){0};
    if (stat(registry->path, out) == 0) return STATUS_OK;
    if (errno != ENOENT) return error_errno(e, "%s", registry->path);
    return stat(registry->folder, &folder) == 0 ? STATUS_OK
                                                : error_errno(e, "%s", registry->folder);
}

/* The file as it is now. One that cannot be read leaves nothing. */
static enum status read_again(struct registry *registry, struct error *e) {
    struct stat now;
    struct error why;
    enum status status = stat_file(registry, &now, &why);
    bool same = is_same_file(&now, &registry->seen);
    if (status == STATUS_OK && registry->read && same) return STATUS_OK;
    records_free(&registry->records);
    if (status == STATUS_OK && now.st_ino != 0) status = read_file(registry, &why);
    registry->read = status == STATUS_OK;
    registry->seen = now;
    bool told = registry->told && same;
    registry->told = status != STATUS_OK;
    return status ? hide("read", &why, !told, e) : STATUS_OK;
}

const struct records *registry_look(struct registry *registry, struct error *e) {
    pthread_mutex_lock(&registry->mutex);
    if (read_again(registry, e) == STATUS_OK) return &registry->records;
    pthread_mutex_unlock(&registry->mutex);
    return NULL;
}

/* Changing. */

struct records *registry_change(struct registry *registry, struct error *e) {
    struct error why;
    pthread_mutex_lock(&registry->mutex);
    enum status status = open_lock(registry, &why);
    if (status == STATUS_OK) status = set_byte(registry, F_WRLCK, 0, &why);
    registry->changes = status == STATUS_OK;
    status = status ? hide("locked", &why, true, e) : read_again(registry, e);
    if (status == STATUS_OK) return &registry->records;
    registry_end(registry);
    return NULL;
}

void registry_end(struct registry *registry) {
    struct error e;
    if (registry->changes && set_byte(registry, F_UNLCK, 0, &e)) log_error("%s", e.text);
    registry->changes = false;
    pthread_mutex_unlock(&registry->mutex);
}

static enum status write_all(int fd, const char *path, struct text_span text, struct error *e) {
    for (size_t done = 0; done < text.size;) {
        ssize_t n = write(fd, text.text + done, text.size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_errno(e, "%s: write", path);
        done += (size_t)n;
    }
    return fsync(fd) == 0 ? STATUS_OK : error_errno(e, "%s: fsync", path);
}

static enum status write_fresh(const struct registry *registry, struct text_span text,
                               struct error *e) {
    const char *path = registry->fresh_path;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return error_errno(e, "%s: create", path);
    enum status status = write_all(fd, path, text, e);
    close(fd);
    return status;
}

static enum status sync_folder(const struct registry *registry, struct error *e) {
    int fd = open(registry->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return error_errno(e, "%s: open to sync", registry->folder);
    enum status status = fsync(fd) == 0 ? STATUS_OK : error_errno(e, "%s: fsync", registry->folder);
    close(fd);
    return status;
}

enum status registry_write(struct registry *registry, struct error *e) {
    struct buffer text = {0};
    struct error why;
    CHECK(registry->changes);
    records_write(&registry->records, &text);
    enum status status = write_fresh(registry, (struct text_span){text.data, text.size}, &why);
    if (status == STATUS_OK && rename(registry->fresh_path, registry->path) != 0)
        status = error_errno(&why, "%s: rename to %s", registry->fresh_path, registry->path);
    if (status == STATUS_OK) status = sync_folder(registry, &why);
    buffer_free(&text);
    registry->read = status == STATUS_OK && stat(registry->path, &registry->seen) == 0;
    registry_end(registry);
    return status ? hide("written", &why, true, e) : STATUS_OK;
}
