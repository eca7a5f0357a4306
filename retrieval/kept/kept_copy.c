/* retrieval/kept/kept_copy.c: see kept_copy.h. */
#include "retrieval/kept/kept_copy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "config/base/key_set.h"
#include "config/base/text.h"

enum { HASH_DIGITS = KEPT_HASH_SIZE - 1, SWEEP_AT_ONCE = 256, YOUNG_SECONDS = 60 };
static const char unfinished[] = ".part-"; /* how the names of unfinished copies begin */

char *kept_folder(const char *collection) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/files", collection);
    return path.data;
}

char *kept_copy_path(const char *folder, const char *hash) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/%s", folder, hash);
    return path.data;
}

enum status kept_folder_make(const char *folder, struct error *e) {
    if (mkdir(folder, 0700) == 0 || errno == EEXIST) return STATUS_OK;
    return error_errno(e, "%s: make folder", folder);
}

/* Writing. */

static enum status write_all(int fd, const char *path, struct text_span bytes, struct error *e) {
    for (size_t done = 0; done < bytes.size;) {
        ssize_t n = write(fd, bytes.text + done, bytes.size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_errno(e, "%s: write", path);
        done += (size_t)n;
    }
    return fsync(fd) == 0 ? STATUS_OK : error_errno(e, "%s: fsync", path);
}

static enum status sync_folder(const char *folder, struct error *e) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool synced = fd >= 0 && fsync(fd) == 0;
    if (!synced) error_errno(e, "%s: fsync", folder);
    if (fd >= 0) close(fd);
    return synced ? STATUS_OK : e->status;
}

/* Whether the open file, which a sweep may have locked until now, is still in its folder. */
static bool is_linked(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_nlink > 0;
}

/* The copy that is at its place already, locked; -1: there is none, or it is just going. */
static int hold_existing(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return -1;
    if (flock(fd, LOCK_SH) == 0 && is_linked(fd)) return fd;
    close(fd);
    return -1;
}

/* Gives the new file its name, or takes the one that has it. */
static enum status settle(int fd, const char *part, const char *path, struct kept_copy *out,
                          struct error *e) {
    for (;;) {
        if (link(part, path) == 0) {
            out->fd = fd;
            return STATUS_OK;
        }
        if (errno != EEXIST) return error_errno(e, "%s: link", path);
        out->fd = hold_existing(path);
        if (out->fd >= 0) return STATUS_OK;
    }
}

enum status kept_copy_write(const char *folder, struct text_span bytes, struct kept_copy *out,
                            struct error *e) {
    struct buffer part = {0};
    *out = (struct kept_copy){.fd = -1};
    kept_name_of_bytes(bytes, out->name);
    struct kept_name name = kept_name_read(out->name);
    char *path = kept_copy_path(folder, name.hash);
    buffer_printf(&part, "%s/%sXXXXXX", folder, unfinished);
    int fd = mkostemp(part.data, O_CLOEXEC);
    enum status status = fd < 0 ? error_errno(e, "%s", part.data) : STATUS_OK;
    if (status == STATUS_OK && flock(fd, LOCK_SH) != 0) status = error_errno(e, "%s", part.data);
    if (status == STATUS_OK) status = write_all(fd, part.data, bytes, e);
    if (status == STATUS_OK) status = settle(fd, part.data, path, out, e);
    if (fd >= 0) unlink(part.data);
    if (fd >= 0 && out->fd != fd) close(fd);
    out->held = out->fd >= 0;
    if (status == STATUS_OK) status = sync_folder(folder, e);
    if (status) kept_copy_release(out);
    buffer_free(&part);
    free(path);
    return status;
}

void kept_copy_release(struct kept_copy *copy) {
    if (copy->held) close(copy->fd);
    copy->held = false;
}

/* Sweeping. */

static void hash_key(const char *hash, uint64_t key[2]) {
    key[0] = hash_bytes(hash, strlen(hash), 0);
    key[1] = hash_bytes(hash, strlen(hash), 1);
}

static enum status note_named(void *context, const struct stored_document *document,
                              struct error *e) {
    struct kept_name name = kept_name_read(document->file);
    uint64_t key[2];
    (void)e;
    if (name.kind != KEPT_COPY) return STATUS_OK;
    hash_key(name.hash, key);
    key_set_add(context, key[0], key[1]);
    return STATUS_OK;
}

static enum status find_named(struct collection *collection, struct key_set *named,
                              struct error *e) {
    struct collection_walk walk = {.take = note_named, .context = named};
    return collection_walk(collection, &walk, e);
}

