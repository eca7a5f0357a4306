/* server/fetch/fetcher.h: a thread that fetches files from hosts that the operator has listed, for
 * requests that name them by URLs: all at the same time, so that a slow host keeps nobody waiting.
 *
 * http and https alone, at listed hosts and ports (server/access/hosts.h). The address that a
 * connection goes to is looked at as it is made, so no name leads to a private network, whatever it
 * led to a moment before. A redirection is followed where its URL is allowed as the first was.
 * Proxies of the environment are not used: they would look up names themselves. No cookies, no
 * passwords, nothing compressed. */
#pragma once

#include <stdatomic.h>

#include "config/base/buffer.h"
#include "server/access/hosts.h"

struct fetcher;
struct fetch_transfer;

/* Transfers that are under way together, at most, and redirections of one. */
enum { FETCHES_MOST = 512, FETCH_REDIRECTIONS = 3 };

/* One file. The asker's, who leaves it alone until done was called. */
struct fetch {
    const char *url;
    struct buffer bytes; /* owned by the asker: the file */
    atomic_size_t *left; /* bytes that may still come, of all files of a request; borrowed */
    const atomic_bool *unwanted;       /* true: nobody waits any more; borrowed */
    struct error error;                /* STATUS_OK: it is there */
    void (*done)(struct fetch *fetch); /* called once by the thread; must not block */
    void *context;
    struct fetch *next; /* the thread's; and so is the next */
    struct fetch_transfer *transfer;
};

struct fetcher_options {
    const struct host_rules *hosts; /* borrowed */
    double seconds;                 /* that a file may take, redirections included */
    const char *seconds_option;     /* in errors */
    const char *bytes_option;
};

/* Whether the text is a URL of http or https at a listed host. STATUS_INVALID says what it is
 * instead. */
enum status fetch_check(const struct host_rules *hosts, const char *url, struct error *e);

/* STATUS_UNSUPPORTED in a build without libcurl. */
enum status fetcher_open(struct fetcher **out, const struct fetcher_options *options,
                         struct error *e);
/* Ends the thread: what is under way ends with STATUS_CANCELLED, later ones are refused. */
void fetcher_stop(struct fetcher *fetcher); /* NULL: nothing */
void fetcher_close(struct fetcher *fetcher);
/* All n or none: STATUS_BUSY when they were too many together, or the thread was stopped; then done
 * is not called. */
enum status fetcher_ask(struct fetcher *fetcher, struct fetch *const *fetches, int n,
                        struct error *e);
