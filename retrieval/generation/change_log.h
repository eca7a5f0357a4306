/* retrieval/generation/change_log.h: the changes of a collection since its generation was written:
 * DIR/gen-000012/changes.log, append-only (docs/index-format.md). A change is kept once
 * change_log_sync has returned.
 *
 *   head     "RETROLOG", u32 format, u32 generation, u64 checksum of the MANIFEST, u64 checksum of
 * the 24 bytes before record   u64 checksum of the 24 bytes behind and the payload; u64 sequence,
 * 1, 2, ...; u64 bytes of the payload; u32 kind; u32 checksum of the 20 bytes before; the payload,
 * zeros up to a multiple of 8
 *
 * All checksums of a record have that of the record before as their seed (of the first, the
 * head's), so records cannot be left out, repeated or taken from another log.
 *
 * changes.kept beside it says up to where the log was on the disk after its last fsync: u64 bytes,
 * u64 sequence, u64 checksum with the head's as seed. It is written after the fsync and not synced
 * itself, so it may be behind and is never ahead: what is unreadable below it was acknowledged and
 * is damage, what is unreadable above it is a write that was cut off. */
#pragma once

#include "retrieval/generation/generation.h"

enum change_kind {
    CHANGE_PUT = 1,   /* a document_image: it replaces the document of that id */
    CHANGE_DELETE = 2 /* an id and its NUL */
};

/* Takes the changes that a log holds, in order. `bytes` [size] are the taker's from then on: free.
 */
typedef enum status change_taker(void *context, enum change_kind kind, char *bytes, size_t size,
                                 struct error *e);

/* How far a log could be read. */
struct change_log_end {
    uint64_t sequence; /* of the last change; 0: none */
    uint64_t checksum; /* of the last record, or of the head */
    uint64_t size;     /* bytes up to here */
    uint64_t last;     /* where the last record begins; 0: none */
    uint64_t synced;   /* so many of them were put on the disk by this program; another one may have
                          written more */
    uint64_t torn;     /* bytes behind: of changes that were never acknowledged */
    bool damaged;      /* changes behind were acknowledged: only a person may give them up */
    uint64_t n_lost;   /* so many of them, as far as anybody knows */
    int64_t modified;  /* when the file had last been written to, ns since 1970, as it was read */
};

/* Reads on behind *end in DIR/gen-N/changes.log, `folder` being DIR/gen-N; from the beginning where
 * *end is zeroed. Without that file there are no changes. STATUS_CORRUPT where the head does not
 * fit, or where the log no longer has the last record of *end; and whatever `take` returns. A
 * damaged record is not an error: it ends the log. */
enum status change_log_read(const char *folder, struct generation_origin origin, change_taker *take,
                            void *context, struct change_log_end *end, struct error *e);

/* Whether the log may have changed since *end was read. */
bool change_log_is_news(const char *folder, const struct change_log_end *end);
/* Bytes of the log as it is now; 0 without one. */
uint64_t change_log_measure(const char *folder);
uint64_t change_log_measure_changes(const char *folder); /* without its head */

struct change_log;

/* To append behind `end`. A torn rest is put aside into changes.cut first, and what another program
 * has written is put on the disk, CURRENT included: an answer may depend on it. STATUS_CORRUPT for
 * a damaged log, and for one that does not end there any more. */
enum status change_log_open(struct change_log **out, const char *folder,
                            struct generation_origin origin, const struct change_log_end *end,
                            struct error *e);
/* Writes a record. After a failure the log is as it was, or, where even that fails, takes no
 * further record. */
enum status change_log_append(struct change_log *change_log, enum change_kind kind,
                              struct text_span payload, struct error *e);
/* All up to `end`, which was appended, is on the disk. After a failure nobody knows what is: the
 * log takes no further record, and change_log_give_up is to be called. Another thread may append
 * meanwhile. */
enum status change_log_sync(struct change_log *change_log, const struct change_log_end *end,
                            struct error *e);
/* Takes what was appended behind `size` off the log again, so that no later fsync is taken for
 * theirs. False: it is still there. */
bool change_log_give_up(struct change_log *change_log, uint64_t size);
struct change_log_end change_log_end(
    const struct change_log *change_log);             /* behind what was appended */
void change_log_close(struct change_log *change_log); /* NULL: nothing */
/* Cuts what follows `end`, damaged or torn, into changes.cut: for `verify --repair`. */
enum status change_log_cut(const char *folder, const struct change_log_end *end, struct error *e);
