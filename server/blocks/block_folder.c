/* server/blocks/block_folder.c: see block_folder.h. Files are not synced one by one: a file that a
 * crash of the machine has torn fails its checksum, and its rows are computed again. */
#include "server/blocks/block_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/base/log.h"
#include "config/base/text.h"

static const char ENDING[] = ".rows", TEMPORARY[] = "writing.tmp", LOCK[] = "LOCK";
enum { NAME_DIGITS = 2 * SHA256_BYTES, NAME_SIZE = NAME_DIGITS + sizeof ENDING, HEAD_BYTES = 4096 };

static void print_name(const struct block_address *address, char name[NAME_SIZE]) {
    for (int i = 0; i < SHA256_BYTES; i++) snprintf(name + 2 * i, 3, "%02x", address->bytes[i]);
    memcpy(name + NAME_DIGITS, ENDING, sizeof ENDING);
}

/* Opening. */

/* Opens the folder, which the user alone may look into. */
static enum status open_own(struct block_folder *folder, struct error *e) {
    struct stat st;
    folder->fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->fd < 0) return error_errno(e, "%s: open", folder->path);
    if (fstat(folder->fd, &st) != 0) return error_errno(e, "%s", folder->path);
    if (st.st_uid != geteuid())
        return error_set(e, STATUS_INVALID, "%s is another user's folder", folder->path);
    if (st.st_mode & 077)
        return error_set(e, STATUS_INVALID,
                         "%s: others may look into the folder; it keeps texts of clients as rows: "
                         "chmod 700 it",
                         folder->path);
    return STATUS_OK;
}

enum status block_folder_check(const char *path, struct error *e) {
    struct block_folder folder = {.path = path, .fd = -1, .lock = -1};
    struct stat st;
    if (stat(path, &st) != 0 && errno == ENOENT) return STATUS_OK;
    enum status status = open_own(&folder, e);
    block_folder_close(&folder);
    return status;
}

