/* retrieval/kept/kept_file.c: see kept_file.h. */
#include "retrieval/kept/kept_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/base/text.h"
#include "retrieval/extract/extract.h"
#include "retrieval/kept/kept_copy.h"
#include "retrieval/open/collection_open.h"

/* Files that were hashed last, and how long a file must have been left alone for its times to tell
 * that it is the same: clocks of file systems tick slowly. */
enum { KNOWN_FILES = 256, SETTLED_SECONDS = 2, PIECE_BYTES = 64 << 10 };

struct kept_files {
    enum keep_files keep;
    char *folder; /* of copies; NULL: there are none */
    pthread_mutex_t lock;
    struct kept_file known[KNOWN_FILES]; /* a ring; under the lock */
    int next;
};

enum status kept_files_open(struct kept_files **out, const char *collection, enum keep_files keep,
                            struct error *e) {
    bool remote = collection_name_is_remote(collection);
    *out = NULL;
    if (keep == KEEP_COPY && remote)
        return error_set(e, STATUS_UNSUPPORTED,
                         "retrieval.keep_files: copies lie beside a collection in a folder, and %s "
                         "is in none; \"path\" gives files that lie on disk",
                         collection);
    char *folder = keep == KEEP_COPY ? kept_folder(collection) : NULL;
    if (folder && kept_folder_make(folder, e)) {
        free(folder);
        return e->status;
    }
    struct kept_files *files = xcalloc(1, sizeof *files);
    files->keep = keep;
    files->folder = folder;
    pthread_mutex_init(&files->lock, NULL);
    *out = files;
    return STATUS_OK;
}

void kept_files_close(struct kept_files *files) {
    if (files == NULL) return;
    pthread_mutex_destroy(&files->lock);
    free(files->folder);
    free(files);
}

const char *kept_files_folder(const struct kept_files *files) {
    return files ? files->folder : NULL;
}

/* Opening. */

static bool same_time(struct timespec left, struct timespec right) {
    return left.tv_sec == right.tv_sec && left.tv_nsec == right.tv_nsec;
}

/* Whether both are one file, that nobody has touched in between. */
static bool is_untouched(const struct kept_file *left, const struct kept_file *right) {
    return left->device == right->device && left->inode == right->inode &&
           left->size == right->size && same_time(left->modified, right->modified) &&
           same_time(left->changed, right->changed);
}

static bool look_at(int fd, struct kept_file *out) {
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return false;
    out->device = st.st_dev;
    out->inode = st.st_ino;
    out->size = (uint64_t)st.st_size;
    out->modified = st.st_mtim;
    out->changed = st.st_ctim;
    return true;
}

static bool is_settled(const struct kept_file *file) {
    time_t now = time(NULL);
    return file->modified.tv_sec + SETTLED_SECONDS < now &&
           file->changed.tv_sec + SETTLED_SECONDS < now;
}

static bool is_known(struct kept_files *files, const struct kept_file *file) {
    bool known = false;
    pthread_mutex_lock(&files->lock);
    for (int i = 0; i < KNOWN_FILES && !known; i++) {
        const struct kept_file *before = &files->known[i];
        known = strcmp(before->tag, file->tag) == 0 && is_untouched(before, file);
    }
    pthread_mutex_unlock(&files->lock);
    return known;
}

static void remember(struct kept_files *files, const struct kept_file *file) {
    pthread_mutex_lock(&files->lock);
    files->known[files->next] = *file;
    files->next = (files->next + 1) % KNOWN_FILES;
    pthread_mutex_unlock(&files->lock);
}

static enum status refuse_changed(struct error *e) {
    return error_set(e, STATUS_INVALID,
                     "the file has changed since the document was read from it; retro-index add "
                     "reads it again");
}

static enum status check_hash(struct kept_files *files, struct kept_file *file, struct error *e) {
    char hash[KEPT_HASH_SIZE];
    struct kept_file after = {0};
    uint64_t size;
    bool settled = is_settled(file);
    if (settled && is_known(files, file)) return STATUS_OK;
    if (kept_hash_file(file->fd, "a document's file", hash, &size, e)) return e->status;
    if (!look_at(file->fd, &after) || !is_untouched(file, &after) || size != file->size ||
        strcmp(hash, file->tag) != 0)
        return refuse_changed(e);
    if (settled) remember(files, file);
    return STATUS_OK;
}

