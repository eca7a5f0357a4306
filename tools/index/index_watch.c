/* tools/index/index_watch.c: retro-index watch: a collection follows folders. inotify says that
 * something has changed, and nothing more is believed of it: the folders are walked again, and
 * files whose size, time or inode differ are read again. So names that changed, events that were
 * lost and files that were written while they were read come right. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "retrieval/kept/scan_record.h"
#include "tools/index/index_adder.h"
#include "tools/index/index_roots.h"

/* After the last event it is quiet for so long before files are read, and at most so long after the
 * first. A round that failed, as beside another program's compaction, is tried again. */
enum { QUIET_MILLISECONDS = 300, PATIENCE_MILLISECONDS = 3000, AGAIN_MILLISECONDS = 2000 };

struct folder_watch {
    struct adder adder;
    int inotify;
    int lock; /* says that the folders are followed; -1: none */
    struct given_roots given;
    struct key_set signatures; /* of a source that is there: its file as it was read last */
    bool warned;               /* that there are too many folders */
};

/* inotify. */

/* The folder and those below it; links are followed as the walk does, which sees them again. */
static void watch_folders(struct folder_watch *watch, const char *path, int depth);

static void watch_entry(struct folder_watch *watch, const char *folder, const char *name,
                        int depth) {
    struct buffer path = {0};
    struct stat st;
    if (name[0] == '.') return;
    buffer_printf(&path, "%s/%s", folder, name);
    if (lstat(path.data, &st) == 0 && S_ISDIR(st.st_mode))
        watch_folders(watch, path.data, depth + 1);
    buffer_free(&path);
}

static void watch_folders(struct folder_watch *watch, const char *path, int depth) {
    enum { MAX_DEPTH = 200 };
    const uint32_t events = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_CLOSE_WRITE |
                            IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF;
    if (inotify_add_watch(watch->inotify, path, events) < 0 && !watch->warned && errno == ENOSPC) {
        line_print(stderr, "not all folders can be watched: raise fs.inotify.max_user_watches");
        watch->warned = true;
    }
    DIR *d = depth < MAX_DEPTH ? opendir(path) : NULL;
    for (struct dirent *entry; d && (entry = readdir(d)) != NULL;)
        watch_entry(watch, path, entry->d_name, depth);
    if (d) closedir(d);
}

/* A file that is given is watched by its folder: editors put a new one in its place. */
static void watch_root(struct folder_watch *watch, const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return;
    if (S_ISDIR(st.st_mode)) {
        watch_folders(watch, path, 0);
        return;
    }
    char *real = realpath(path, NULL);
    char *slash = real ? strrchr(real, '/') : NULL;
    if (slash) slash[1] = '\0';
    if (slash)
        inotify_add_watch(watch->inotify, real,
                          IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_CLOSE_WRITE);
    free(real);
}

/* Whether something has happened; what it was does not matter. */
static bool take_events(struct folder_watch *watch, int milliseconds) {
    char events[1 << 16];
    struct pollfd fd = {.fd = watch->inotify, .events = POLLIN};
    if (poll(&fd, 1, milliseconds) <= 0) return false;
    return read(watch->inotify, events, sizeof events) > 0;
}

/* Returns when files have changed and it is quiet, when a path that was given leads to something
 * else, which nobody is told of, or after `limit` seconds; 0: whenever that may be. */
static void wait_for_events(struct folder_watch *watch, double limit) {
    enum { LOOK_MILLISECONDS = 250 };
    double begin = time_now();
    while (!index_interrupted && !take_events(watch, LOOK_MILLISECONDS))
        if (roots_differ(&watch->given) || (limit > 0 && time_now() - begin > limit)) return;
    double first = time_now();
    while (!index_interrupted && take_events(watch, QUIET_MILLISECONDS))
        if (time_now() - first > PATIENCE_MILLISECONDS / 1000.0) return;
}

/* Files. */

/* Differs when the file does, as far as the file system tells. */
static int64_t sign_file(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return 0;
    int64_t facts[] = {(int64_t)st.st_dev,          (int64_t)st.st_ino,
                       (int64_t)st.st_size,         (int64_t)st.st_mtim.tv_sec,
                       (int64_t)st.st_mtim.tv_nsec, (int64_t)st.st_ctim.tv_sec,
                       (int64_t)st.st_ctim.tv_nsec};
    return (int64_t)(hash_bytes(facts, sizeof facts, 0) >> 1) | 1;
}

