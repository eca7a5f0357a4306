/* tools/convert/sink/convert_folder.c: the output folder of a conversion: written under another
 * name beside its place, so that a folder of the right name is always complete. A file in it is
 * locked as long as its process lives: what nobody has locked was left by one that was killed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/base/line.h"
#include "tools/convert/sink/sink.h"

/* Tokenizers of large vocabularies take tens of megabytes. */
enum { FILE_LIMIT = 256 << 20 };

static const char lock_name[] = ".retro-convert", identity_name[] = ".retro-convert-identity";

static atomic_bool interrupted;
static bool keeps; /* what is complete outlives an interruption */

static void interrupt(int signal_number) {
    (void)signal_number;
    if (interrupted) _exit(EXIT_INTERRUPTED); /* the next run removes what is left */
    interrupted = true;
}

enum status output_check(struct error *e) {
    if (!interrupted) return STATUS_OK;
    return error_set(e, STATUS_CANCELLED,
                     keeps
                         ? "interrupted; the same command goes on from the files that are complete"
                         : "interrupted; nothing is left of it");
}

/* The folder that `path` lies in, with links resolved; freed by the caller, NULL when there is
 * none. */
static char *parent_of(const char *path) {
    char *copy = xstrdup(path), *parent = realpath(dirname(copy), NULL);
    free(copy);
    return parent;
}

static bool inside(const char *path, const char *folder) {
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

static bool is_empty_folder(const char *path) {
    DIR *dir = opendir(path);
    bool empty = dir != NULL;
    struct dirent *entry;
    while (empty && (entry = readdir(dir)) != NULL)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    if (dir) closedir(dir);
    return empty;
}

/* The output must be a new name, or an empty folder, outside the input. */
static enum status check_target(const struct convert_options *options, const char *from,
                                const char *parent, struct error *e) {
    struct stat st;
    if (parent == NULL) return error_errno(e, "%s: the folder it is to lie in", options->to);
    char *to = realpath(options->to, NULL); /* NULL: not there yet */
    bool within = inside(to ? to : parent, from);
    free(to);
    if (within)
        return error_set(e, STATUS_INVALID,
                         "%s is the model's own folder or lies in it: name another output folder",
                         options->to);
    if (lstat(options->to, &st) != 0)
        return errno == ENOENT ? STATUS_OK : error_errno(e, "%s", options->to);
    if (!is_empty_folder(options->to))
        return error_set(e, STATUS_INVALID,
                         "%s exists and is not an empty folder: remove it or name another",
                         options->to);
    return STATUS_OK;
}

/* Removes the files of a folder that we made, one level of folders deep. */
static void remove_folder(const char *path, int depth) {
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)) != NULL) {
        struct buffer child = {0};
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        buffer_printf(&child, "%s/%s", path, entry->d_name);
        if (unlink(child.data) != 0 && depth > 0) remove_folder(child.data, depth - 1);
        buffer_free(&child);
    }
    if (dir) closedir(dir);
    rmdir(path);
}

/* The locked file of a partial folder, or -1. */
static int lock_folder(const char *folder, int flags) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/%s", folder, lock_name);
    int fd = open(path.data, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    buffer_free(&path);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Whether a file holds just this. */
static bool holds(const char *folder, const char *name, const char *text) {
    struct buffer path = {0}, found = {0};
    struct error ignored;
    buffer_printf(&path, "%s/%s", folder, name);
    bool same = file_read(path.data, FILE_LIMIT, &found, &ignored) == STATUS_OK &&
                found.size == strlen(text) && memcmp(found.data, text, found.size) == 0;
    buffer_free(&path);
    buffer_free(&found);
    return same;
}

/* Removes all but complete files of weights, and ours. */
static void keep_weights(const char *path) {
    static const char start[] = "model", end[] = ".safetensors";
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)) != NULL) {
        const char *name = entry->d_name;
        size_t n = strlen(name);
        bool weights = n > strlen(end) && strncmp(name, start, strlen(start)) == 0 &&
                       strcmp(name + n - strlen(end), end) == 0;
        if (weights || strcmp(name, lock_name) == 0 || strcmp(name, identity_name) == 0) continue;
        struct buffer child = {0};
        buffer_printf(&child, "%s/%s", path, name);
        unlink(child.data);
        buffer_free(&child);
    }
    if (dir) closedir(dir);
}

/* Folders called `prefix` and more, in `parent`, that are ours and that nobody writes any more: one
 * that the run can go on with becomes its own, the others are removed. */
