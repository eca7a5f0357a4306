/* config/archive/unpack.c: the only file that includes libarchive. See unpack.h. */
#include "config/archive/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <string.h>

struct unpacker {
    const struct unpack_job *job;
    struct archive *archive;
    size_t total;
    struct buffer bytes; /* of the member */
};

static enum status damaged(const struct unpacker *unpacker, struct error *e) {
    const char *why = archive_error_string(unpacker->archive);
    return error_set(e, STATUS_INVALID, "%s: damaged: %s", unpacker->job->name,
                     why ? why : "no archive");
}

/* A member's bytes; STATUS_TOO_LARGE is the member's own fault while the total is within its limit.
 */
static enum status read_member(struct unpacker *unpacker, const char *member, struct error *e) {
    const struct unpack_job *job = unpacker->job;
    char block[1 << 16];
    buffer_clear(&unpacker->bytes);
    for (;;) {
        la_ssize_t n = archive_read_data(unpacker->archive, block, sizeof block);
        if (n < 0) {
            const char *why = archive_error_string(unpacker->archive);
            return error_set(e, STATUS_INVALID, "%s!/%s: damaged: %s", job->name, member,
                             why ? why : "no reason given");
        }
        if (n == 0) break;
        unpacker->total += (size_t)n;
        if (unpacker->bytes.size + (size_t)n > job->limits.member)
            return error_set(e, STATUS_TOO_LARGE, "%s!/%s: more than %zu bytes", job->name, member,
                             job->limits.member);
        buffer_append(&unpacker->bytes, block, (size_t)n);
    }
    buffer_append(&unpacker->bytes, "", 0);
    return STATUS_OK;
}

/* A name that is none is one of no known kind, which is counted: a file that is not read is told.
 */
static const char *member_name(struct archive_entry *entry) {
    const char *name = archive_entry_pathname_utf8(entry);
    if (name == NULL) name = archive_entry_pathname(entry);
    return name ? name : "(a name that cannot be read)";
}

static enum status take_entry(struct unpacker *unpacker, struct archive_entry *entry,
                              struct error *e) {
    const struct unpack_job *job = unpacker->job;
    const char *name = member_name(entry);
    struct error why = {0};
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry))
        return STATUS_OK;
    if (!job->choose(job->context, name)) return STATUS_OK;
    enum status status = read_member(unpacker, name, &why);
    if (unpacker->total > job->limits.total)
        return error_set(e, STATUS_TOO_LARGE, "%s: it unpacks to more than %zu bytes", job->name,
                         job->limits.total);
    job->take(job->context, name, status ? NULL : &unpacker->bytes, status ? &why : NULL);
    return STATUS_OK;
}

static enum status read_entries(struct unpacker *unpacker, struct error *e) {
    struct archive_entry *entry;
    for (int n = 0;; n++) {
        int code = archive_read_next_header(unpacker->archive, &entry);
        if (code == ARCHIVE_EOF)
            return n > 0 ? STATUS_OK
                         : error_set(e, STATUS_INVALID, "%s: empty archive", unpacker->job->name);
        if (code != ARCHIVE_OK && code != ARCHIVE_WARN) return damaged(unpacker, e);
        if (n == unpacker->job->limits.members)
            return error_set(e, STATUS_TOO_LARGE, "%s: more than %d members", unpacker->job->name,
                             n);
        if (take_entry(unpacker, entry, e)) return e->status;
    }
}

static void support_archives(struct archive *archive) {
    archive_read_support_format_zip(archive);
    archive_read_support_format_tar(archive);
    archive_read_support_filter_bzip2(archive);
    archive_read_support_filter_xz(archive);
    archive_read_support_filter_zstd(archive);
}

enum status unpack(const struct unpack_job *job, struct error *e) {
    struct unpacker unpacker = {.job = job, .archive = archive_read_new()};
    if (unpacker.archive == NULL)
        return error_set(e, STATUS_NO_MEMORY, "%s: archive reader", job->name);
    archive_read_support_filter_gzip(unpacker.archive);
    if (job->packed)
        archive_read_support_format_raw(unpacker.archive);
    else
        support_archives(unpacker.archive);
    int opened = archive_read_open_memory(unpacker.archive, job->bytes.text, job->bytes.size);
    enum status status = opened == ARCHIVE_OK ? read_entries(&unpacker, e) : damaged(&unpacker, e);
    archive_read_free(unpacker.archive);
    buffer_free(&unpacker.bytes);
    return status;
}

