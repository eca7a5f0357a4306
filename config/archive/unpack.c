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

static enum status damaged(const struct unpacker *u, struct error *e) {
    const char *why = archive_error_string(u->archive);
    return error_set(e, STATUS_INVALID, "%s: damaged: %s", u->job->name, why ? why : "no archive");
}

/* A member's bytes; STATUS_TOO_LARGE is the member's own fault while the total is within its limit. */
static enum status read_member(struct unpacker *u, const char *member, struct error *e) {
    const struct unpack_job *job = u->job;
    char block[1 << 16];
    buffer_clear(&u->bytes);
    for (;;) {
        la_ssize_t n = archive_read_data(u->archive, block, sizeof block);
        if (n < 0) {
            const char *why = archive_error_string(u->archive);
            return error_set(e, STATUS_INVALID, "%s!/%s: damaged: %s", job->name, member,
                             why ? why : "no reason given");
        }
        if (n == 0) break;
        u->total += (size_t)n;
        if (u->bytes.size + (size_t)n > job->limits.member)
            return error_set(e, STATUS_TOO_LARGE, "%s!/%s: more than %zu bytes", job->name, member, job->limits.member);
        buffer_append(&u->bytes, block, (size_t)n);
    }
    buffer_append(&u->bytes, "", 0);
    return STATUS_OK;
}

static const char *member_name(struct archive_entry *entry) {
    const char *name = archive_entry_pathname_utf8(entry);
    return name ? name : archive_entry_pathname(entry);
}

static enum status take_entry(struct unpacker *u, struct archive_entry *entry, struct error *e) {
    const struct unpack_job *job = u->job;
    const char *name = member_name(entry);
    struct error why = {0};
    if (name == NULL || archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry)) return STATUS_OK;
    if (!job->choose(job->context, name)) return STATUS_OK;
    enum status status = read_member(u, name, &why);
    if (u->total > job->limits.total)
        return error_set(e, STATUS_TOO_LARGE, "%s: it unpacks to more than %zu bytes", job->name, job->limits.total);
    job->take(job->context, name, status ? NULL : &u->bytes, status ? &why : NULL);
    return STATUS_OK;
}

static enum status read_entries(struct unpacker *u, struct error *e) {
    struct archive_entry *entry;
    for (int n = 0;; n++) {
        int code = archive_read_next_header(u->archive, &entry);
        if (code == ARCHIVE_EOF)
            return n > 0 ? STATUS_OK : error_set(e, STATUS_INVALID, "%s: empty archive", u->job->name);
        if (code != ARCHIVE_OK && code != ARCHIVE_WARN) return damaged(u, e);
        if (n == u->job->limits.members)
            return error_set(e, STATUS_TOO_LARGE, "%s: more than %d members", u->job->name, n);
        if (take_entry(u, entry, e)) return e->status;
    }
}

static void support_archives(struct archive *a) {
    archive_read_support_format_zip(a);
    archive_read_support_format_tar(a);
    archive_read_support_filter_bzip2(a);
    archive_read_support_filter_xz(a);
    archive_read_support_filter_zstd(a);
}

enum status unpack(const struct unpack_job *job, struct error *e) {
    struct unpacker u = {.job = job, .archive = archive_read_new()};
    if (u.archive == NULL) return error_set(e, STATUS_NO_MEMORY, "%s: archive reader", job->name);
    archive_read_support_filter_gzip(u.archive);
    if (job->packed)
        archive_read_support_format_raw(u.archive);
    else
        support_archives(u.archive);
    int opened = archive_read_open_memory(u.archive, job->bytes.text, job->bytes.size);
    enum status status = opened == ARCHIVE_OK ? read_entries(&u, e) : damaged(&u, e);
    archive_read_free(u.archive);
    buffer_free(&u.bytes);
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
    return bytes.size < sizeof zeros || memcmp(bytes.text + bytes.size - sizeof zeros, zeros, sizeof zeros) != 0;
}

static enum status fail_tar(const struct tar_walk *w, struct error *e) {
    const char *why = archive_error_string(w->archive);
    return error_set(e, STATUS_CORRUPT, "%s: no tar, or a damaged one: %s", w->name, why ? why : "it holds nothing");
}

static bool leads_out(const char *name) {
    size_t size = strlen(name);
    return name[0] == '/' || strcmp(name, "..") == 0 || strncmp(name, "../", 3) == 0 || strstr(name, "/../") ||
           (size > 3 && strcmp(name + size - 3, "/..") == 0);
}

/* A file's data is one block of the map, as the archive is one block of memory. */
static enum status take_file(const struct tar_walk *w, struct archive_entry *entry, const char *name, struct error *e) {
    la_int64_t size = archive_entry_size(entry), at = 0;
    const void *block = w->bytes.text;
    size_t n = 0;
    int code = size > 0 ? archive_read_data_block(w->archive, &block, &n, &at) : ARCHIVE_OK;
    if (code != ARCHIVE_OK && code != ARCHIVE_EOF) return fail_tar(w, e);
    if (at != 0 || n != (size_t)size)
        return error_set(e, STATUS_UNSUPPORTED, "%s: %s in the tar has holes: refused", w->name, name);
    size_t begin = (size_t)((const char *)block - w->bytes.text);
    CHECK(begin <= w->bytes.size && n <= w->bytes.size - begin);
    return w->take(w->context, name, (struct text_span){block, n}, e);
}

static enum status take_member(const struct tar_walk *w, struct archive_entry *entry, struct error *e) {
    const char *name = member_name(entry);
    if (name == NULL || name[0] == '\0') return error_set(e, STATUS_CORRUPT, "%s: a file without a name", w->name);
    while (strncmp(name, "./", 2) == 0) name += 2;
    if (leads_out(name))
        return error_set(e, STATUS_CORRUPT, "%s: the tar's file %s lies outside of it: refused", w->name, name);
    bool linked = archive_entry_hardlink(entry) != NULL;
    if (!linked && archive_entry_filetype(entry) == AE_IFDIR) return STATUS_OK;
    if (!linked && archive_entry_filetype(entry) == AE_IFREG) return take_file(w, entry, name, e);
    return error_set(e, STATUS_UNSUPPORTED, "%s: %s in the tar is a link or a device: refused", w->name, name);
}

static enum status take_members(const struct tar_walk *w, struct error *e) {
    struct archive_entry *entry;
    for (;;) {
        int code = archive_read_next_header(w->archive, &entry);
        if (code == ARCHIVE_EOF) break;
        if (code != ARCHIVE_OK && code != ARCHIVE_WARN) return fail_tar(w, e);
        if (take_member(w, entry, e)) return e->status;
    }
    if (!ends_early(w->bytes)) return STATUS_OK;
    return error_set(e, STATUS_CORRUPT, "%s: the tar ends without its last header: cut off", w->name);
}

enum status tar_visit(struct text_span bytes, const char *archive, tar_taker *take, void *context, struct error *e) {
    struct tar_walk w = {bytes, archive, archive_read_new(), take, context};
    if (w.archive == NULL) return error_set(e, STATUS_NO_MEMORY, "%s: archive reader", archive);
    archive_read_support_format_tar(w.archive);
    int opened = archive_read_open_memory(w.archive, bytes.text, bytes.size);
    enum status status = opened == ARCHIVE_OK ? take_members(&w, e) : fail_tar(&w, e);
    archive_read_free(w.archive);
    return status;
}
