/* retrieval/generation/change_log.c: see change_log.h. */
#include "retrieval/generation/change_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "retrieval/generation/generation_private.h"

enum { LOG_FORMAT = 5 };
static const char log_name[] = "changes.log", cut_name[] = "changes.cut",
                  kept_name[] = "changes.kept";
static const char log_magic[8] = {'R', 'E', 'T', 'R', 'O', 'L', 'O', 'G'};

struct log_head {
    char magic[8];
    uint32_t format, generation;
    uint64_t manifest_checksum;
    uint64_t checksum;
};
_Static_assert(sizeof(struct log_head) == 32, "read straight from the file");

struct log_record {
    uint64_t checksum;
    uint64_t sequence;
    uint64_t size; /* of the payload, without the zeros behind it */
    uint32_t kind;
    uint32_t head_checksum;
};
_Static_assert(sizeof(struct log_record) == 32, "read straight from the file");

/* changes.kept */
struct log_mark {
    uint64_t size, sequence;
    uint64_t checksum; /* of both, with the head's as its seed */
};
_Static_assert(sizeof(struct log_mark) == 24, "read straight from the file");

struct change_log {
    char *path, *folder;
    int fd, mark; /* mark: changes.kept */
    uint64_t head_checksum;
    struct change_log_end end;
    bool failed;
    struct buffer record; /* reused */
};

static uint64_t padded(uint64_t size) { return (size + 7) & ~(uint64_t)7; }

static struct log_head make_head(struct generation_origin origin) {
    struct log_head head = {.format = LOG_FORMAT,
                            .generation = (uint32_t)origin.generation,
                            .manifest_checksum = origin.manifest_checksum};
    memcpy(head.magic, log_magic, sizeof head.magic);
    head.checksum = hash_bytes(&head, offsetof(struct log_head, checksum), 0);
    return head;
}

static uint32_t hash_record_head(const struct log_record *record, uint64_t seed) {
    return (uint32_t)hash_bytes(
        &record->sequence, offsetof(struct log_record, head_checksum) - sizeof record->checksum,
        seed);
}

static uint64_t hash_mark(const struct log_mark *mark, uint64_t head_checksum) {
    return hash_bytes(mark, offsetof(struct log_mark, checksum), head_checksum);
}

/* Reading. */

/* As the file system tells it. */
struct log_state {
    uint64_t size;
    int64_t modified; /* ns since 1970 */
};

/* Zeros without a log. */
static struct log_state stat_log(const char *folder) {
    struct log_state state = {0};
    struct stat st;
    char *path = disk_path(folder, log_name);
    if (stat(path, &st) == 0)
        state = (struct log_state){(uint64_t)st.st_size,
                                   st.st_mtim.tv_sec * 1000000000LL + st.st_mtim.tv_nsec};
    free(path);
    return state;
}

struct log_reader {
    const char *path;
    struct log_mark mark; /* size 0: there is none, or none that can be read */
    struct file_map map;
    struct change_log_end *end;
};

static bool is_zero(const uint8_t *bytes, uint64_t size) {
    for (uint64_t i = 0; i < size; i++)
        if (bytes[i] != 0) return false;
    return true;
}

/* Whether the bytes hold the record that *end calls the last. Logs are taken back and begun anew by
 * other programs. */
static bool has_last(const uint8_t *bytes, uint64_t size, const struct change_log_end *end) {
    uint64_t checksum;
    if (size < end->size) return false;
    if (end->sequence == 0) return true;
    memcpy(&checksum, bytes + end->last, sizeof checksum);
    return checksum == end->checksum;
}

/* Whether a record begins at `at` whose head is sound and which comes behind one of that checksum.
 */
static bool record_begins(const struct log_reader *reader, uint64_t at, uint64_t sequence,
                          uint64_t seed, struct log_record *record) {
    if (at > reader->map.size || reader->map.size - at < sizeof *record) return false;
    memcpy(record, reader->map.data + at, sizeof *record);
    return record->head_checksum == hash_record_head(record, seed) && record->sequence == sequence;
}

/* Read before the log itself: then nothing that it says can be missing there. */
static void read_mark(struct log_reader *reader, const char *folder, uint64_t head_checksum) {
    char *path = disk_path(folder, kept_name);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool whole = fd >= 0 &&
                 read(fd, &reader->mark, sizeof reader->mark) == (ssize_t)sizeof reader->mark &&
                 reader->mark.checksum == hash_mark(&reader->mark, head_checksum);
    if (!whole) reader->mark = (struct log_mark){0};
    if (fd >= 0) close(fd);
    free(path);
}

/* Where a log ends early, by a write that was cut off or by damage. Behind changes.kept nothing was
 * acknowledged. Where that is missing, a sound record behind the end tells the same: a write that
 * was cut off leaves fewer bytes than it had, or zeros, or wrong bytes within the last record. */
