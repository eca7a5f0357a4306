/* kernels/comm/comm_watch.c: see comm_watch.h.
 *
 * A message is two bytes, its kind and for whom its sender waits; behind a failure follows its
 * text, in TEXT bytes. */
#include "kernels/comm/comm_watch.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEAD = 2, TEXT = sizeof((struct error *)0)->text, BEATS = 8 };
enum { BEAT = 'b', FAILURE = 'f', GOODBYE = 'g' };

/* Seconds. A longer pause between two looks than LONGEST_LOOK was this process's own. */
static const double LEAST_SILENCE = 3, LONGEST_LOOK = 1;

struct watched_peer {
    int fd;       /* -1: this rank, or one that is gone */
    bool left;    /* it said goodbye */
    double heard; /* on the watch's clock */
    int waits_for;
    size_t size; /* of what has come of a message */
    char message[HEAD + TEXT];
};

struct rank_watch {
    struct watched_ranks ranks;
    double silence; /* seconds after which a rank is lost */
    double clock;   /* seconds, without those in which this process was stopped */
    double last, beat;
    int bell;  /* rung when the thread has something to do */
    bool told; /* the others know of the failure */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct error failure; /* under the lock, with what follows */
    bool closing;
    struct watched_peer peers[COMM_MAX_RANKS];
    atomic_bool failed;
    atomic_int waits_for;
};

/* Under the lock. The first failure stays. */
static void failure_set(struct rank_watch *watch, const char *text) {
    if (watch->failure.status) return;
    error_set(&watch->failure, STATUS_DEVICE, "%s", text);
    atomic_store(&watch->failed, true);
    pthread_cond_broadcast(&watch->changed);
}

static void peer_lose(struct rank_watch *watch, int r, const char *why) {
    char text[TEXT];
    struct watched_peer *peer = &watch->peers[r];
    snprintf(text, sizeof text, "%s lost %s, which has ended or cannot be reached: %s",
             watch->ranks.names[watch->ranks.rank], watch->ranks.names[r], why);
    if (!peer->left) failure_set(watch, text);
    close(peer->fd);
    peer->fd = -1;
}

static void message_take(struct rank_watch *watch, struct watched_peer *peer) {
    peer->heard = watch->clock;
    peer->size = 0;
    peer->waits_for = (unsigned char)peer->message[1];
    if (peer->message[0] == GOODBYE) peer->left = true;
    if (peer->message[0] != FAILURE) return;
    peer->message[HEAD + TEXT - 1] = '\0';
    failure_set(watch, peer->message + HEAD);
}

/* Reads what has come of one message. */
static bool peer_read(struct rank_watch *watch, int r) {
    struct watched_peer *peer = &watch->peers[r];
    size_t most = peer->size < HEAD || peer->message[0] != FAILURE ? HEAD : HEAD + TEXT;
    ssize_t n = recv(peer->fd, peer->message + peer->size, most - peer->size, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0) {
        peer_lose(watch, r, n < 0 ? strerror(errno) : "its connection is closed");
        return false;
    }
    peer->size += (size_t)n;
    if (peer->size == HEAD + TEXT || (peer->size == HEAD && peer->message[0] != FAILURE))
        message_take(watch, peer);
    return true;
}

