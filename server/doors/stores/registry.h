/* server/doors/stores/registry.h: the records of vector stores (record.h) in one file,
 * "vector_stores.json" in the folder of the collection. Servers of the same collection share it:
 * each reads it again when another has written it, and one at a time writes. A change is on the
 * disk when it has ended, and is there whole or not at all. */
#pragma once

#include "server/doors/stores/record.h"

struct registry;

/* `folder` is the collection's. No file is made before the first change. */
enum status registry_open(struct registry **out, const char *folder, struct error *e);
void registry_close(struct registry *registry); /* NULL: nothing */

/* The records, until registry_end: to look at, or to change. Nobody else has them meanwhile. NULL:
 * they cannot be read, or nothing can be written; then there is nothing to end. */
const struct records *registry_look(struct registry *registry, struct error *e);
struct records *registry_change(struct registry *registry, struct error *e);
/* Of registry_look, or of a change that was not made. */
void registry_end(struct registry *registry);
/* Writes what was changed, and ends. On failure everything is as before. */
enum status registry_write(struct registry *registry, struct error *e);

/* The number of this process, which it has from its first change on, and whether the process of
 * such a number still runs. While the records are held. */
uint64_t registry_server(const struct registry *registry);
bool registry_runs(struct registry *registry, uint64_t server);
