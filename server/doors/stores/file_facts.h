/* server/doors/stores/file_facts.h: what the server itself keeps in the metadata of a file. Its
 * names begin with "$", which no client's may:
 *
 *     "$purpose": "assistants", "$created": 1730000000, "$bytes": 4096     of the upload
 *     "$owner": "..."              the key whose file it is, where the server has keys
 *     "$until": 1730003600         when it is deleted, if ever
 *     "$vs_ID": 1730000001         it is in this store since then
 *     "$vs_ID.author": "..."       an attribute that it has there
 *
 * Filters compare them as all metadata, so a vector store is a filter. */
#pragma once

#include "retrieval/document.h"
#include "server/doors/stores/record.h"

struct file_facts {
    bool uploaded; /* it is a file; else a document that came by other means */
    struct text_span purpose, owner;
    int64_t created, bytes, until; /* 0: never */
};
void file_facts_read(struct file_facts *out, const struct stored_document *document);

/* Whether a fact is that a file is in a store; then its id is copied. */
bool fact_is_membership(const struct fact *fact, char store[STORE_ID_BYTES]);
/* The name of an attribute in a store as filters know it; NULL: of the collection, whose attributes
 * are metadata that clients gave. Appends. */
void attribute_name_append(struct buffer *out, const char *store, struct text_span key);
/* Writes "attributes" of the metadata, a JSON object or "": those in the store, NULL: likewise. */
void put_key_attributes(struct json_writer *w, const char *metadata, const char *store);

/* Metadata of an upload. */
struct file_upload {
    const char *purpose, *owner; /* owner: NULL: there are no keys */
    int64_t created, bytes, until;
};
void file_metadata_begin(struct buffer *out, const struct file_upload *upload);

/* Metadata with other attributes in a store, or without that store. Stores that are not there any
 * more go on this occasion. */
struct file_metadata_change {
    const char *store;
    bool is_in;                    /* the file is in it from now on */
    int64_t since;                 /* that it is, where it was not before */
    const struct json *attributes; /* an object, NULL: none; where is_in */
    bool (*knows)(const void *context, const char *store);
    const void *context;
};
enum status file_metadata_change(struct buffer *out, const char *metadata,
                                 const struct file_metadata_change *change, struct error *e);