static void peer_send(struct rank_watch *watch, int r, char kind) {
    char message[HEAD + TEXT] = {kind, (char)atomic_load(&watch->waits_for)};
    size_t bytes = kind == FAILURE ? sizeof message : HEAD;
    if (kind == FAILURE) snprintf(message + HEAD, TEXT, "%s", watch->failure.text);
    if (watch->peers[r].fd >= 0)
        send(watch->peers[r].fd, message, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void peers_tell(struct rank_watch *watch, char kind) {
    for (int r = 0; r < watch->ranks.size; r++) peer_send(watch, r, kind);
}

/* A network that has gone silences several at once: all of them are named. */
static void silence_notice(struct rank_watch *watch) {
    char text[TEXT];
    int n = 0;
    bool lost = false;
    for (int r = 0; r < watch->ranks.size; r++)
        lost = lost ||
               (watch->peers[r].fd >= 0 && watch->clock - watch->peers[r].heard > watch->silence);
    if (!lost) return;
    n = snprintf(text, sizeof text, "%s heard nothing for %.3g s from",
                 watch->ranks.names[watch->ranks.rank], watch->silence);
    for (int r = 0; r < watch->ranks.size && n < (int)sizeof text - RANK_NAME; r++) {
        if (watch->peers[r].fd < 0 || watch->clock - watch->peers[r].heard <= watch->silence / 2)
            continue;
        n += snprintf(text + n, sizeof text - (size_t)n, " %s,", watch->ranks.names[r]);
    }
    snprintf(text + n, sizeof text - (size_t)n,
             " which hangs or cannot be reached (parallel.timeout %g s)", watch->ranks.timeout);
    failure_set(watch, text);
}

/* Until something comes, or it is time to say that this rank is there. A rest is shorter than
 * LONGEST_LOOK: all of it counts. */
static void watch_rest(struct rank_watch *watch) {
    double rest = fmin(watch->silence / BEATS, LONGEST_LOOK / 2);
    struct pollfd polled[COMM_MAX_RANKS + 1];
    uint64_t rung;
    for (int r = 0; r < watch->ranks.size; r++)
        polled[r] = (struct pollfd){.fd = watch->peers[r].fd, .events = POLLIN};
    polled[watch->ranks.size] = (struct pollfd){.fd = watch->bell, .events = POLLIN};
    pthread_mutex_unlock(&watch->lock);
    int ready = poll(polled, (nfds_t)watch->ranks.size + 1, (int)(1e3 * rest));
    pthread_mutex_lock(&watch->lock);
    double now = time_now();
    watch->clock += now - watch->last < LONGEST_LOOK ? now - watch->last : LONGEST_LOOK;
    watch->last = now;
    if (ready > 0 && polled[watch->ranks.size].revents && read(watch->bell, &rung, sizeof rung) < 0)
        return;
    for (int r = 0; r < watch->ranks.size && ready > 0; r++)
        while (watch->peers[r].fd >= 0 && polled[r].revents && peer_read(watch, r)) continue;
}

static bool peer_has_all(const struct watched_peer *peer) {
    int waiting = 0;
    struct pollfd polled = {.fd = peer->fd};
    return peer->fd < 0 || poll(&polled, 1, 0) != 0 || ioctl(peer->fd, TIOCOUTQ, &waiting) != 0 ||
           waiting == 0;
}

/* Waits until the last words have arrived: what an ended process left to send is thrown away as
 * soon as the other side says something. */
static void peers_flush(const struct rank_watch *watch) {
    enum { LOOKS = 1000 };
    bool all = false;
    for (int i = 0; i < LOOKS && !all; i++) {
        all = true;
        for (int r = 0; r < watch->ranks.size; r++) all = all && peer_has_all(&watch->peers[r]);
        if (!all) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static void *watch_run(void *argument) {
    struct rank_watch *watch = argument;
    pthread_mutex_lock(&watch->lock);
    while (!watch->closing) {
        if (watch->clock >= watch->beat) {
            peers_tell(watch, BEAT);
            watch->beat = watch->clock + watch->silence / BEATS;
        }
        watch_rest(watch);
        silence_notice(watch);
        if (watch->failure.status && !watch->told) peers_tell(watch, FAILURE);
        watch->told = watch->failure.status != STATUS_OK;
    }
    if (!watch->told) peers_tell(watch, watch->failure.status ? FAILURE : GOODBYE);
    pthread_mutex_unlock(&watch->lock);
    peers_flush(watch);
    return NULL;
}

static void watch_free(struct rank_watch *watch) {
    for (int r = 0; r < watch->ranks.size; r++)
        if (watch->peers[r].fd >= 0) close(watch->peers[r].fd);
    if (watch->bell >= 0) close(watch->bell);
    pthread_cond_destroy(&watch->changed);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}

static void condition_open(pthread_cond_t *condition) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* Signals are for the threads that wait for them. */
static bool thread_start(struct rank_watch *watch) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&watch->thread, NULL, watch_run, watch) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

enum status watch_open(struct rank_watch **out, const struct watched_ranks *ranks,
                       struct error *e) {
    struct rank_watch *watch = xcalloc(1, sizeof *watch);
    watch->ranks = *ranks;
    watch->ranks.sockets = NULL; /* the peers have them */
    watch->silence = 0.75 * ranks->timeout > LEAST_SILENCE ? 0.75 * ranks->timeout : LEAST_SILENCE;
    watch->last = time_now();
    watch->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    atomic_init(&watch->waits_for, WATCH_NOBODY);
    for (int r = 0; r < ranks->size; r++)
        watch->peers[r] = (struct watched_peer){.fd = ranks->sockets[r], .waits_for = WATCH_NOBODY};
    pthread_mutex_init(&watch->lock, NULL);
    condition_open(&watch->changed);
    if (watch->bell < 0 || !thread_start(watch)) {
        watch_free(watch);
        return error_set(e, STATUS_NO_MEMORY,
                         "the thread that watches other ranks could not be started");
    }
    *out = watch;
    return STATUS_OK;
}

bool watch_failed(const struct rank_watch *watch) {
    return atomic_load_explicit(&watch->failed, memory_order_acquire);
}

enum status watch_outcome(struct rank_watch *watch, double seconds, struct error *e) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    pthread_mutex_lock(&watch->lock);
    while (watch->failure.status == STATUS_OK && seconds > 0)
        if (pthread_cond_timedwait(&watch->changed, &watch->lock, &until)) break;
    enum status status = watch->failure.status;
    if (status) *e = watch->failure;
    pthread_mutex_unlock(&watch->lock);
    return status;
}

static void bell_ring(struct rank_watch *watch) {
    uint64_t one = 1;
    CHECK(write(watch->bell, &one, sizeof one) == sizeof one || errno == EAGAIN);
}

enum status watch_check(struct rank_watch *watch, struct error *e) {
    char text[TEXT];
    if (watch_outcome(watch, 0, e)) return e->status;
    pthread_mutex_lock(&watch->lock);
    for (int r = 0; r < watch->ranks.size; r++) {
        if (!watch->peers[r].left) continue;
        snprintf(text, sizeof text, "%s lost %s, which has ended",
                 watch->ranks.names[watch->ranks.rank], watch->ranks.names[r]);
        failure_set(watch, text);
    }
    enum status status = watch->failure.status;
    if (status) *e = watch->failure;
    pthread_mutex_unlock(&watch->lock);
    if (status) bell_ring(watch);
    return status;
}

void watch_fail(struct rank_watch *watch, struct error *why) {
    pthread_mutex_lock(&watch->lock);
    failure_set(watch, why->text);
    *why = watch->failure;
    pthread_mutex_unlock(&watch->lock);
    bell_ring(watch);
}

void watch_wait(struct rank_watch *watch, int whom) {
    atomic_store_explicit(&watch->waits_for, whom, memory_order_relaxed);
}

int watch_culprit(struct rank_watch *watch, int whom) {
    pthread_mutex_lock(&watch->lock);
    for (int i = 0; i < watch->ranks.size; i++) {
        int next = watch->peers[whom].waits_for;
        if (next < 0 || next >= watch->ranks.size || next == watch->ranks.rank) break;
        whom = next;
    }
    pthread_mutex_unlock(&watch->lock);
    return whom;
}

/* The thread says what there is to say before it ends. */
void watch_close(struct rank_watch *watch) {
    if (watch == NULL) return;
    pthread_mutex_lock(&watch->lock);
    watch->closing = true;
    pthread_mutex_unlock(&watch->lock);
    bell_ring(watch);
    pthread_join(watch->thread, NULL);
    watch_free(watch);
}
