/* server/api/documents/byte_range.h: the header Range, as clients ask for a part of a file (RFC
 * 9110, 14). */
#pragma once

#include "config/base/base.h"

enum byte_range_kind {
    RANGE_ALL,  /* none, several, or one that is not written as it should be: the whole file */
    RANGE_PART, /* bytes [start, end) */
    RANGE_NONE  /* it has no byte of the file: 416 */
};

struct byte_range {
    enum byte_range_kind kind;
    uint64_t start, end;
};

/* Of a file of `size` bytes, at least 1. `range`: the header; NULL: it is not there. */
struct byte_range byte_range_read(const char *range, uint64_t size);
/* Whether a list of entity tags, or "*", has the one in quotes. `list` may be NULL. */
bool entity_tags_have(const char *list, const char *tag);