/* Tars whose files are read where they lie. */

struct tar_walk {
    struct text_span bytes;
    const char *name;
    struct archive *archive;
    tar_taker *take;
    void *context;
};

static bool ends_early(struct text_span bytes) {
    static const char zeros[512];
    return bytes.size < sizeof zeros ||
           memcmp(bytes.text + bytes.size - sizeof zeros, zeros, sizeof zeros) != 0;
}

static enum status fail_tar(const struct tar_walk *walk, struct error *e) {
    const char *why = archive_error_string(walk->archive);
    return error_set(e, STATUS_CORRUPT, "%s: no tar, or a damaged one: %s", walk->name,
                     why ? why : "it holds nothing");
}

static bool leads_out(const char *name) {
    size_t size = strlen(name);
    return name[0] == '/' || strcmp(name, "..") == 0 || strncmp(name, "../", 3) == 0 ||
           strstr(name, "/../") || (size > 3 && strcmp(name + size - 3, "/..") == 0);
}

/* A file's data is one block of the map, as the archive is one block of memory. */
static enum status take_file(const struct tar_walk *walk, struct archive_entry *entry,
                             const char *name, struct error *e) {
    la_int64_t size = archive_entry_size(entry), at = 0;
    const void *block = walk->bytes.text;
    size_t n = 0;
    int code = size > 0 ? archive_read_data_block(walk->archive, &block, &n, &at) : ARCHIVE_OK;
    if (code != ARCHIVE_OK && code != ARCHIVE_EOF) return fail_tar(walk, e);
    if (at != 0 || n != (size_t)size)
        return error_set(e, STATUS_UNSUPPORTED, "%s: %s in the tar has holes: refused", walk->name,
                         name);
    size_t begin = (size_t)((const char *)block - walk->bytes.text);
    CHECK(begin <= walk->bytes.size && n <= walk->bytes.size - begin);
    return walk->take(walk->context, name, (struct text_span){block, n}, e);
}

static enum status take_member(const struct tar_walk *walk, struct archive_entry *entry,
                               struct error *e) {
    const char *name = member_name(entry);
    if (name == NULL || name[0] == '\0')
        return error_set(e, STATUS_CORRUPT, "%s: a file without a name", walk->name);
    while (strncmp(name, "./", 2) == 0) name += 2;
    if (leads_out(name))
        return error_set(e, STATUS_CORRUPT, "%s: the tar's file %s lies outside of it: refused",
                         walk->name, name);
    bool linked = archive_entry_hardlink(entry) != NULL;
    if (!linked && archive_entry_filetype(entry) == AE_IFDIR) return STATUS_OK;
    if (!linked && archive_entry_filetype(entry) == AE_IFREG)
        return take_file(walk, entry, name, e);
    return error_set(e, STATUS_UNSUPPORTED, "%s: %s in the tar is a link or a device: refused",
                     walk->name, name);
}

static enum status take_members(const struct tar_walk *walk, struct error *e) {
    struct archive_entry *entry;
    for (;;) {
        int code = archive_read_next_header(walk->archive, &entry);
        if (code == ARCHIVE_EOF) break;
        if (code != ARCHIVE_OK && code != ARCHIVE_WARN) return fail_tar(walk, e);
        if (take_member(walk, entry, e)) return e->status;
    }
    if (!ends_early(walk->bytes)) return STATUS_OK;
    return error_set(e, STATUS_CORRUPT, "%s: the tar ends without its last header: cut off",
                     walk->name);
}

enum status tar_visit(struct text_span bytes, const char *archive, tar_taker *take, void *context,
                      struct error *e) {
    struct tar_walk walk = {bytes, archive, archive_read_new(), take, context};
    if (walk.archive == NULL) return error_set(e, STATUS_NO_MEMORY, "%s: archive reader", archive);
    archive_read_support_format_tar(walk.archive);
    int opened = archive_read_open_memory(walk.archive, bytes.text, bytes.size);
    enum status status = opened == ARCHIVE_OK ? take_members(&walk, e) : fail_tar(&walk, e);
    archive_read_free(walk.archive);
    return status;
}
