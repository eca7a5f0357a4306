/* retrieval/open/collection_open.h: collections of all kinds by their names: a folder, or an
 * address in Milvus. */
#pragma once

#include "retrieval/generation/generation.h"
#include "retrieval/milvus/milvus_collection.h"

/* Whether a name means a collection that is no folder. */
bool collection_name_is_remote(const char *name);
/* `name` is a folder or an address in Milvus; the settings are for the latter. */
enum status collection_open(struct collection **out, const char *name,
                            const struct milvus_settings *settings, struct error *e);
/* The facts of a collection before it is opened to be used; one in Milvus takes no memory here. */
enum status collection_outline_read(struct collection_outline *out, const char *name,
                                    const struct milvus_settings *settings, struct error *e);
