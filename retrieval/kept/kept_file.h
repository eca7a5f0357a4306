/* retrieval/kept/kept_file.h: the files that documents came from, as they came, for whoever may
 * read the document: a server's clients, and rooms that draw their pages.
 *
 * A file that lies on disk is given where its bytes are still those that were read: it is hashed
 * when it is opened, unless it was not touched since it was hashed last, and looked at again with
 * each piece. Nothing follows a link. A copy of an upload is in the collection's folder "files"
 * (kept_copy.h). */
#pragma once

#include <sys/types.h>
#include <time.h>

#include "retrieval/document.h"
#include "retrieval/kept/kept_name.h"

/* Files that are given: none; those on disk, from where they lie; these, and uploads, of which a
 * copy is kept beside the collection. */
enum keep_files { KEEP_OFF, KEEP_PATH, KEEP_COPY };

/* A server's, for one collection. Any thread. */
struct kept_files;
/* `collection` is its folder, or its name in Milvus. STATUS_UNSUPPORTED for copies of a collection
 * that is in no folder. */
enum status kept_files_open(struct kept_files **out, const char *collection, enum keep_files keep,
                            struct error *e);
void kept_files_close(struct kept_files *files); /* of NULL: nothing */
/* The folder that copies are written to; NULL: uploads are not kept, also where files is NULL. */
const char *kept_files_folder(const struct kept_files *files);

struct kept_file {
    int fd;                   /* -1: none */
    uint64_t size;            /* bytes */
    char tag[KEPT_HASH_SIZE]; /* other bytes have another */
    bool changes;             /* it is not ours alone: each piece is checked */
    dev_t device;
    ino_t inode;
    struct timespec modified, changed;
};
/* The file of a document that was found for somebody who may read it. Of a document within a file,
 * all of that file. STATUS_NOT_FOUND: none is kept; STATUS_INVALID: it is gone, or its bytes are
 * others than those that were read. Takes time in proportion to its size. */
enum status kept_file_open(struct kept_files *files, const struct stored_document *document,
                           struct kept_file *out, struct error *e);
/* Appends bytes [at, at + n), which it has. STATUS_INVALID: it has changed since it was opened. */
enum status kept_file_read(const struct kept_file *file, uint64_t at, size_t n, struct buffer *out,
                           struct error *e);
void kept_file_close(struct kept_file *file);
/* The name that a document's file is saved by: the end of its path; of a document within a file,
 * that file's. The caller frees it. */
char *kept_file_name(const struct stored_document *document);
