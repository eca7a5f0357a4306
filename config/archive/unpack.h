/* config/archive/unpack.h: the members of archives, in memory. Nothing is written to a disk, so a
 * member's name is a name and leads nowhere. */
#pragma once

#include "config/base/buffer.h"

struct unpack_limits {
    size_t member, total; /* bytes */
    int members;
};
/* Whether a member's bytes are wanted. */
typedef bool unpack_chooser(void *context, const char *member);
/* Takes a member that is wanted; `why` is set, and bytes are NULL, where it cannot be read. */
typedef void unpack_taker(void *context, const char *member, const struct buffer *bytes,
                          const struct error *why);

struct unpack_job {
    const char *name; /* of the archive, for errors */
    struct text_span bytes;
    bool packed; /* one file that is packed by gzip, and no archive: a member "data" */
    struct unpack_limits limits;
    unpack_chooser *choose;
    unpack_taker *take;
    void *context;
};
/* Reads a zip, or a tar that may be packed by gzip, bzip2, xz or zstd. STATUS_INVALID where it is
 * none or damaged, STATUS_TOO_LARGE where it holds more than the limits. Members before that are
 * taken. */
enum status unpack(const struct unpack_job *job, struct error *e);

/* Calls `take` for each file of a tar that is not packed, in order, until one fails. The data lies
 * in `bytes`, so files may be larger than the memory; the name is without "./" and goes with the
 * call. STATUS_CORRUPT where it is no tar, is damaged or cut off, or a name leads out of it;
 * STATUS_UNSUPPORTED: links, devices, files with holes. */
typedef enum status tar_taker(void *context, const char *name, struct text_span data,
                              struct error *e);
enum status tar_visit(struct text_span bytes, const char *archive, tar_taker *take, void *context,
                      struct error *e);
