/* retrieval/extract/extract_unpack.c: the only file that includes libarchive. See extract_unpack.h. */
#include "retrieval/extract/extract_unpack.h"

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
