/* retrieval/generation/change_log_read.c: changes.log, read from any place on. See change_log.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "retrieval/generation/change_log_private.h"

enum { LOG_FORMAT = 5 };
static const char log_magic[8] = {'R', 'E', 'T', 'R', 'O', 'L', 'O', 'G'};

struct log_head log_head_make(struct generation_origin origin) {
    struct log_head head = {.format = LOG_FORMAT,
                            .generation = (uint32_t)origin.generation,
                            .manifest_checksum = origin.manifest_checksum};
    memcpy(head.magic, log_magic, sizeof head.magic);
    head.checksum = hash_bytes(&head, offsetof(struct log_head, checksum), 0);
    return head;
}

uint32_t log_record_hash_head(const struct log_record *record, uint64_t seed) {
    return (uint32_t)hash_bytes(
        &record->sequence, offsetof(struct log_record, head_checksum) - sizeof record->checksum,
        seed);
}

uint64_t log_mark_hash(const struct log_mark *mark, uint64_t head_checksum) {
    return hash_bytes(mark, offsetof(struct log_mark, checksum), head_checksum);
}

/* As the file system tells it. */
struct log_state {
    uint64_t size;
    int64_t modified; /* ns since 1970 */
};

/* Zeros without a log. */
static struct log_state stat_log(const char *folder) {
    struct log_state state = {0};
    struct stat st;
    char *path = disk_path(folder, CHANGE_LOG_NAME);
    if (stat(path, &st) == 0)
        state = (struct log_state){(uint64_t)st.st_size,
                                   st.st_mtim.tv_sec * 1000000000LL + st.st_mtim.tv_nsec};
    free(path);
    return state;
}

struct log_reader {
    const char *path;
    struct log_mark mark; /* size 0: there is none, or none that can be read */
    int fd;
    uint64_t size; /* of the file, as far as anybody knows */
    struct change_log_end *end;
    struct error failure; /* of the disk */
};

