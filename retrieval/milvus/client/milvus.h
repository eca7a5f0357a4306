/* retrieval/milvus/client/milvus.h: calls of a Milvus server that may be slow, gone or wrong:
 * within a time limit, again after a while, and not at all for some time where it has failed
 * several times in a row (a circuit breaker). All calls that are made here may be carried out twice
 * without harm. */
#pragma once

#include "retrieval/milvus/client/link.h"

struct milvus;

/* How much a server's consistency costs and what a reader may see (docs/milvus.md). */
enum milvus_consistency {
    MILVUS_STRONG,     /* all that was acknowledged anywhere */
    MILVUS_SESSION,    /* all that this program has changed, and of others what has arrived */
    MILVUS_BOUNDED,    /* what was acknowledged some seconds ago */
    MILVUS_EVENTUALLY, /* what has arrived */
};

struct milvus_settings {
    const char *token;     /* of link_options */
    const char *authority; /* of link_options */
    double seconds;        /* of an operation, all its attempts together */
    int attempts;          /* 1: it is tried once */
    enum milvus_consistency consistency;
};
/* The token of the environment (RETRO_MILVUS_TOKEN), else of the file, else "". `path` may be "".
 * The caller frees it.
 */
enum status milvus_token_read(char **out, const char *path, struct error *e);

/* `server` is that of struct milvus_address; all strings are copied. Nothing is connected to. */
enum status milvus_open(struct milvus **out, const char *server,
                        const struct milvus_settings *settings, struct error *e);
void milvus_close(struct milvus *milvus); /* NULL: nothing */

/* One operation of up to `attempts` calls; *reply gets the answer. Any thread. STATUS_BUSY: the
 * server is not there, says that it failed, or the breaker is open. STATUS_NOT_FOUND: it has no
 * such collection. */
struct milvus_call {
    const char *method;
    struct text_span message;
    bool answers_status;          /* the answer is a status itself; else its first field is one */
    const atomic_bool *cancelled; /* NULL: never */
    double seconds;               /* 0: as the settings say */
};
enum status milvus_call(struct milvus *milvus, const struct milvus_call *call, struct buffer *reply,
                        struct error *e);

/* For metrics and for errors: whether calls are refused at the moment, and how many failed in all.
 */
struct milvus_health {
    bool open; /* the breaker is */
    int64_t calls, failures, retries, refused;
};
struct milvus_health milvus_health(struct milvus *milvus);
const struct milvus_settings *milvus_settings_of(const struct milvus *milvus);