static void take_stale(struct output *out, const struct convert_options *options,
                       const char *parent, const char *prefix) {
    DIR *dir = opendir(parent);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)) != NULL) {
        struct buffer path = {0};
        struct stat st;
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0) continue;
        buffer_printf(&path, "%s/%s", parent, entry->d_name);
        int lock =
            lstat(path.data, &st) == 0 && S_ISDIR(st.st_mode) ? lock_folder(path.data, 0) : -1;
        if (lock >= 0 && options->resume && out->partial == NULL &&
            holds(path.data, identity_name, options->identity)) {
            line_print(stderr, "retro-convert: goes on with %s", path.data);
            keep_weights(path.data);
            out->partial = xstrdup(path.data);
            out->lock = lock;
        } else if (lock >= 0) {
            line_print(stderr, "retro-convert: %s was left by a run that was ended, and is removed",
                       path.data);
            remove_folder(path.data, 1);
            close(lock);
        }
        buffer_free(&path);
    }
    if (dir) closedir(dir);
}

static void watch_signals(void) {
    struct sigaction action = {.sa_handler = interrupt};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* A new folder, locked. */
static enum status make_partial(struct output *out, const char *template, const char *identity,
                                struct error *e) {
    char *partial = xstrdup(template);
    if (mkdtemp(partial) == NULL) {
        error_errno(e, "%s", partial);
        free(partial);
        return e->status;
    }
    out->partial = partial;
    out->lock = lock_folder(partial, O_CREAT | O_EXCL);
    if (out->lock < 0) return error_errno(e, "%s/%s: lock", partial, lock_name);
    if (identity == NULL) return STATUS_OK;
    struct buffer text = {0};
    buffer_append_string(&text, identity);
    enum status status = output_write(out, identity_name, &text, e);
    buffer_free(&text);
    return status;
}

enum status output_open(struct output *out, const struct convert_options *options,
                        struct error *e) {
    struct buffer template = {0}, prefix = {0};
    *out = (struct output){.to = options->to, .lock = -1};
    char *from = realpath(options->from, NULL), *parent = parent_of(options->to),
         *copy = xstrdup(options->to);
    enum status status =
        from == NULL ? error_errno(e, "%s", options->from) : check_target(options, from, parent, e);
    if (status == STATUS_OK) {
        size_t n = strlen(options->to);
        while (n > 1 && options->to[n - 1] == '/') n--;
        buffer_printf(&template, "%.*s.partial-XXXXXX", (int)n, options->to);
        buffer_printf(&prefix, "%s.partial-", basename(copy));
        watch_signals();
        take_stale(out, options, parent, prefix.data);
        if (out->partial == NULL) status = make_partial(out, template.data, options->identity, e);
        if (status) output_discard(out);
        keeps = out->keep = status == STATUS_OK && options->resume;
    }
    buffer_free(&template);
    buffer_free(&prefix);
    free(copy);
    free(from);
    free(parent);
    return status;
}

static enum status write_file(const char *path, const struct buffer *text, struct error *e) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return error_errno(e, "%s", path);
    enum status status = STATUS_OK;
    for (size_t at = 0; at < text->size && status == STATUS_OK;) {
        ssize_t n = write(fd, text->data + at, text->size - at);
        if (n >= 0)
            at += (size_t)n;
        else if (errno != EINTR)
            status = error_errno(e, "%s", path);
    }
    if (status == STATUS_OK && fsync(fd) != 0) status = error_errno(e, "%s", path);
    close(fd);
    return status;
}

/* Whether a file belongs to a model beside its weights: small files of text, the pictures of its
 * card, a SentencePiece model, the head of sparse weights. */
