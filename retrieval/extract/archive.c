/* retrieval/extract/archive.c: the members of archives, and files that are packed by gzip, in a
 * child process. */
#include <string.h>

#include "config/archive/unpack.h"
#include "config/base/hash.h"
#include "config/base/key_set.h"
#include "retrieval/extract/extract_private.h"

/* Of an archive: files, and bytes in units of the limit of one file. */
enum { MAX_MEMBERS = 100000, MAX_UNPACKED = 8 };

struct member_writer {
    const struct extract_file *file;
    struct child_writer *writer;
    struct key_set names; /* of members that were chosen */
    int n_unknown;
    struct buffer unknown; /* the first */
};

/* Files that programs keep beside documents. */
static bool is_hidden_name(const char *name) {
    bool begins = true;
    for (const char *at = name; *at; at++) {
        if (begins && (*at == '.' || strncmp(at, "__MACOSX/", 9) == 0)) return true;
        begins = *at == '/';
    }
    return false;
}

/* A name is a name here and leads nowhere, but nobody makes one with ".." in good faith. */
static bool leads_out(const char *name) {
    size_t size = strlen(name);
    return name[0] == '/' || strncmp(name, "../", 3) == 0 || strstr(name, "/../") ||
           (size >= 3 && strcmp(name + size - 3, "/..") == 0);
}

static bool skip_member(struct member_writer *writer, const char *member, const char *reason) {
    struct error why;
    error_set(&why, STATUS_INVALID, "%s!/%s: %s", writer->file->name, member, reason);
    child_write_skipped(writer->writer, &why);
    return false;
}

static bool choose_member(void *context, const char *member) {
    struct member_writer *writer = context;
    size_t size = strlen(member);
    if (leads_out(member)) return skip_member(writer, member, "its name leads out of the archive");
    if (is_hidden_name(member)) return false;
    if (document_kind_within(member) != DOCUMENT_UNKNOWN ||
        document_kind(member) == DOCUMENT_BARE) {
        bool is_new =
            key_set_add(&writer->names, hash_bytes(member, size, 0), hash_bytes(member, size, 1));
        return is_new || skip_member(writer, member,
                                     "another file in the archive has this name, and comes first");
    }
    if (writer->n_unknown == 0) buffer_append_string(&writer->unknown, member);
    writer->n_unknown++;
    return false;
}

static void take_member(void *context, const char *member, const struct buffer *bytes,
                        const struct error *why) {
    struct member_writer *writer = context;
    if (why) {
        child_write_skipped(writer->writer, why);
        return;
    }
    struct buffer part = {0};
    buffer_printf(&part, "!/%s", member);
    child_write_member(writer->writer, part.data, (struct text_span){bytes->data, bytes->size});
    buffer_free(&part);
}

enum status extract_members(const struct extract_file *file, struct child_writer *writer,
                            struct error *e) {
    struct member_writer members = {.file = file, .writer = writer};
    struct error why;
    struct unpack_job job = {.name = file->name,
                             .bytes = file->bytes,
                             .limits = {.member = file->limits.bytes,
                                        .total = MAX_UNPACKED * file->limits.bytes,
                                        .members = MAX_MEMBERS},
                             .choose = choose_member,
                             .take = take_member,
                             .context = &members};
    enum status status = unpack(&job, e);
    if (status == STATUS_OK && members.n_unknown > 0) {
        error_set(&why, STATUS_UNSUPPORTED,
                  "%s: %d of its files are of no known kind, the first is %s", file->name,
                  members.n_unknown, members.unknown.data);
        child_write_skipped(writer, &why);
    }
    buffer_free(&members.unknown);
    key_set_free(&members.names);
    return status;
}

/* Packed files. */

static bool choose_any(void *context, const char *member) {
    (void)context, (void)member;
    return true;
}

struct packed_writer {
    struct child_writer *writer;
    struct error error;
};

static void take_packed(void *context, const char *member, const struct buffer *bytes,
                        const struct error *why) {
    struct packed_writer *writer = context;
    (void)member;
    if (why)
        writer->error = *why;
    else
        child_write_member(writer->writer, "", (struct text_span){bytes->data, bytes->size});
}

enum status extract_packed(const struct extract_file *file, struct child_writer *writer,
                           struct error *e) {
    struct packed_writer packed = {.writer = writer};
    struct unpack_job job = {
        .name = file->name,
        .bytes = file->bytes,
        .packed = true,
        .limits = {.member = file->limits.bytes, .total = SIZE_MAX, .members = 1},
        .choose = choose_any,
        .take = take_packed,
        .context = &packed};
    if (unpack(&job, e)) return e->status;
    if (packed.error.status) *e = packed.error;
    return packed.error.status;
}
