/* retrieval/generation/change_log.c: changes put behind a log. See change_log.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "retrieval/generation/change_log_private.h"

static const char cut_name[] = "changes.cut";

struct change_log {
    char *path, *folder;
    int fd, mark; /* mark: changes.kept */
    uint64_t head_checksum;
    struct change_log_end end;
    bool failed;
    struct buffer record; /* reused */
};

/* Bytes [from, size) of the log, put aside: where a person can still look at them. */
static enum status put_aside(const char *folder, const char *path, uint64_t from, struct error *e) {
    struct file_map map;
    int fd;
    if (file_map_open(&map, path, e)) return e->status;
    char *aside = disk_path(folder, cut_name);
    enum status status = disk_create(&fd, aside, e);
    if (status == STATUS_OK) {
        if (from < map.size) status = disk_write(fd, aside, map.data + from, map.size - from, e);
        close(fd);
    }
    if (status == STATUS_OK) status = disk_sync(aside, e);
    file_map_close(&map);
    free(aside);
    return status;
}

static enum status cut(const char *folder, const char *path, uint64_t size, struct error *e) {
    enum status status = put_aside(folder, path, size, e);
    if (status == STATUS_OK) status = disk_sync(folder, e);
    if (status == STATUS_OK) status = disk_truncate(path, size, e);
    return status ? status : disk_sync(path, e);
}

enum status change_log_cut(const char *folder, const struct change_log_end *end, struct error *e) {
    char *path = disk_path(folder, CHANGE_LOG_NAME), *kept = disk_path(folder, CHANGE_MARK_NAME);
    bool there = access(path, F_OK) == 0;
    /* First the mark, so that what is cut is never taken for damage again. */
    enum status status = disk_remove(kept, e);
    if (status == STATUS_OK) status = disk_sync(folder, e);
    if (status == STATUS_OK && there) status = cut(folder, path, end->size, e);
    free(path);
    free(kept);
    return status;
}

/* Not synced: see change_log.h. Where it cannot be written, the one before stands, which is behind
 * and true. */
static void write_mark(const struct change_log *change_log, const struct change_log_end *end) {
    struct log_mark mark = {.size = end->size, .sequence = end->sequence};
    mark.checksum = log_mark_hash(&mark, change_log->head_checksum);
    struct error why;
    if (lseek(change_log->mark, 0, SEEK_SET) != 0 ||
        disk_write(change_log->mark, CHANGE_MARK_NAME, &mark, sizeof mark, &why))
        log_debug("%s: %s is not written", change_log->folder, CHANGE_MARK_NAME);
}

static enum status open_mark(struct change_log *change_log, struct error *e) {
    char *path = disk_path(change_log->folder, CHANGE_MARK_NAME);
    change_log->mark = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    enum status status = change_log->mark >= 0 ? STATUS_OK : error_errno(e, "%s: open", path);
    free(path);
    return status;
}

/* The head of a new log, on the disk before anything is written behind it. */
static enum status write_head(struct change_log *change_log, struct generation_origin origin,
                              struct error *e) {
    struct log_head head = log_head_make(origin);
    change_log->end.size = sizeof head;
    return disk_write(change_log->fd, change_log->path, &head, sizeof head, e);
}

/* Another program may have ended before its fsync. */
static enum status sync_others(struct change_log *change_log, struct error *e) {
    enum status status = disk_sync_open(change_log->fd, change_log->path, e);
    if (status == STATUS_OK) write_mark(change_log, &change_log->end);
    if (status == STATUS_OK) status = disk_sync_open(change_log->mark, CHANGE_MARK_NAME, e);
    if (status == STATUS_OK) status = disk_sync(change_log->folder, e);
    if (status == STATUS_OK) status = disk_sync_name(change_log->folder, e);
    if (status == STATUS_OK) change_log->end.synced = change_log->end.size;
    return status;
}

/* A log that could not be put on the disk as it began: an fsync later would not say that of its
 * name. */
static void remove_new(const struct change_log *change_log) {
    struct error why;
    char *mark = disk_path(change_log->folder, CHANGE_MARK_NAME);
    if (disk_remove(mark, &why) || disk_remove(change_log->path, &why)) log_warn("%s", why.text);
    free(mark);
}