static bool is_named(const struct key_set *named, const char *name) {
    uint64_t key[2];
    hash_key(name, key);
    return key_set_number(named, key[0], key[1]) != NULL;
}

/* A copy that nobody holds, locked against those who would. */
struct stray_copy {
    char name[KEPT_HASH_SIZE];
    int fd;
};

static bool is_ours(const char *name) {
    return starts_with(name, unfinished) || strlen(name) == HASH_DIGITS;
}

/* One that was made just now may not be locked by its writer yet. */
static bool is_young(int fd) {
    struct stat st;
    return fstat(fd, &st) != 0 || st.st_mtime + YOUNG_SECONDS > time(NULL);
}

/* Up to SWEEP_AT_ONCE of them; *more: there may be others. */
static int lock_candidates(DIR *folder, const struct key_set *named, struct stray_copy *candidates,
                           bool *more, struct kept_swept *swept) {
    int n = 0;
    *more = false;
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        if (!is_ours(entry->d_name) || is_named(named, entry->d_name)) continue;
        if (n == SWEEP_AT_ONCE) {
            *more = true;
            return n;
        }
        int fd = openat(dirfd(folder), entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0) continue;
        bool passed = starts_with(entry->d_name, unfinished) && is_young(fd);
        if (passed || flock(fd, LOCK_EX | LOCK_NB) != 0) {
            swept->n_held++;
            close(fd);
            continue;
        }
        snprintf(candidates[n].name, sizeof candidates[n].name, "%.*s", HASH_DIGITS, entry->d_name);
        candidates[n].fd = fd;
        n++;
    }
    return n;
}

/* Removes those that are named by no document now that nobody can put one. */
static enum status remove_candidates(DIR *folder, struct collection *collection,
                                     struct stray_copy *candidates, int n, struct kept_swept *swept,
                                     struct error *e) {
    struct key_set named = {0};
    enum status status = n > 0 ? collection_follow(collection, e) : STATUS_OK;
    if (status == STATUS_OK && n > 0) status = find_named(collection, &named, e);
    for (int i = 0; i < n; i++) {
        if (status == STATUS_OK && !is_named(&named, candidates[i].name) &&
            unlinkat(dirfd(folder), candidates[i].name, 0) == 0)
            swept->n_removed++;
        close(candidates[i].fd);
    }
    key_set_free(&named);
    return status;
}

/* Behind damage there may be documents that are named by nobody who can be asked. */
static bool is_whole(struct collection *collection) {
    struct collection_changes changes;
    struct error e;
    return collection_count_changes(collection, &changes, &e) != STATUS_OK || !changes.damaged;
}

enum status kept_sweep(const char *folder, struct collection *collection, struct kept_swept *swept,
                       struct error *e) {
    struct key_set named = {0};
    *swept = (struct kept_swept){0};
    if (!is_whole(collection)) return STATUS_OK;
    DIR *d = opendir(folder);
    if (d == NULL) return errno == ENOENT ? STATUS_OK : error_errno(e, "%s", folder);
    struct stray_copy *candidates = xcalloc(SWEEP_AT_ONCE, sizeof *candidates);
    enum status status = find_named(collection, &named, e);
    bool more = status == STATUS_OK;
    while (more) {
        int n = lock_candidates(d, &named, candidates, &more, swept);
        status = remove_candidates(d, collection, candidates, n, swept, e);
        more = more && status == STATUS_OK;
    }
    if (status == STATUS_OK && swept->n_removed > 0) status = sync_folder(folder, e);
    closedir(d);
    free(candidates);
    key_set_free(&named);
    return status;
}

/* Copies of a collection. */

static enum status copy_one(const char *from, const char *to, const char *hash, struct error *e) {
    struct kept_copy copy;
    char *path = kept_copy_path(from, hash);
    struct file_map map;
    enum status status = file_map_open(&map, path, e);
    if (status == STATUS_OK) {
        status =
            kept_copy_write(to, (struct text_span){(const char *)map.data, map.size}, &copy, e);
        if (status == STATUS_OK) kept_copy_release(&copy);
        file_map_close(&map);
    }
    free(path);
    return status;
}

enum status kept_copy_all(const char *from, const char *to, struct error *e) {
    DIR *d = opendir(from);
    if (d == NULL) return errno == ENOENT ? STATUS_OK : error_errno(e, "%s", from);
    enum status status = kept_folder_make(to, e);
    for (struct dirent *entry = readdir(d); entry && status == STATUS_OK; entry = readdir(d))
        if (strlen(entry->d_name) == HASH_DIGITS) status = copy_one(from, to, entry->d_name, e);
    closedir(d);
    return status;
}