/* A round: what the walk has found, and what was read of it. */
struct watch_round {
    struct folder_watch *watcher;
    struct walk before; /* the round before this one */
    struct gone_search gone;
    struct key_set tried;      /* sources that were read, or skipped, in this round */
    struct key_set signatures; /* of the sources of this round */
};

static void keep_signature(struct key_set *signatures, struct name_key path, int64_t signature) {
    bool added;
    *key_set_put(signatures, path.a, path.b, &added) = signature;
}

static enum status read_file(struct watch_round *watch_round, int number, struct error *e) {
    struct folder_watch *watch = watch_round->watcher;
    const struct found_file *file = &watch->adder.walk.files[number];
    struct name_key path = key_of(file->source);
    int64_t signature = sign_file(file->path),
            *known = key_set_number(&watch->signatures, path.a, path.b);
    bool read = false;
    gone_set_file(&watch_round->gone, file->source, GONE_FILE_THERE);
    if (known && *known == signature) {
        keep_signature(&watch_round->signatures, path, signature);
        return STATUS_OK;
    }
    key_set_add(&watch_round->tried, path.a, path.b);
    enum status status = adder_put_file(&watch->adder, number, &read, e);
    if (status) return status;
    if (read) gone_set_file(&watch_round->gone, file->source, GONE_FILE_READ);
    keep_signature(&watch->signatures, path, signature);
    keep_signature(&watch_round->signatures, path, signature);
    return STATUS_OK;
}

/* Files that are gone are forgotten: one that comes back as it was, as behind a folder that is
 * moved away and back, is read again. */
static void forget_gone(struct watch_round *watch_round) {
    struct key_set *signatures = &watch_round->watcher->signatures;
    key_set_free(signatures);
    *signatures = watch_round->signatures;
    watch_round->signatures = (struct key_set){0};
}

/* Rounds. */

static void begin_round(struct watch_round *watch_round) {
    struct folder_watch *watch = watch_round->watcher;
    /* First, so that no change between here and the walk is missed. */
    roots_look(&watch->given);
    for (int i = 0; i < watch->given.n; i++) watch_root(watch, watch->given.paths[i]);
    roots_tell_missing(&watch->given);
    watch->adder.seen = &watch_round->gone.ids;
}

/* A file that was skipped stays so until it is another, or is gone. `whole`: all files were seen.
 */
static void carry_skipped(struct watch_round *watch_round, bool whole) {
    struct walk *walk = &watch_round->watcher->adder.walk;
    for (int i = 0; i < watch_round->before.n_skipped; i++) {
        const struct skipped_file *skipped = &watch_round->before.skipped[i];
        struct name_key path = key_of(skipped->source ? skipped->source : "");
        bool there = !whole || key_set_number(&watch_round->gone.files, path.a, path.b) != NULL;
        if (skipped->source && there && !key_set_number(&watch_round->tried, path.a, path.b))
            walk_carry_skipped(walk, skipped);
    }
}

static void end_round(struct watch_round *watch_round) {
    gone_free(&watch_round->gone);
    key_set_free(&watch_round->tried);
    key_set_free(&watch_round->signatures);
    walk_free(&watch_round->before);
}

static enum status carry_out_round(struct watch_round *watch_round, struct error *e) {
    struct adder *adder = &watch_round->watcher->adder;
    struct given_roots *given = &watch_round->watcher->given;
    struct walk *walk = &adder->walk;
    enum status status = walk_paths(walk, given->paths, given->n, adder->arguments->build.base, e);
    if (status == STATUS_OK) roots_note_found(given, walk);
    if (status == STATUS_OK) roots_spare_bare(given, walk);
    if (status == STATUS_OK) status = adder_plan(adder, e);
    for (int i = 0; i < walk->n && status == STATUS_OK; i++) status = read_file(watch_round, i, e);
    if (status == STATUS_OK) forget_gone(watch_round);
    /* A folder that could not be read hides files that are there. */
    if (status == STATUS_OK && !walk->incomplete) status = gone_delete(&watch_round->gone, e);
    return status;
}

