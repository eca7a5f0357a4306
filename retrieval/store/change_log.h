/* retrieval/store/change_log.h: the changes of a collection since its generation was written:
 * DIR/gen-000012/changes.log, append-only (docs/index-format.md). A change is kept once change_log_sync has returned.
 *
 *   head     "RETROLOG", u32 format, u32 generation, u64 checksum of the MANIFEST, u64 checksum of the 24 bytes before
 *   record   u64 checksum of the 24 bytes behind and the payload; u64 sequence, 1, 2, ...; u64 bytes of the payload;
 *            u32 kind; u32 checksum of the 20 bytes before; the payload, zeros up to a multiple of 8
 *
 * All checksums of a record have that of the record before as their seed (of the first, the head's), so records cannot
 * be left out, repeated or taken from another log. */
#pragma once

#include "retrieval/store/collection.h"

enum change_kind {
    CHANGE_PUT = 1,   /* a document_image: it replaces the document of that id */
    CHANGE_DELETE = 2 /* an id and its NUL */
};

/* Takes the changes that a log holds, in order. `bytes` [size] are the taker's from then on: free. */
typedef enum status change_taker(void *context, enum change_kind kind, char *bytes, size_t size, struct error *e);

/* How far a log could be read. */
struct change_log_end {
    uint64_t sequence; /* of the last change; 0: none */
    uint64_t checksum; /* of the last record, or of the head */
    uint64_t size;     /* bytes up to here */
    uint64_t torn;     /* bytes behind: of a change that was never acknowledged */
    bool damaged;      /* the bytes behind hold changes that were acknowledged: only a person may give them up */
};

/* Reads on behind *end in DIR/gen-N/changes.log, `folder` being DIR/gen-N; from the beginning where *end is zeroed.
 * Without that file there are no changes. STATUS_CORRUPT where the head does not fit, and whatever `take` returns. A
 * damaged record is not an error: it ends the log. */
enum status change_log_read(const char *folder, struct generation_origin origin, change_taker *take, void *context,
                            struct change_log_end *end, struct error *e);

/* Bytes of the log as it is now; 0 without one. */
uint64_t change_log_measure(const char *folder);

struct change_log;

/* To append behind `end`. A torn rest is put aside into changes.cut first. STATUS_CORRUPT for a damaged log. */
enum status change_log_open(struct change_log **out, const char *folder, struct generation_origin origin,
                            const struct change_log_end *end, struct error *e);
/* Writes a record. After a failure the log is as it was, or, where even that fails, takes no further record. */
enum status change_log_append(struct change_log *l, enum change_kind kind, struct text_span payload, struct error *e);
/* All that was appended is on the disk. After a failure nobody knows what is: the log takes no further record. */
enum status change_log_sync(struct change_log *l, struct error *e);
struct change_log_end change_log_end(const struct change_log *l); /* behind what was appended */
void change_log_close(struct change_log *l);                      /* NULL: nothing */
/* Cuts what follows `end`, damaged or torn, into changes.cut: for `verify --repair`. */
enum status change_log_cut(const char *folder, const struct change_log_end *end, struct error *e);
