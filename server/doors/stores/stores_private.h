/* server/doors/stores/stores_private.h: what the files of this folder share. */
#pragma once

#include "server/api/core/shared_answer.h"
#include "server/doors/stores/file_facts.h"
#include "server/doors/stores/registry.h"
#include "server/doors/stores/stores.h"

enum {
    FILE_ID_BYTES = 1200,
    PAGE_FILES = 100,   /* of a list of a store's files at most */
    BATCH_FILES = 500,  /* of a batch at most */
    KEPT_BATCHES = 200, /* of a key; the oldest go */
    DAY_SECONDS = 86400
};

struct member_job;

struct stores {
    struct api *api;
    struct registry *registry; /* NULL: no collection in a folder */
    int max_stores;
    pthread_mutex_t lock;    /* guards the jobs, and what they say of themselves */
    struct member_job *jobs; /* that add files, the latest first */
    double sweeps;           /* when expired files are looked for next; the keeping thread's */
};

/* The owner of what a client makes: "" where the server has no keys. */
const char *stores_owner(const struct principal *who);
/* A random id with a prefix. */
void make_store_id(const char *prefix, char id[STORE_ID_BYTES]);

/* Whether the client may change files and stores here, and there is a place to keep them. */
const struct served_model *stores_model(struct api *api, const struct principal *who,
                                        struct failure *failure);

void file_append_id(struct buffer *out, const char *document);
/* The document of the file that a segment of the path names; the caller frees it. NULL with
 * *failure set: it is no id. */
char *file_of_path(const struct api_request *request, int segment, struct failure *failure);
struct json *json_duplicate(const struct json *value); /* of an absent one: NULL */

/* Store. */
bool store_is_expired(const struct store_record *store, int64_t now);
const struct store_record *store_of(const struct records *records, const char *owner,
                                    const char *id);
/* Whether the store of the path is the client's and did not expire; its id is copied. With
 * `changes` the collection's own is refused. */
bool store_of_path(struct api *api, const struct api_request *request, bool changes,
                   char id[STORE_ID_BYTES], struct failure *failure);
bool store_is_missing(const char *id, const char *field, struct failure *failure);
/* The store was used. */
void store_touch(struct stores *stores, const struct principal *who, const char *id);
struct store_record *store_find(struct records *records, const char *owner, const char *id);
/* Says that the collection, as a store, cannot be changed. Returns false. */
bool refuse_collection(struct failure *failure);
/* Settings of a store that a request gives; NULL: it gives none. */
struct store_settings {
    const struct json *name, *metadata;
    int days;   /* 0: nothing */
    bool lasts; /* it shall not expire any more */
};
bool store_settings_read(struct store_settings *out, const struct json *name,
                         const struct json *metadata, const struct json *expires_after,
                         struct failure *failure);
void store_settings_set(const struct store_settings *settings, struct store_record *store);
/* The chunking that all files have. */
void put_key_chunking(struct json_writer *w, const struct served_model *model);
bool chunking_check(const struct json *chunking, const struct served_model *model,
                    struct failure *failure);
/* An object of attributes within OpenAI's limits; absent ones are none. */
bool attributes_check(const struct json *attributes, const char *field, bool texts_only,
                      struct failure *failure);

/* members.c: the files of stores, and those that were to become such. */
struct store_member {
    int store; /* its number among those that were asked for */
    char *document;
    enum file_state state;
    char *code, *message; /* of FILE_FAILED; else NULL */
    int64_t created, bytes;
};
struct store_members {
    struct store_member *list; /* [n] */
    int n, capacity;
};
struct store_ids {
    const char (*ids)[STORE_ID_BYTES]; /* [n] */
    int n;
};
enum status members_collect(struct api *api, const struct principal *who,
                            const struct store_ids *stores, struct store_members *out,
                            struct error *e);
/* One of a store. STATUS_NOT_FOUND: it is none. The caller frees *out. */
enum status member_find(struct api *api, const struct principal *who, const char *store,
                        const char *document, struct store_member *out, struct error *e);
void member_free(struct store_member *member);
/* Adds one, which is taken; code and message are copied where it failed. */
void member_copy(struct store_members *members, const struct store_member *member, const char *code,
                 const char *message);
void members_free(struct store_members *members);

/* membership.c: files into stores and out of them, by the document thread. */
enum member_change { MEMBER_ADD, MEMBER_MODIFY, MEMBER_REMOVE };
struct member_file {
    char *document;
    struct json *attributes; /* an object, owned; NULL: none */
    enum file_state state;
    const char *code; /* of FILE_FAILED, constant strings */
    struct error error;
    /* Of the document thread. */
    struct collection_found found;
    struct buffer metadata;
};
struct member_job {
    struct shared_answer base; /* first: of who waits for it, if anybody does */
    struct document_job job;
    struct stores *stores;
    const struct served_model *model;
    struct principal who; /* held */
    enum member_change change;
    char store[STORE_ID_BYTES], batch[STORE_ID_BYTES];
    int64_t created;
    bool hidden;               /* as of struct batch_record */
    atomic_bool cancelled;     /* files that were not added yet shall not be */
    struct member_file *files; /* [n] */
    int n;
    struct member_job *next;
    /* Writes the answer of who waits, once it is done; NULL: nobody does. */
    void (*write)(const struct member_job *job, struct json_writer *w);
};
struct member_job *member_job_make(struct api *api, const struct api_request *request,
                                   enum member_change change, const char *store);
/* Takes the document and the attributes, which are copied; NULL: none. */
void member_job_add(struct member_job *job, char *document, const struct json *attributes);
/* Asks the document thread. With a `write` the answer is the job's own; without, it is `now`, which
 * is called once the job is asked for. Takes the job. */
struct answer *member_job_ask(struct member_job *job, struct waker waker,
                              void (*now)(const struct member_job *job, struct json_writer *w),
                              struct failure *failure);
/* A job by its batch or, with NULL, the next behind `job`. While stores->lock is held. */
struct member_job *member_job_find(struct stores *stores, const char *batch);

/* files.c: handlers, for the files of the collection; the last for those of any store. */
route_handler collection_files, collection_file, document_content;

/* store_files.c */
void put_store_file(struct json_writer *w, struct api *api, const struct principal *who,
                    const char *store, const struct store_member *member);
/* Adds the files of a request: ids, absent ones are none, each with these attributes; and a list of
 * objects. Each is an uploaded file of the client's. */
bool member_job_read(struct member_job *job, const struct json *ids, const struct json *attributes,
                     struct failure *failure);
bool member_job_read_files(struct member_job *job, const struct json *files,
                           struct failure *failure);
/* Members as a list, by the request's query; takes them. */
struct answer *members_answer(struct api *api, const struct api_request *request, const char *store,
                              struct store_members *members, struct failure *failure);

/* page.c: the page of a list that a query asks for: items [from, end) of those that are shown. */
struct page_slice {
    int from, end;
    bool more; /* on the side to which the query goes on */
};
/* `ids` [n] in the order that is shown. False, with *failure set: `after` or `before` is none of
 * them. */
bool page_cut(struct page_slice *out, const char *const *ids, int n,
              const struct stores_query *query, struct failure *failure);
/* Reads the query of a list by its table. The caller frees the texts of *out in any case. */
bool page_read(struct stores_query *out, const struct json_table *table, struct api *api,
               const struct api_request *request, struct failure *failure);
/* Ends a list whose "data" is open. */
void put_page_end(struct json_writer *w, const char *first, const char *last, bool more);