static enum status run_round(struct folder_watch *watch, struct error *e) {
    const struct index_arguments *arguments = watch->adder.arguments;
    struct watch_round watch_round = {.watcher = watch,
                                      .before = watch->adder.walk,
                                      .gone = {.adder = &watch->adder, .whole = true}};
    struct walk fresh = {.verbose = arguments->build.verbose,
                         .follow = watch->adder.walk.follow,
                         .pictures = watch->adder.walk.pictures,
                         .ocr = watch->adder.walk.ocr,
                         .quiet = watch->adder.walk.quiet};
    watch->adder.walk = fresh;
    begin_round(&watch_round);
    enum status status = carry_out_round(&watch_round, e);
    carry_skipped(&watch_round, status == STATUS_OK);
    if (status == STATUS_OK) walk_record(&watch->adder.walk, arguments->rest[0], &watch->given);
    index_sweep_files(watch->adder.collection, arguments->rest[0]);
    known_texts_free(&watch->adder.texts);
    end_round(&watch_round);
    return status;
}

static void compact_if_due(struct folder_watch *watch) {
    struct collection_changes changes;
    int64_t after = watch->adder.arguments->config.retrieval.compact_after;
    struct error e;
    if (collection_count_changes(watch->adder.collection, &changes, &e)) return;
    if (after <= 0 || changes.n_chunks + changes.n_deleted_chunks < after) return;
    enum status status = collection_compact(watch->adder.collection, &index_interrupted, &e);
    if (status && status != STATUS_CANCELLED) line_print(stderr, "not compacted: %s", e.text);
}

/* Brings the collection up to date, and ends. */
static enum status follow_once(struct folder_watch *watch, struct error *e) {
    enum status status = run_round(watch, e);
    if (status == STATUS_OK) compact_if_due(watch);
    return status;
}

/* A server that shows the folders says that they are followed. */
static void tell_followed(struct folder_watch *watch) {
    const struct index_arguments *arguments = watch->adder.arguments;
    struct error e;
    if (scan_follow(arguments->rest[0], watch->given.paths, watch->given.n, &watch->lock, &e))
        line_print(stderr, "servers are not told that the folders are watched: %s", e.text);
}

/* Until a signal comes. */
static void follow(struct folder_watch *watch) {
    struct error e;
    char last[sizeof e.text] = "";
    tell_followed(watch);
    while (!index_interrupted) {
        enum status status = run_round(watch, &e);
        bool failed = status != STATUS_OK && status != STATUS_CANCELLED;
        if (failed && strcmp(last, e.text) != 0) line_print(stderr, "%s; trying again", e.text);
        snprintf(last, sizeof last, "%s", failed ? e.text : "");
        if (!failed) compact_if_due(watch);
        if (!failed && !watch->adder.walk.quiet && !index_interrupted) {
            line_print(stderr, "watching; Ctrl-C ends it");
            watch->adder.walk.quiet = true;
        }
        wait_for_events(watch, failed ? AGAIN_MILLISECONDS / 1000.0 : 0);
    }
}

int run_watch(struct index_arguments *arguments, struct error *e) {
    struct folder_watch watch = {.adder = {.arguments = arguments}, .lock = -1};
    if (arguments->n_rest < 2) {
        error_set(e, STATUS_INVALID, "watch needs DIR and at least one PATH; --help says more");
        return EXIT_FAILED;
    }
    watch.adder.walk.follow = arguments->build.follow;
    watch.adder.walk.pictures = arguments->build.pictures;
    watch.adder.walk.ocr = !arguments->build.ocr.off;
    roots_open(&watch.given, arguments->rest[0], arguments->rest + 1, arguments->n_rest - 1);
    index_catch_interrupts();
    watch.inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    enum status status =
        watch.inotify < 0 ? error_errno(e, "inotify") : adder_open(&watch.adder, e);
    if (status == STATUS_OK && arguments->watch_once)
        status = follow_once(&watch, e);
    else if (status == STATUS_OK)
        follow(&watch);
    if (status == STATUS_OK && !arguments->watch_once)
        fprintf(stderr, "ended; what was printed is kept\n");
    bool skipped = arguments->watch_once && watch.adder.walk.n_skipped > 0;
    if (watch.inotify >= 0) close(watch.inotify);
    if (watch.lock >= 0) close(watch.lock);
    adder_close(&watch.adder);
    key_set_free(&watch.signatures);
    roots_free(&watch.given);
    if (status) return status == STATUS_CANCELLED ? EXIT_INTERRUPTED : EXIT_FAILED;
    return skipped ? EXIT_SKIPPED : EXIT_FINE;
}
