/* retrieval/kept/kept_name.h: what a document says of the file that it came from, in its member
 * `file`, so that these bytes are found again and no others: "same:HASH:SIZE" of a file that lies
 * where its source says, or "copy:HASH:SIZE" of an upload's copy beside the collection. */
#pragma once

#include "config/base/buffer.h"

enum {
    KEPT_NAME_SIZE = 96, /* of the text, with its NUL */
    KEPT_HASH_SIZE = 65  /* of its hash: digits of SHA-256 of a copy, 32 of two XXH3 of a file */
};

enum kept_kind { KEPT_NOTHING, KEPT_SAME, KEPT_COPY };
struct kept_name {
    enum kept_kind kind;
    char hash[KEPT_HASH_SIZE]; /* lower-case hexadecimal digits */
    uint64_t size;             /* bytes of the file */
};

/* KEPT_NOTHING for NULL, "" and whatever is not spelled as above. */
struct kept_name kept_name_read(const char *file);
/* Bytes of the copy that such a text names; 0: it names none. */
int64_t kept_copy_bytes(const char *file);

/* The text of bytes that are to be copied. */
void kept_name_of_bytes(struct text_span bytes, char name[KEPT_NAME_SIZE]);
/* The text of a file on disk. Taken before the file is read: then a file that changes meanwhile is
 * not taken for the one that was read. STATUS_IO. */
enum status kept_name_of_path(const char *path, char name[KEPT_NAME_SIZE], struct error *e);
/* The hash of all of an open file, read in pieces from its beginning; *size: its bytes. */
enum status kept_hash_file(int fd, const char *path, char hash[KEPT_HASH_SIZE], uint64_t *size,
                           struct error *e);
