/* server/access/key.h: a key that a client has: what it is called, what it may do, and what it has
 * used of that.
 *
 * Only the SHA-256 of a key is known here. Everything but the usage is constant; a key is counted,
 * so that a request keeps its own while the file of keys is read again. */
#pragma once

#include <stdatomic.h>

#include "config/base/sha256.h"
#include "retrieval/filter/filter.h"

enum {
    KEY_HASH_BYTES = SHA256_BYTES,
    KEY_MIN_BYTES = 20,
    KEY_MAX_BYTES = 512,
    KEY_OWNER_BYTES = 33 /* 32 digits and a NUL */
};

/* The metadata that names the owner of a document: a key that uploaded it as a file. */
extern const char key_owner_name[];

/* 0: no limit. */
struct key_limits {
    int concurrent;          /* requests in work at a time */
    int requests_per_minute; /* as many at once, when none came for a while; likewise of tokens */
    int64_t tokens_per_minute, tokens_per_day;
    int64_t stored_bytes; /* texts, paths, titles and metadata of its documents
                             (server/documents/document_quota.h) */
};

/* In the order of enum documents_access. */
enum key_documents { KEY_DOCUMENTS_OFF, KEY_DOCUMENTS_READ, KEY_DOCUMENTS_WRITE };

struct key {
    char *name; /* for logs and metrics */
    uint8_t hash[KEY_HASH_BYTES];
    struct key_limits limits;
    bool operations;              /* may read what operators read */
    struct filter *filter;        /* the documents that there are for it; NULL: all */
    char owner[KEY_OWNER_BYTES];  /* what documents of its own say, made of its hash */
    struct filter *own_filter;    /* the same, but for those that other keys own */
    enum key_documents documents; /* what it may do with them, where the server lets it */
    struct key_usage *usage;
    atomic_int references;
};

/* Why a request has to wait. */
struct key_refusal {
    const char *what;  /* "requests at a time" */
    const char *field; /* of the file of keys */
    int64_t limit;
    int retry_after; /* seconds until the same request is let in, when nothing else comes */
};

/* The SHA-256 of a key. */
void key_hash(struct text_span secret, uint8_t hash[KEY_HASH_BYTES]);
/* In time that does not depend on the bytes. */
bool key_hash_is(const uint8_t a[KEY_HASH_BYTES], const uint8_t b[KEY_HASH_BYTES]);

/* Once documents have owners, keys see none that others own. It stays so until the process ends. */
void keys_part(void);
/* The documents that there are for a key at this time; borrowed. NULL: all. */
struct filter *key_filter(const struct key *key);
/* Makes what follows from the key's hash and filter, which are there. */
void key_finish(struct key *key);

/* Zeroed but for one reference and its usage. */
struct key *key_open(void);
/* The same budgets are used from here on. */
void key_share_usage(struct key *key, const struct key *before);
void key_hold(struct key *key);
void key_release(struct key *key); /* NULL: nothing */

/* Counts one request, until key_leave. False, with *refusal set and nothing counted, when a limit
 * is reached. */
bool key_enter(struct key *key, struct key_refusal *refusal);
void key_leave(struct key *key);
/* Tokens that were read and written. A request that was let in is finished, so the budget may be
 * overdrawn: then nothing is let in until it is made up for. */
void key_charge(struct key *key, int64_t tokens);

/* Bytes of documents that are stored. */
void key_note_stored(struct key *key, int64_t bytes);

struct key_counts {
    int64_t requests, refused, tokens;
    int64_t stored; /* bytes of documents, as the latest put left them, where they are limited */
    int concurrent;
};
struct key_counts key_counts(struct key *key);
