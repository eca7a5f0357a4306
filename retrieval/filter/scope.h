/* retrieval/filter/scope.h: ids of documents that clients with a filter put. Two such clients do
 * not see each other's documents, so both may have one that they call "report". Each filter is a
 * scope: what its clients call "report" is stored as "@0123456789abcdef/report", where the digits
 * are a hash of the filter. Its clients are shown and say "report"; all others who may see the
 * document are shown and say the stored id. */
#pragma once

#include "config/base/buffer.h"
#include "retrieval/filter/filter.h"

/* The stored id of the document that clients of the filter call `id`, owned by the caller. NULL:
 * they are in no scope, as those without a filter are. */
char *scope_id(const struct filter *filter, const char *id);
/* A stored id as a client of the filter (NULL: none) is shown it: it points into `stored`. */
const char *scope_show(const struct filter *filter, const char *stored);
/* A stored id without the scope, whichever it is of: what the document's owner calls it. It points
 * into `stored`. */
const char *scope_own(const char *stored);