static enum status reader_open(struct log_reader *reader, struct error *e) {
    struct stat st;
    reader->fd = open(reader->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (reader->fd < 0) return error_errno(e, "%s: open", reader->path);
    if (fstat(reader->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(reader->fd);
        return error_set(e, STATUS_IO, "%s: it is no file", reader->path);
    }
    reader->size = (uint64_t)st.st_size;
    return STATUS_OK;
}

/* Closes the file; says whether the disk failed. */
static enum status reader_close(const struct log_reader *reader, struct error *e) {
    close(reader->fd);
    if (reader->failure.status) *e = reader->failure;
    return reader->failure.status;
}

/* The log is read, and not mapped: the program that writes it may take its end back, and a page
 * that is gone would end this one. False: the bytes are not there, or the disk fails. */
static bool read_at(struct log_reader *reader, uint64_t at, void *out, uint64_t size) {
    uint64_t done = 0;
    if (at > reader->size || size > reader->size - at) return false;
    while (done < size) {
        ssize_t n = pread(reader->fd, (char *)out + done, size - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) error_errno(&reader->failure, "%s", reader->path);
        if (n == 0) reader->size = at + done;
        if (n <= 0) return false;
        done += (uint64_t)n;
    }
    return true;
}

static bool is_zero(const uint8_t *bytes, uint64_t size) {
    for (uint64_t i = 0; i < size; i++)
        if (bytes[i] != 0) return false;
    return true;
}

/* Whether there is nothing but zeros from `at` to the end. */
static bool rest_is_zero(struct log_reader *reader, uint64_t at) {
    uint8_t block[4096];
    while (at < reader->size) {
        uint64_t left = reader->size - at, n = left < sizeof block ? left : sizeof block;
        if (read_at(reader, at, block, n) && !is_zero(block, n)) return false;
        at += n;
    }
    return true;
}

/* Whether the log holds the record that *end calls the last. Logs are taken back and begun anew by
 * other programs. */
static bool has_last(struct log_reader *reader) {
    const struct change_log_end *end = reader->end;
    uint64_t checksum;
    if (reader->size < end->size) return false;
    if (end->sequence == 0) return true;
    return read_at(reader, end->last, &checksum, sizeof checksum) && checksum == end->checksum;
}

/* Whether a record begins at `at` whose head is sound and which comes behind one of that checksum.
 */
static bool record_begins(struct log_reader *reader, uint64_t at, uint64_t sequence, uint64_t seed,
                          struct log_record *record) {
    return read_at(reader, at, record, sizeof *record) &&
           record->head_checksum == log_record_hash_head(record, seed) &&
           record->sequence == sequence;
}

/* Read before the log itself: then nothing that it says can be missing there. */
static void read_mark(struct log_reader *reader, const char *folder, uint64_t head_checksum) {
    char *path = disk_path(folder, CHANGE_MARK_NAME);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool whole = fd >= 0 &&
                 read(fd, &reader->mark, sizeof reader->mark) == (ssize_t)sizeof reader->mark &&
                 reader->mark.checksum == log_mark_hash(&reader->mark, head_checksum);
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
    bool empty = rest_is_zero(reader, end->size); /* finds the end of a log that was taken back */
    uint64_t left = reader->size > end->size ? reader->size - end->size : 0;
    end->torn = left;
    if (reader->mark.size > 0) {
        end->damaged = reader->mark.size > end->size;
        end->n_lost =
            reader->mark.sequence > end->sequence ? reader->mark.sequence - end->sequence : 0;
        return;
    }
    if (left < sizeof record || empty) return;
    if (!record_begins(reader, end->size, end->sequence + 1, end->checksum, &record)) {
        end->damaged = true;
        return;
    }
    uint64_t behind = end->size + sizeof record + log_padded(record.size);
    end->damaged = record.size < left &&
                   record_begins(reader, behind, end->sequence + 2, record.checksum, &next);
}

static enum status read_head(struct log_reader *reader, struct generation_origin origin,
                             struct error *e) {
    struct log_head head = log_head_make(origin), found;
    /* The head is on the disk before the first change is written behind it. */
    if (!read_at(reader, 0, &found, sizeof found) ||
        (reader->size == sizeof head && rest_is_zero(reader, 0))) {
        reader->end->torn = reader->size;
        reader->end->damaged = reader->mark.size > sizeof head;
        reader->end->n_lost = reader->mark.sequence;
        return STATUS_OK;
    }
    reader->end->n_lost = reader->mark.sequence;
    if (memcmp(&found, &head, sizeof head) != 0)
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
    uint64_t at = end->size + sizeof record, left = reader->size - at,
             size = log_padded(record.size);
    if (record.size > left || size > left) return STATUS_OK;
    char *bytes = malloc(size + 1);
    if (bytes == NULL)
        return error_set(e, STATUS_NO_MEMORY, "%s: a change of %" PRIu64 " bytes", reader->path,
                         record.size);
    uint64_t seed =
        hash_bytes(&record.sequence, sizeof record - sizeof record.checksum, end->checksum);
    if (!read_at(reader, at, bytes, size) ||
        hash_bytes(bytes, record.size, seed) != record.checksum ||
        !is_zero((const uint8_t *)bytes + record.size, size - record.size)) {
        free(bytes);
        return STATUS_OK;
    }

    end->sequence = record.sequence;
    end->checksum = record.checksum;
    end->last = end->size;
    end->size = at + size;
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
    if (!has_last(reader))
        return error_set(e, STATUS_CORRUPT,
                         "%s: it no longer has change %" PRIu64 ", which was read before",
                         reader->path, reader->end->sequence);
    while (more && status == STATUS_OK) status = read_record(reader, take, context, &more, e);
    if (status == STATUS_OK) judge_rest(reader);
    return status;
}

enum status change_log_read(const char *folder, struct generation_origin origin, change_taker *take,
                            void *context, struct change_log_end *end, struct error *e) {
    uint64_t head_checksum = log_head_make(origin).checksum;
    /* A log without a change may be removed by the program that began it: its head is read again
     * each time. */
    if (end->sequence == 0) *end = (struct change_log_end){.checksum = head_checksum};
    end->torn = end->n_lost = 0;
    end->damaged = false;
    end->modified = stat_log(folder).modified;
    char *path = disk_path(folder, CHANGE_LOG_NAME);
    struct log_reader reader = {.path = path, .end = end};
    enum status status = STATUS_OK;
    read_mark(&reader, folder, head_checksum);
    if (access(path, F_OK) == 0) {
        status = reader_open(&reader, e);
        if (status == STATUS_OK) {
            status = read_log(&reader, origin, take, context, e);
            if (reader_close(&reader, e)) status = e->status;
        }
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

/* A record behind any other end is lost: nobody reads past one that does not fit. */
enum status change_log_check_end(const char *path, struct change_log_end *end, struct error *e) {
    struct log_reader reader = {.path = path, .end = end};
    if (end->size == 0) return STATUS_OK;
    if (reader_open(&reader, e)) return e->status;
    bool fits = end->size == reader.size && has_last(&reader);
    if (reader_close(&reader, e)) return e->status;
    return fits ? STATUS_OK
                : error_set(e, STATUS_CORRUPT,
                            "%s: it does not end with change %" PRIu64 " any more", path,
                            end->sequence);
}
