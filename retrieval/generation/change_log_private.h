/* retrieval/generation/change_log_private.h: the bytes of changes.log and changes.kept, for those
 * who read them (change_log_read.c) and write them (change_log.c). */
#pragma once

#include "config/base/hash.h"
#include "retrieval/generation/change_log.h"
#include "retrieval/generation/generation_private.h"

#define CHANGE_LOG_NAME "changes.log"
#define CHANGE_MARK_NAME "changes.kept"

struct log_head {
    char magic[8];
    uint32_t format, generation;
    uint64_t manifest_checksum;
    uint64_t checksum;
};
_Static_assert(sizeof(struct log_head) == 32, "read straight from the file");

struct log_record {
    uint64_t checksum;
    uint64_t sequence;
    uint64_t size; /* of the payload, without the zeros behind it */
    uint32_t kind;
    uint32_t head_checksum;
};
_Static_assert(sizeof(struct log_record) == 32, "read straight from the file");

/* changes.kept */
struct log_mark {
    uint64_t size, sequence;
    uint64_t checksum; /* of both, with the head's as its seed */
};
_Static_assert(sizeof(struct log_mark) == 24, "read straight from the file");

/* Bytes of a payload and the zeros behind it. */
static inline uint64_t log_padded(uint64_t size) { return (size + 7) & ~(uint64_t)7; }

struct log_head log_head_make(struct generation_origin origin);
uint32_t log_record_hash_head(const struct log_record *record, uint64_t seed);
uint64_t log_mark_hash(const struct log_mark *mark, uint64_t head_checksum);
/* STATUS_CORRUPT where the log of that path does not end with the last record of *end. */
enum status change_log_check_end(const char *path, struct change_log_end *end, struct error *e);
