/* retrieval/store/store_copy.c: store_copy and store_move. The files of the generation are opened,
 * its log is copied, and if CURRENT names that generation still, both belong together: then the
 * files are copied, which stay readable when another program removes them. Otherwise it begins
 * again with the generation that CURRENT names now. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "retrieval/store/store_private.h"

enum { COPY_ATTEMPTS = 5, COPY_PIECE = 1 << 20 };

struct copy {
    const char *from, *to;
    bool moves; /* the files, into a folder that the caller has locked */
    const atomic_bool *cancelled;
    struct generation_origin origin;
    char *folder; /* of the generation that is copied */
    struct manifest manifest;
    struct file_map maps[GENERATION_FILE_COUNT];
    struct generation_builder *builder;
    struct change_log *log; /* of the new generation */
};

static enum status check_cancelled(const struct copy *copy, struct error *e) {
    if (copy->cancelled == NULL || !atomic_load(copy->cancelled)) return STATUS_OK;
    return error_set(e, STATUS_CANCELLED, "%s: interrupted; nothing has changed", copy->to);
}

/* Opening. */

static void close_source(struct copy *copy) {
    for (int i = 0; i < GENERATION_FILE_COUNT; i++) file_map_close(&copy->maps[i]);
    manifest_free(&copy->manifest);
    free(copy->folder);
    copy->folder = NULL;
}

/* Files that are moved are not read again: whoever moves them has opened them, and they were
 * compared then. */
static enum status open_source(struct copy *copy, struct error *e) {
    if (current_read(copy->from, &copy->origin.generation, &copy->origin.manifest_checksum, e))
        return e->status;
    copy->folder = disk_generation_path(copy->from, copy->origin.generation);
    enum status status = manifest_read(&copy->manifest, copy->folder, copy->origin, e);
    for (int i = 0; i < GENERATION_FILE_COUNT && status == STATUS_OK && !copy->moves; i++) {
        enum generation_file file = (enum generation_file)i;
        if (!generation_has_file(file, &copy->manifest.info)) continue;
        char *path = disk_path(copy->folder, generation_file_name(file, &copy->manifest.info));
        status = check_cancelled(copy, e);
        if (status == STATUS_OK)
            status = file_map_verified(&copy->maps[i], path, &copy->manifest.files[i], e);
        free(path);
    }
    return status;
}

/* Whether CURRENT names another generation than the one that was opened. */
static bool is_replaced(const struct copy *copy) {
    struct generation_origin now;
    struct error e;
    return current_read(copy->from, &now.generation, &now.manifest_checksum, &e) == STATUS_OK &&
           !origin_equal(now, copy->origin);
}

/* Writing. */

static enum status copy_change(void *context, enum change_kind kind, char *bytes, size_t size,
                               struct error *e) {
    struct copy *copy = context;
    enum status status = check_cancelled(copy, e);
    if (status == STATUS_OK)
        status = change_log_append(copy->log, kind, (struct text_span){bytes, size}, e);
    free(bytes);
    return status;
}

/* The log names its generation, and each of its checksums depends on that: it is written anew. */
static enum status copy_log(struct copy *copy, struct error *e) {
    struct change_log_end end = {0}, empty = {0};
    struct generation_origin origin = builder_origin(copy->builder);
    if (change_log_read(builder_folder(copy->builder), origin, NULL, NULL, &empty, e) ||
        change_log_open(&copy->log, builder_folder(copy->builder), origin, &empty, e) ||
        change_log_read(copy->folder, copy->origin, copy_change, copy, &end, e))
        return e->status;
    if (end.damaged)
        return error_set(e, STATUS_CORRUPT,
                         "%s: its log of changes is damaged behind change %" PRIu64
                         "; retro-index verify --repair cuts it there",
                         copy->from, end.sequence);
    struct change_log_end copied = change_log_end(copy->log);
    return change_log_sync(copy->log, &copied, e);
}

static enum status write_pieces(const struct copy *copy, int fd, const char *path,
                                const struct file_map *map, struct error *e) {
    enum status status = STATUS_OK;
    for (size_t at = 0; at < map->size && status == STATUS_OK; at += COPY_PIECE) {
        size_t size = map->size - at < COPY_PIECE ? map->size - at : COPY_PIECE;
        status = check_cancelled(copy, e);
        if (status == STATUS_OK) status = disk_write(fd, path, map->data + at, size, e);
    }
    return status;
}

