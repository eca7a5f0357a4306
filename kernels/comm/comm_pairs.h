/* kernels/comm/comm_pairs.h: communicators whose ranks are processes. A transport (MPI, sockets)
 * moves bytes between two of them; sums, gathers, messages and time limits are made of that in one
 * place, so every transport gives the same bits.
 */
#pragma once

#include "kernels/comm/comm.h"
#include "kernels/comm/comm_watch.h"

/* The way to all ranks of the world. A transport's own struct begins with this one. */
struct transport {
    const struct transport_ops *ops;
    int rank, size;
    char machine[256]; /* ranks that call it the same share its CPUs, and take its GPUs in turn */
    /* Of the ranks, for errors: "rank 1 on b". */
    char names[COMM_MAX_RANKS][RANK_NAME];
    bool unnamed; /* the transport leaves the names to comm_open_pairs */
    struct error
        failure; /* STATUS_OK, until something fails: nothing is sent or received after that */
    int users;   /* communicators */
};

struct transport_ops {
    const char *name;
    /* Post bytes to or from another rank; `data` stays as it is until look returns true. Bytes from
     * one rank to another arrive in order. At most TRANSPORT_POSTS each way are posted at a time.
     */
    void (*send)(struct transport *transport, int to, const void *data, size_t bytes);
    void (*receive)(struct transport *transport, int from, void *data, size_t bytes);
    /* Moves as many bytes as go without waiting; true when every post is done. */
    bool (*look)(struct transport *transport);
    /* Waits a while for something to move. */
    void (*sleep)(struct transport *transport);
    /* A rank with a post that is not done, the one that all wait for in the end; -1 when there is
     * none. */
    int (*waits_for)(struct transport *transport);
    /* transport->failure is set: tells the other ranks, and puts an earlier reason in its place
     * where they told one. */
    void (*failed)(struct transport *transport);
    /* STATUS_DEVICE when a rank is known to be gone. Any thread may ask, at any time. */
    enum status (*check)(const struct transport *transport, struct error *e);
    void (*close)(struct transport *transport);
};

enum { TRANSPORT_POSTS = 2 };

/* `machine` may be empty. */
void transport_name(struct transport *transport, int rank, const char *machine);

/* The first failure stays; the text is preceded by the name of this rank. */
void transport_fail(struct transport *transport, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* This rank's communicator, over a transport whose size is o's. Takes the transport over, also when
 * it fails: when a rank was started with other options, for one. */
enum status comm_open_pairs(struct comm **out, struct transport *transport,
                            const struct comm_options *options, struct error *e);