static void judge_rest(struct log_reader *reader) {
    struct log_record record, next;
    struct change_log_end *end = reader->end;
    uint64_t left = reader->map.size - end->size;
    end->torn = left;
    if (reader->mark.size > 0) {
        end->damaged = reader->mark.size > end->size;
        end->n_lost =
            reader->mark.sequence > end->sequence ? reader->mark.sequence - end->sequence : 0;
        return;
    }
    if (left < sizeof record || is_zero(reader->map.data + end->size, left)) return;
    if (!record_begins(reader, end->size, end->sequence + 1, end->checksum, &record)) {
        end->damaged = true;
        return;
    }
    uint64_t behind = end->size + sizeof record + padded(record.size);
    end->damaged = record.size < left &&
                   record_begins(reader, behind, end->sequence + 2, record.checksum, &next);
}

static enum status read_head(struct log_reader *reader, struct generation_origin origin,
                             struct error *e) {
    struct log_head head = make_head(origin);
    /* The head is on the disk before the first change is written behind it. */
    if (reader->map.size < sizeof head ||
        (reader->map.size == sizeof head && is_zero(reader->map.data, sizeof head))) {
        reader->end->torn = reader->map.size;
        reader->end->damaged = reader->mark.size > sizeof head;
        reader->end->n_lost = reader->mark.sequence;
        return STATUS_OK;
    }
    reader->end->n_lost = reader->mark.sequence;
    if (memcmp(reader->map.data, &head, sizeof head) != 0)
        return error_set(e, STATUS_CORRUPT,
                         "%s: its head is damaged, or that of another generation than %d; "
                         "retro-index verify --repair "
                         "goes on without its changes",
                         reader->path, origin.generation);
    reader->end->n_lost = 0;
    reader->end->size = sizeof head;
    return STATUS_OK;
}

/* The next record, given to `take`; *more is false at the end. */
static enum status read_record(struct log_reader *reader, change_taker *take, void *context,
                               bool *more, struct error *e) {
    struct log_record record;
    struct change_log_end *end = reader->end;
    *more = false;
    if (!record_begins(reader, end->size, end->sequence + 1, end->checksum, &record))
        return STATUS_OK;
    uint64_t left = reader->map.size - end->size - sizeof record;
    if (record.size > left || padded(record.size) > left) return STATUS_OK;
    const uint8_t *payload = reader->map.data + end->size + sizeof record;
    uint64_t seed =
        hash_bytes(&record.sequence, sizeof record - sizeof record.checksum, end->checksum);
    if (hash_bytes(payload, record.size, seed) != record.checksum) return STATUS_OK;
    if (!is_zero(payload + record.size, padded(record.size) - record.size)) return STATUS_OK;

    char *bytes = malloc(record.size + 1);
    if (bytes == NULL)
        return error_set(e, STATUS_NO_MEMORY, "%s: a change of %" PRIu64 " bytes", reader->path,
                         record.size);
    memcpy(bytes, payload, record.size);
    end->sequence = record.sequence;
    end->checksum = record.checksum;
    end->last = end->size;
    end->size += sizeof record + padded(record.size);
    *more = true;
    enum status status = take(context, (enum change_kind)record.kind, bytes, record.size, e);
    return status ? error_prefix(e, "%s: change %" PRIu64, reader->path, record.sequence)
                  : STATUS_OK;
}

static enum status read_log(struct log_reader *reader, struct generation_origin origin,
                            change_taker *take, void *context, struct error *e) {
    bool more = true;
    enum status status = reader->end->size == 0 ? read_head(reader, origin, e) : STATUS_OK;
    if (status || reader->end->size == 0) return status;
    if (!has_last(reader->map.data, reader->map.size, reader->end))
        return error_set(e, STATUS_CORRUPT,
                         "%s: it no longer has change %" PRIu64 ", which was read before",
                         reader->path, reader->end->sequence);
    while (more && status == STATUS_OK) status = read_record(reader, take, context, &more, e);
    if (status == STATUS_OK) judge_rest(reader);
    return status;
}

