/* server/http/head.h: whether a request's head is written as RFC 9112 has it, to the byte.
 *
 * The HTTP library takes more than the standard allows: lines that end in LF, folded lines, bytes
 * behind a NUL, blanks before a colon. A proxy in front reads such a head otherwise, and then takes
 * one client's bytes for another's request. The library has cut the head into strings where it
 * lies, with NULs for what stood between them; so the distances tell what stood there: one byte for
 * a blank or a colon, two for CRLF. One thing reads as CRLF and is not: NUL, LF. */
#pragma once

#include "server/api/core/failure.h"

struct head_field {
    const char *name, *value;
    size_t name_size, value_size;
};

/* All strings lie in the bytes [method, method + size), in the order of the request, and end with
 * NUL. */
struct head {
    const char *method, *target, *version;
    size_t target_size; /* as it came: the target may have been decoded in place since */
    size_t size;        /* up to and with the empty line */
    const struct head_field *fields; /* [n_fields] */
    int n_fields;
};

/* Bytes up to the first that no target may hold: a blank, a control character or NUL. */
size_t target_measure(const char *target);
/* False, with *failure set to a 400, when the head is malformed, names no host or several, or
 * leaves in doubt where the body ends. */
bool head_check(const struct head *head, struct failure *failure);