static enum status open_end(struct change_log *change_log, struct generation_origin origin,
                            struct error *e) {
    enum status status = STATUS_OK;
    if (change_log->end.torn > 0) {
        if (cut(change_log->folder, change_log->path, change_log->end.size, e)) return e->status;
        log_warn("%s: %" PRIu64
                 " bytes of a change that was never acknowledged are put aside in %s",
                 change_log->path, change_log->end.torn, cut_name);
    }
    change_log->end.torn = 0;
    if (change_log_check_end(change_log->path, &change_log->end, e)) return e->status;
    change_log->fd =
        open(change_log->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (change_log->fd < 0) return error_errno(e, "%s: open", change_log->path);
    status = open_mark(change_log, e);
    bool is_new = change_log->end.size == 0;
    if (status == STATUS_OK && is_new) status = write_head(change_log, origin, e);
    if (status == STATUS_OK && change_log->end.synced < change_log->end.size)
        status = sync_others(change_log, e);
    if (status && is_new) remove_new(change_log);
    return status;
}

enum status change_log_open(struct change_log **out, const char *folder,
                            struct generation_origin origin, const struct change_log_end *end,
                            struct error *e) {
    *out = NULL;
    if (end->damaged)
        return error_set(e, STATUS_CORRUPT,
                         "%s/%s: damaged behind change %" PRIu64
                         "; retro-index verify --repair cuts it there",
                         folder, CHANGE_LOG_NAME, end->sequence);
    struct change_log *change_log = xcalloc(1, sizeof *change_log);
    change_log->path = disk_path(folder, CHANGE_LOG_NAME);
    change_log->folder = xstrdup(folder);
    change_log->fd = change_log->mark = -1;
    change_log->head_checksum = log_head_make(origin).checksum;
    change_log->end = *end;
    enum status status = open_end(change_log, origin, e);
    if (status) {
        change_log_close(change_log);
        return status;
    }
    *out = change_log;
    return STATUS_OK;
}

static enum status refuse(const struct change_log *change_log, struct error *e) {
    return error_set(
        e, STATUS_IO,
        "%s: a write to it failed before; nothing more is written until it is opened again",
        change_log->path);
}

enum status change_log_append(struct change_log *change_log, enum change_kind kind,
                              struct text_span payload, struct error *e) {
    static const char zeros[8];
    if (change_log->failed) return refuse(change_log, e);
    struct log_record record = {
        .sequence = change_log->end.sequence + 1, .size = payload.size, .kind = (uint32_t)kind};
    record.head_checksum = log_record_hash_head(&record, change_log->end.checksum);
    uint64_t seed = hash_bytes(&record.sequence, sizeof record - sizeof record.checksum,
                               change_log->end.checksum);
    record.checksum = hash_bytes(payload.text, payload.size, seed);
    buffer_clear(&change_log->record);
    buffer_append(&change_log->record, &record, sizeof record);
    buffer_append(&change_log->record, payload.text, payload.size);
    buffer_append(&change_log->record, zeros, (size_t)(log_padded(payload.size) - payload.size));

    enum status status = disk_write(change_log->fd, change_log->path, change_log->record.data,
                                    change_log->record.size, e);
    if (status) {
        change_log->failed =
            disk_truncate(change_log->path, change_log->end.size, NULL) != STATUS_OK;
        return status;
    }
    change_log->end.sequence = record.sequence;
    change_log->end.checksum = record.checksum;
    change_log->end.last = change_log->end.size;
    change_log->end.size += change_log->record.size;
    return STATUS_OK;
}

enum status change_log_sync(struct change_log *change_log, const struct change_log_end *end,
                            struct error *e) {
    if (change_log->failed) return refuse(change_log, e);
    enum status status = disk_sync_open(change_log->fd, change_log->path, e);
    change_log->failed = status != STATUS_OK;
    if (status == STATUS_OK) write_mark(change_log, end);
    return status;
}

bool change_log_give_up(struct change_log *change_log, uint64_t size) {
    struct error why;
    change_log->failed = true;
    if (disk_truncate(change_log->path, size, &why) == STATUS_OK) return true;
    log_warn("%s", why.text);
    return false;
}

struct change_log_end change_log_end(const struct change_log *change_log) {
    return change_log->end;
}

void change_log_close(struct change_log *change_log) {
    if (change_log == NULL) return;
    if (change_log->fd >= 0) close(change_log->fd);
    if (change_log->mark >= 0) close(change_log->mark);
    buffer_free(&change_log->record);
    free(change_log->path);
    free(change_log->folder);
    free(change_log);
}