enum status change_log_read(const char *folder, struct generation_origin origin, change_taker *take,
                            void *context, struct change_log_end *end, struct error *e) {
    uint64_t head_checksum = make_head(origin).checksum;
    /* A log without a change may be removed by the program that began it: its head is read again
     * each time. */
    if (end->sequence == 0) *end = (struct change_log_end){.checksum = head_checksum};
    end->torn = end->n_lost = 0;
    end->damaged = false;
    end->modified = stat_log(folder).modified;
    char *path = disk_path(folder, log_name);
    struct log_reader reader = {.path = path, .end = end};
    enum status status = STATUS_OK;
    read_mark(&reader, folder, head_checksum);
    if (access(path, F_OK) == 0) {
        status = file_map_open(&reader.map, path, e);
        if (status == STATUS_OK) status = read_log(&reader, origin, take, context, e);
        file_map_close(&reader.map);
    } else if (errno != ENOENT) {
        status = error_errno(e, "%s", path);
    } else if (end->sequence > 0) {
        status = error_set(e, STATUS_CORRUPT, "%s: it is gone, with change %" PRIu64, path,
                           end->sequence);
    } else {
        end->damaged = reader.mark.size > sizeof(struct log_head);
        end->n_lost = reader.mark.sequence;
    }
    free(path);
    return status;
}

bool change_log_is_news(const char *folder, const struct change_log_end *end) {
    struct log_state now = stat_log(folder);
    return now.size != end->size || now.modified != end->modified;
}

uint64_t change_log_measure(const char *folder) { return stat_log(folder).size; }

uint64_t change_log_measure_changes(const char *folder) {
    uint64_t size = change_log_measure(folder);
    return size > sizeof(struct log_head) ? size - sizeof(struct log_head) : 0;
}

bool disk_generation_is_changed(const struct disk_generation *generation) {
    return change_log_measure_changes(disk_generation_folder(generation)) > 0;
}

/* Writing. */

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
    char *path = disk_path(folder, log_name), *kept = disk_path(folder, kept_name);
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
    mark.checksum = hash_mark(&mark, change_log->head_checksum);
    struct error why;
    if (lseek(change_log->mark, 0, SEEK_SET) != 0 ||
        disk_write(change_log->mark, kept_name, &mark, sizeof mark, &why))
        log_debug("%s: %s is not written", change_log->folder, kept_name);
}

static enum status open_mark(struct change_log *change_log, struct error *e) {
    char *path = disk_path(change_log->folder, kept_name);
    change_log->mark = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    enum status status = change_log->mark >= 0 ? STATUS_OK : error_errno(e, "%s: open", path);
    free(path);
    return status;
}

/* The head of a new log, on the disk before anything is written behind it. */
static enum status write_head(struct change_log *change_log, struct generation_origin origin,
                              struct error *e) {
    struct log_head head = make_head(origin);
    change_log->end.size = sizeof head;
    return disk_write(change_log->fd, change_log->path, &head, sizeof head, e);
}

/* Another program may have ended before its fsync. */
static enum status sync_others(struct change_log *change_log, struct error *e) {
    enum status status = disk_sync_open(change_log->fd, change_log->path, e);
    if (status == STATUS_OK) write_mark(change_log, &change_log->end);
    if (status == STATUS_OK) status = disk_sync_open(change_log->mark, kept_name, e);
    if (status == STATUS_OK) status = disk_sync(change_log->folder, e);
    if (status == STATUS_OK) status = disk_sync_name(change_log->folder, e);
    if (status == STATUS_OK) change_log->end.synced = change_log->end.size;
    return status;
}

/* A record behind any other end is lost: nobody reads past one that does not fit. */
static enum status check_end(const struct change_log *change_log, struct error *e) {
    struct file_map map = {0};
    enum status status =
        change_log->end.size > 0 ? file_map_open(&map, change_log->path, e) : STATUS_OK;
    if (status) return status;
    bool fits = change_log->end.size == map.size && has_last(map.data, map.size, &change_log->end);
    file_map_close(&map);
    return fits ? STATUS_OK
                : error_set(e, STATUS_CORRUPT,
                            "%s: it does not end with change %" PRIu64 " any more",
                            change_log->path, change_log->end.sequence);
}

/* A log that could not be put on the disk as it began: an fsync later would not say that of its
 * name. */
static void remove_new(const struct change_log *change_log) {
    struct error why;
    char *mark = disk_path(change_log->folder, kept_name);
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
    if (check_end(change_log, e)) return e->status;
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
                         folder, log_name, end->sequence);
    struct change_log *change_log = xcalloc(1, sizeof *change_log);
    change_log->path = disk_path(folder, log_name);
    change_log->folder = xstrdup(folder);
    change_log->fd = change_log->mark = -1;
    change_log->head_checksum = make_head(origin).checksum;
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
    record.head_checksum = hash_record_head(&record, change_log->end.checksum);
    uint64_t seed = hash_bytes(&record.sequence, sizeof record - sizeof record.checksum,
                               change_log->end.checksum);
    record.checksum = hash_bytes(payload.text, payload.size, seed);
    buffer_clear(&change_log->record);
    buffer_append(&change_log->record, &record, sizeof record);
    buffer_append(&change_log->record, payload.text, payload.size);
    buffer_append(&change_log->record, zeros, (size_t)(padded(payload.size) - payload.size));

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
