/* server/doors/stores/record.h: what is known of vector stores beside the documents' metadata, as
 * one JSON text: names, expiry, and files that were to be added together. */
#pragma once

#include "config/json/json_table.h"
#include "config/json/json_writer.h"

enum { STORE_ID_BYTES = 40 }; /* "vs_" or "vsfb_", 32 digits and a NUL */

enum file_state { FILE_IN_PROGRESS, FILE_COMPLETED, FILE_FAILED, FILE_CANCELLED };
extern const struct json_choice file_states[]; /* their names */
static inline const char *file_state_name(enum file_state state) { return file_states[state].name; }

struct store_record {
    char *id;
    char *owner;             /* of its key (struct key); "": of a server without keys */
    char *name;              /* "" where it has none */
    char *metadata;          /* a JSON object */
    int64_t created, active; /* seconds since 1970; `active`: used, to the hour */
    int days;                /* without use after which it expires; 0: never */
};

/* A file that was to be added to a store. */
struct file_entry {
    char *document;       /* its id, as its owner says it */
    int state;            /* enum file_state */
    char *code, *message; /* of FILE_FAILED; else "" */
    bool gone;            /* it was taken out of the store since */
};

struct batch_record {
    char *id, *owner, *store;
    int64_t created;
    uint64_t server; /* that adds the files which are in progress (registry.h) */
    bool hidden;     /* no client knows its id: files that were added one by one */
    bool cancelled;
    struct json_list files; /* struct file_entry */
};

struct records {
    bool owned;                       /* keys have uploaded files: no key sees another's */
    bool expires;                     /* some file has a time at which it is deleted */
    struct json_list stores, batches; /* struct store_record, struct batch_record; oldest first */
};

/* `name` is what errors call the text. On failure too it is to be freed. */
enum status records_parse(struct records *out, struct text_span text, const char *name,
                          struct error *e);
void records_write(const struct records *records, struct buffer *out);
void records_free(struct records *records);

struct store_record store_record_copy(const struct store_record *store);
void store_record_free(struct store_record *store); /* of a zeroed one: nothing */

/* A zeroed item at the end of a list. */
void *list_add(struct json_list *list, size_t item_size);
void records_drop_store(struct records *records, size_t i);
void records_drop_batch(struct records *records, size_t i);