static bool is_companion(const char *name) {
    static const char *const suffixes[] = {".json",  ".txt", ".md", ".model",
                                           ".jinja", ".png", ".svg"};
    static const char *const names[] = {"LICENSE", "LICENCE", "NOTICE",
                                        "sparse_linear.safetensors"};
    size_t n = strlen(name);
    if (name[0] == '.' || strcmp(name, "model.safetensors.index.json") == 0) return false;
    for (size_t i = 0; i < ARRAY_COUNT(suffixes); i++)
        if (n > strlen(suffixes[i]) && strcmp(name + n - strlen(suffixes[i]), suffixes[i]) == 0)
            return true;
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static enum status copy_file(const char *from, const char *to, const char *name, const char *note,
                             struct error *e) {
    struct buffer source = {0}, target = {0}, text = {0};
    buffer_printf(&source, "%s/%s", from, name);
    buffer_printf(&target, "%s/%s", to, name);
    enum status status = file_read(source.data, FILE_LIMIT, &text, e);
    if (status == STATUS_OK && note) buffer_append_string(&text, note);
    if (status == STATUS_OK) status = write_file(target.data, &text, e);
    buffer_free(&source);
    buffer_free(&target);
    buffer_free(&text);
    return status;
}

static bool is_regular(const char *folder, const char *name) {
    struct buffer path = {0};
    struct stat st;
    buffer_printf(&path, "%s/%s", folder, name);
    bool regular = stat(path.data, &st) == 0 && S_ISREG(st.st_mode);
    buffer_free(&path);
    return regular;
}

/* All companions of one folder; the card among them gets the note. */
static enum status copy_companions(const char *from, const char *to, const char *note,
                                   struct error *e) {
    DIR *dir = opendir(from);
    if (dir == NULL) return error_errno(e, "%s", from);
    enum status status = STATUS_OK;
    struct dirent *entry;
    while (status == STATUS_OK && (entry = readdir(dir)) != NULL)
        if (is_companion(entry->d_name) && is_regular(from, entry->d_name))
            status = copy_file(from, to, entry->d_name,
                               strcmp(entry->d_name, "README.md") == 0 ? note : NULL, e);
    closedir(dir);
    return status;
}

/* Whether sentence-transformers keeps a module in a folder of this name: "2_Dense". */
static bool is_module(const char *name) {
    size_t digits = strspn(name, "0123456789");
    return digits > 0 && name[digits] == '_';
}

/* A module's keys, and its weights as they are. */
static enum status copy_module(const char *from, const char *to, const char *name,
                               struct error *e) {
    static const char weights[] = "model.safetensors";
    struct buffer source = {0}, target = {0};
    struct stat st;
    buffer_printf(&source, "%s/%s", from, name);
    buffer_printf(&target, "%s/%s", to, name);
    enum status status = STATUS_OK;
    if (stat(source.data, &st) == 0 && S_ISDIR(st.st_mode)) {
        status = mkdir(target.data, 0777) != 0 ? error_errno(e, "%s", target.data)
                                               : copy_companions(source.data, target.data, NULL, e);
        if (status == STATUS_OK && is_regular(source.data, weights))
            status = copy_file(source.data, target.data, weights, NULL, e);
    }
    buffer_free(&source);
    buffer_free(&target);
    return status;
}

/* sentence-transformers keeps what follows the transformer in folders of its own. */
static enum status copy_modules(const char *from, const char *to, struct error *e) {
    DIR *dir = opendir(from);
    if (dir == NULL) return error_errno(e, "%s", from);
    enum status status = STATUS_OK;
    struct dirent *entry;
    while (status == STATUS_OK && (entry = readdir(dir)) != NULL)
        if (is_module(entry->d_name)) status = copy_module(from, to, entry->d_name, e);
    closedir(dir);
    return status;
}

enum status output_copy(const struct output *out, const char *from, const char *note,
                        struct error *e) {
    enum status status = copy_companions(from, out->partial, note, e);
    if (status == STATUS_OK) status = copy_modules(from, out->partial, e);
    if (status || is_regular(out->partial, "README.md")) return status;
    struct buffer text = {0};
    buffer_append_string(&text, note + strspn(note, "\n"));
    status = output_write(out, "README.md", &text, e);
    buffer_free(&text);
    return status;
}

enum status output_make_folder(const struct output *out, const char *name, struct error *e) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/%s", out->partial, name);
    enum status status = mkdir(path.data, 0777) != 0 ? error_errno(e, "%s", path.data) : STATUS_OK;
    buffer_free(&path);
    return status;
}

enum status output_write(const struct output *out, const char *name, const struct buffer *text,
                         struct error *e) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/%s", out->partial, name);
    enum status status = write_file(path.data, text, e);
    buffer_free(&path);
    return status;
}

static enum status sync_folder(const char *path, struct error *e) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return error_errno(e, "%s", path);
    enum status status = fsync(fd) == 0 ? STATUS_OK : error_errno(e, "%s", path);
    close(fd);
    return status;
}

enum status output_finish(struct output *out, struct error *e) {
    mode_t mask = umask(0);
    umask(mask);
    struct buffer lock = {0}, identity = {0};
    buffer_printf(&lock, "%s/%s", out->partial, lock_name);
    buffer_printf(&identity, "%s/%s", out->partial, identity_name);
    enum status status = output_check(e);
    if (status == STATUS_OK && unlink(lock.data) != 0) status = error_errno(e, "%s", lock.data);
    if (status == STATUS_OK && unlink(identity.data) != 0 && errno != ENOENT)
        status = error_errno(e, "%s", identity.data);
    buffer_free(&lock);
    buffer_free(&identity);
    if (status == STATUS_OK) status = sync_folder(out->partial, e);
    if (status == STATUS_OK && chmod(out->partial, 0777 & ~mask) != 0)
        status = error_errno(e, "%s", out->partial);
    if (status == STATUS_OK && rename(out->partial, out->to) != 0)
        status = error_errno(e, "%s", out->to);
    if (status) return status;
    free(out->partial);
    out->partial = NULL;
    char *parent = parent_of(out->to);
    status = parent ? sync_folder(parent, e) : error_errno(e, "%s", out->to);
    free(parent);
    return status;
}

void output_discard(struct output *out) {
    if (out->partial && !out->keep) remove_folder(out->partial, 1);
    if (out->lock >= 0) close(out->lock);
    free(out->partial);
    out->partial = NULL;
    out->lock = -1;
}