static enum status lock_folder(struct block_folder *folder, struct error *e) {
    folder->lock = openat(folder->fd, LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (folder->lock < 0) return error_errno(e, "%s/%s: create", folder->path, LOCK);
    if (flock(folder->lock, LOCK_EX | LOCK_NB) == 0) return STATUS_OK;
    if (errno != EWOULDBLOCK) return error_errno(e, "%s/%s: lock", folder->path, LOCK);
    return error_set(e, STATUS_BUSY,
                     "%s: another server has this folder; each needs one of its own", folder->path);
}

enum status block_folder_open(struct block_folder *folder, const char *path, struct error *e) {
    *folder = (struct block_folder){.path = path, .fd = -1, .lock = -1};
    if (mkdir(path, 0700) != 0 && errno != EEXIST) return error_errno(e, "%s: create", path);
    if (open_own(folder, e) || lock_folder(folder, e)) {
        block_folder_close(folder);
        return e->status;
    }
    return STATUS_OK;
}

void block_folder_close(struct block_folder *folder) {
    if (folder->lock >= 0) close(folder->lock);
    if (folder->fd >= 0) close(folder->fd);
    folder->lock = folder->fd = -1;
}

/* Reading. */

void row_bytes_reserve(struct buffer *bytes, size_t size) {
    if (bytes->capacity > size) return;
    struct buffer larger = {.data = xmalloc(size + 1), .size = bytes->size, .capacity = size + 1};
    if (bytes->size > 0) memcpy(larger.data, bytes->data, bytes->size);
    row_bytes_free(bytes);
    *bytes = larger;
}

void row_bytes_free(struct buffer *bytes) {
    if (bytes->data) explicit_bzero(bytes->data, bytes->capacity);
    buffer_free(bytes);
}

/* Appends bytes of the file up to `size` of them. */
static enum status read_up_to(int fd, size_t size, struct buffer *bytes, const char *name,
                              struct error *e) {
    row_bytes_reserve(bytes, size);
    while (bytes->size < size) {
        ssize_t n = read(fd, bytes->data + bytes->size, size - bytes->size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_errno(e, "%s: read", name);
        if (n == 0) return error_set(e, STATUS_CORRUPT, "%s: cut at %zu bytes", name, bytes->size);
        bytes->size += (size_t)n;
    }
    return STATUS_OK;
}

static enum status open_file(const struct block_folder *folder, const char *name, int *fd,
                             struct stat *st, struct error *e) {
    *fd = openat(folder->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (*fd < 0) return error_errno(e, "%s/%s", folder->path, name);
    if (fstat(*fd, st) == 0 && S_ISREG(st->st_mode)) return STATUS_OK;
    close(*fd);
    return error_set(e, STATUS_CORRUPT, "%s/%s: no file", folder->path, name);
}

/* The head of an open file, into *bytes. */
static enum status read_head(int fd, uint64_t size, const char *name, struct buffer *bytes,
                             struct block_file *file, struct error *e) {
    size_t wanted = size < HEAD_BYTES ? (size_t)size : HEAD_BYTES;
    if (read_up_to(fd, wanted, bytes, name, e)) return e->status;
    struct text_span read = {bytes->data, bytes->size};
    enum status status = block_file_parse(file, read, size, name, &wanted, e);
    if (status != STATUS_TOO_LARGE) return status;
    if (read_up_to(fd, wanted, bytes, name, e)) return e->status;
    read = (struct text_span){bytes->data, bytes->size};
    return block_file_parse(file, read, size, name, &wanted, e);
}

enum status block_folder_read(const struct block_folder *folder,
                              const struct block_address *address, struct buffer *bytes,
                              struct block_file *file, struct error *e) {
    char name[NAME_SIZE];
    struct stat st;
    size_t wanted;
    int fd;
    print_name(address, name);
    buffer_clear(bytes);
    if (open_file(folder, name, &fd, &st, e)) return e->status;
    uint64_t size = (uint64_t)st.st_size;
    enum status status = read_head(fd, size, name, bytes, file, e);
    if (status == STATUS_OK) status = read_up_to(fd, (size_t)size, bytes, name, e);
    close(fd);
    if (status == STATUS_OK)
        status = block_file_parse(file, (struct text_span){bytes->data, bytes->size}, size, name,
                                  &wanted, e);
    if (status == STATUS_OK && memcmp(&file->address, address, sizeof *address) != 0)
        status = error_set(e, STATUS_CORRUPT, "%s: rows of another block", name);
    return status;
}

/* Scanning. */

/* Whether the name is one that a block has. */
static bool is_block(const char *name) {
    size_t digits = strspn(name, "0123456789abcdef");
    return digits == NAME_DIGITS && strcmp(name + digits, ENDING) == 0;
}

static enum status scan_file(const struct block_folder *folder, const char *name,
                             struct block_scan *scan, struct error *e) {
    struct buffer bytes = {0};
    struct block_file file;
    struct stat st;
    char own[NAME_SIZE];
    int fd;
    if (open_file(folder, name, &fd, &st, e)) return e->status;
    enum status status = read_head(fd, (uint64_t)st.st_size, name, &bytes, &file, e);
    close(fd);
    if (status == STATUS_OK) {
        print_name(&file.address, own);
        if (file.identity != scan->identity)
            scan->n_foreign++;
        else if (strcmp(name, own) != 0)
            status = error_set(e, STATUS_CORRUPT, "%s: rows of another block", name);
        else
            scan->take(scan->context, &file, (int64_t)st.st_mtime);
        if (file.identity != scan->identity) unlinkat(folder->fd, name, 0);
    }
    row_bytes_free(&bytes);
    return status;
}

enum status block_folder_scan(const struct block_folder *folder, struct block_scan *scan,
                              struct error *e) {
    int fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (list == NULL) return error_errno(e, "%s: list", folder->path);
    unlinkat(folder->fd, TEMPORARY, 0);
    for (struct dirent *item = readdir(list); item; item = readdir(list)) {
        struct error broken;
        if (!is_block(item->d_name) || scan_file(folder, item->d_name, scan, &broken) == STATUS_OK)
            continue;
        log_warn("%s; the file is removed and its rows are computed again", broken.text);
        unlinkat(folder->fd, item->d_name, 0);
        scan->n_broken++;
    }
    closedir(list);
    return STATUS_OK;
}

/* Writing. */

static enum status write_all(int fd, const struct buffer *bytes, const char *path,
                             struct error *e) {
    for (size_t done = 0; done < bytes->size;) {
        ssize_t n = write(fd, bytes->data + done, bytes->size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_errno(e, "%s: write", path);
        done += (size_t)n;
    }
    return STATUS_OK;
}

enum status block_folder_write(const struct block_folder *folder,
                               const struct block_address *address, const struct buffer *bytes,
                               struct error *e) {
    char name[NAME_SIZE];
    print_name(address, name);
    int fd =
        openat(folder->fd, TEMPORARY, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return error_errno(e, "%s/%s: create", folder->path, TEMPORARY);
    enum status status = write_all(fd, bytes, folder->path, e);
    if (close(fd) != 0 && status == STATUS_OK) status = error_errno(e, "%s: close", folder->path);
    if (status == STATUS_OK && renameat(folder->fd, TEMPORARY, folder->fd, name) != 0)
        status = error_errno(e, "%s/%s: rename", folder->path, name);
    if (status) unlinkat(folder->fd, TEMPORARY, 0);
    return status;
}

void block_folder_remove(const struct block_folder *folder, const struct block_address *address) {
    char name[NAME_SIZE];
    print_name(address, name);
    if (unlinkat(folder->fd, name, 0) != 0 && errno != ENOENT)
        log_warn("%s/%s: remove: %s", folder->path, name, strerror(errno));
}

void block_folder_mark(const struct block_folder *folder, const struct block_address *address,
                       int64_t used) {
    char name[NAME_SIZE];
    const struct timespec times[2] = {{.tv_sec = (time_t)used}, {.tv_sec = (time_t)used}};
    print_name(address, name);
    utimensat(folder->fd, name, times, AT_SYMLINK_NOFOLLOW);
}