/* The path was one without links when the file was read; where a link stands in it now, another
 * file may be meant. */
static int open_without_links(const char *path) {
    char *real = realpath(path, NULL);
    bool same = real && strcmp(real, path) == 0;
    free(real);
    if (!same) return -1;
    return open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

static enum status open_same(struct kept_files *files, const struct stored_document *document,
                             const struct kept_name *name, struct kept_file *file,
                             struct error *e) {
    file->changes = true;
    file->fd = open_without_links(document->source);
    if (file->fd < 0 || !look_at(file->fd, file))
        return error_set(e, STATUS_INVALID,
                         "the file that the document was read from is not where it was, or cannot "
                         "be opened");
    return file->size == name->size ? check_hash(files, file, e) : refuse_changed(e);
}

static enum status open_copy(const struct kept_files *files, const struct kept_name *name,
                             struct kept_file *file, struct error *e) {
    char *path = kept_copy_path(files->folder, name->hash);
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    free(path);
    if (file->fd < 0) return error_set(e, STATUS_NOT_FOUND, "the copy of the file is not there");
    if (!look_at(file->fd, file) || file->size != name->size)
        return error_set(e, STATUS_CORRUPT, "the copy of the file is not as it was written");
    return STATUS_OK;
}

enum status kept_file_open(struct kept_files *files, const struct stored_document *document,
                           struct kept_file *out, struct error *e) {
    struct kept_name name = kept_name_read(document->file);
    *out = (struct kept_file){.fd = -1};
    if (files == NULL || files->keep == KEEP_OFF)
        return error_set(e, STATUS_NOT_FOUND,
                         "this server gives no files of documents (option retrieval.keep_files)");
    if (name.kind == KEPT_NOTHING || (name.kind == KEPT_COPY && files->folder == NULL) ||
        (name.kind == KEPT_SAME && document->source[0] == '\0'))
        return error_set(e, STATUS_NOT_FOUND,
                         "no file was kept of the document (option retrieval.keep_files)");
    snprintf(out->tag, sizeof out->tag, "%s", name.hash);
    enum status status = name.kind == KEPT_COPY ? open_copy(files, &name, out, e)
                                                : open_same(files, document, &name, out, e);
    if (status) kept_file_close(out);
    return status;
}

void kept_file_close(struct kept_file *file) {
    if (file->fd >= 0) close(file->fd);
    file->fd = -1;
}

/* Reading. */

enum status kept_file_read(const struct kept_file *file, uint64_t at, size_t n, struct buffer *out,
                           struct error *e) {
    struct kept_file now = {0};
    char piece[PIECE_BYTES];
    for (size_t done = 0; done < n;) {
        size_t wanted = n - done < sizeof piece ? n - done : sizeof piece;
        ssize_t got = pread(file->fd, piece, wanted, (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return error_errno(e, "a document's file");
        if (got == 0) return refuse_changed(e);
        buffer_append(out, piece, (size_t)got);
        done += (size_t)got;
    }
    if (!file->changes) return STATUS_OK;
    return look_at(file->fd, &now) && is_untouched(file, &now) ? STATUS_OK : refuse_changed(e);
}

/* Names. */

/* The end of an archive's name in that of a document within it; NULL: the mark is not there, or
 * stands in the name of a file that is one document. */
static const char *end_of_file(const char *path, const char *mark) {
    const char *end = strstr(path, mark);
    char *name = end ? xstrndup(path, (size_t)(end - path)) : NULL;
    bool several = name && document_kind_holds_several(document_kind(name));
    free(name);
    return several ? end : NULL;
}

char *kept_file_name(const struct stored_document *document) {
    const char *path = document->source[0] ? document->source : document->path;
    const char *end = document->source[0] ? NULL : end_of_file(path, "!/");
    if (end == NULL && document->source[0] == '\0') end = end_of_file(path, "#");
    char *whole = xstrndup(path, end ? (size_t)(end - path) : strlen(path));
    const char *slash = strrchr(whole, '/');
    char *name = xstrdup(slash ? slash + 1 : whole);
    free(whole);
    return name;
}