static enum status copy_file(const struct copy *copy, enum generation_file file, struct error *e) {
    const char *name = generation_file_name(file, &copy->manifest.info);
    char *path = disk_path(builder_folder(copy->builder), name);
    struct file_map written = {0};
    int fd;
    enum status status = disk_create(&fd, path, e);
    if (status == STATUS_OK) {
        status = write_pieces(copy, fd, path, &copy->maps[file], e);
        close(fd);
    }
    if (status == STATUS_OK) status = disk_sync(path, e);
    if (status == STATUS_OK)
        status = file_map_verified(&written, path, &copy->manifest.files[file], e);
    file_map_close(&written);
    free(path);
    return status;
}

static enum status move_file(const struct copy *copy, enum generation_file file, struct error *e) {
    const char *name = generation_file_name(file, &copy->manifest.info);
    char *source = disk_path(copy->folder, name);
    char *target = disk_path(builder_folder(copy->builder), name);
    enum status status = disk_rename(source, target, e);
    free(source);
    free(target);
    return status;
}

static enum status bring_files(const struct copy *copy, struct error *e) {
    enum status status = STATUS_OK;
    for (int i = 0; i < GENERATION_FILE_COUNT && status == STATUS_OK; i++) {
        enum generation_file file = (enum generation_file)i;
        if (!generation_has_file(file, &copy->manifest.info)) continue;
        status = copy->moves ? move_file(copy, file, e) : copy_file(copy, file, e);
    }
    return status ? status : disk_sync(builder_folder(copy->builder), e);
}

static enum status begin_target(struct copy *copy, struct error *e) {
    struct manifest manifest;
    if (manifest_read(&manifest, copy->folder, copy->origin, e) ||
        builder_adopt(&copy->builder, copy->to, &manifest, copy->moves, e)) {
        manifest_free(&manifest);
        return e->status;
    }
    return builder_seal(copy->builder, e);
}

/* One attempt. *replaced: the generation was replaced while it was read; to begin again may help.
 */
static enum status try_to_copy(struct copy *copy, bool *replaced, struct error *e) {
    enum status status = open_source(copy, e);
    if (status == STATUS_OK) status = begin_target(copy, e);
    if (status == STATUS_OK) status = copy_log(copy, e);
    *replaced = status != STATUS_CANCELLED && is_replaced(copy);
    if (status == STATUS_OK && *replaced)
        status =
            error_set(e, STATUS_BUSY, "%s: its generations are replaced faster than they are read",
                      copy->from);
    if (status == STATUS_OK) status = bring_files(copy, e);
    change_log_close(copy->log);
    copy->log = NULL;
    close_source(copy);

    struct generation_builder *builder = copy->builder;
    copy->builder = NULL;
    if (status == STATUS_OK) return builder_publish(builder, e);
    builder_abandon(builder);
    return status;
}

static bool is_same_folder(const char *a, const char *b) {
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

/* The path, or the nearest folder above it that there is, as its real path. The caller frees. */
static char *find_real(const char *path) {
    char *at = xstrdup(path), *real, *slash;
    while ((real = realpath(at, NULL)) == NULL && (slash = strrchr(at, '/')) != NULL && slash > at)
        *slash = '\0';
    if (real == NULL) real = realpath(at[0] == '/' ? "/" : ".", NULL);
    free(at);
    return real;
}

/* A collection's folder is its own: other files there are swept. */
static bool lies_within(const char *path, const char *folder) {
    char *inner = find_real(path), *outer = realpath(folder, NULL);
    size_t size = outer ? strlen(outer) : 0;
    bool within = inner && outer && strncmp(inner, outer, size) == 0 &&
                  (inner[size] == '/' || inner[size] == '\0');
    free(inner);
    free(outer);
    return within;
}

enum status store_copy(const char *from, const char *to, const atomic_bool *cancelled,
                       struct error *e) {
    struct copy copy = {.from = from, .to = to, .cancelled = cancelled};
    if (is_same_folder(from, to))
        return error_set(e, STATUS_INVALID, "%s and %s are one folder", from, to);
    if (lies_within(to, from))
        return error_set(e, STATUS_INVALID,
                         "%s lies in the folder of the collection %s: name one outside of it", to,
                         from);
    bool again = true;
    enum status status = STATUS_OK;
    for (int i = 0; again && i < COPY_ATTEMPTS; i++) {
        status = try_to_copy(&copy, &again, e);
        again = again && status != STATUS_OK;
    }
    return status;
}

enum status store_move(const char *from, const char *to, struct error *e) {
    struct copy copy = {.from = from, .to = to, .moves = true};
    bool replaced;
    return try_to_copy(&copy, &replaced, e);
}
