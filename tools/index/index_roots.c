/* tools/index/index_roots.c: see index_roots.h. */
#include "tools/index/index_roots.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/base/line.h"
#include "retrieval/kept/scan_record.h"

void roots_open(struct given_roots *out, const char *collection, char *const *paths, int n) {
    int64_t *systems = xcalloc((size_t)n + 1, sizeof *systems);
    *out = (struct given_roots){paths, n, xcalloc((size_t)n + 1, sizeof *out->roots)};
    scan_read_systems(collection, paths, n, systems);
    for (int i = 0; i < n; i++) out->roots[i].system = systems[i];
    free(systems);
}

void roots_free(struct given_roots *given) {
    free(given->roots);
    *given = (struct given_roots){0};
}

/* Looking. */

static struct given_root look(const char *path) {
    struct given_root root = {0};
    struct stat st;
    if (stat(path, &st) != 0) return root;
    root.device = (int64_t)st.st_dev;
    root.number = (int64_t)st.st_ino;
    return root;
}

static bool is_there(const struct given_root *root) { return root->number != 0; }

void roots_look(struct given_roots *given) {
    for (int i = 0; i < given->n; i++) {
        struct given_root now = look(given->paths[i]);
        given->roots[i].device = now.device;
        given->roots[i].number = now.number;
    }
}

void roots_tell_missing(struct given_roots *given) {
    for (int i = 0; i < given->n; i++) {
        struct given_root *root = &given->roots[i];
        if (!is_there(root) && !root->told)
            line_print(stderr, "%s is not there; its documents stay until it comes back",
                       given->paths[i]);
        root->told = !is_there(root);
    }
}

bool roots_differ(const struct given_roots *given) {
    for (int i = 0; i < given->n; i++) {
        struct given_root now = look(given->paths[i]);
        if (now.device != given->roots[i].device || now.number != given->roots[i].number)
            return true;
    }
    return false;
}

/* Noting. */

/* Whether a path without links is the root, or lies below it. */
static bool lies_below(const char *path, const char *root) {
    size_t size = strlen(root);
    if (strncmp(path, root, size) != 0) return false;
    return size == 1 || path[size] == '/' || path[size] == '\0'; /* of size 1: "/" */
}

static bool has_files(const struct walk *walk, const char *root) {
    for (int i = 0; i < walk->n; i++)
        if (lies_below(walk->files[i].source, root)) return true;
    return false;
}

static void take_out(struct walk *walk, const char *root) {
    int n = 0;
    for (int i = 0; i < walk->n_roots; i++) {
        if (lies_below(walk->roots[i], root)) {
            free(walk->roots[i]);
            continue;
        }
        walk->roots[n] = walk->roots[i];
        n++;
    }
    walk->n_roots = n;
}

void roots_note_found(struct given_roots *given, const struct walk *walk) {
    for (int i = 0; i < given->n; i++) {
        struct given_root *root = &given->roots[i];
        char *real = is_there(root) ? realpath(given->paths[i], NULL) : NULL;
        root->empty = real && !has_files(walk, real);
        if (real && !root->empty) root->system = root->device;
        free(real);
    }
}

/* Whether its files may be on a file system that is not mounted. */
static bool is_bare(const struct given_root *root) {
    return root->empty && root->system != 0 && root->system != root->device;
}

void roots_spare_bare(struct given_roots *given, struct walk *walk) {
    for (int i = 0; i < given->n; i++) {
        struct given_root *root = &given->roots[i];
        bool bare = is_bare(root);
        char *real = bare ? realpath(given->paths[i], NULL) : NULL;
        if (real) take_out(walk, real);
        if (bare && !root->told_bare)
            line_print(stderr,
                       "%s is empty, and on another file system than its documents were read from; "
                       "they stay until that is mounted, or until retro-index delete takes them "
                       "away",
                       given->paths[i]);
        root->told_bare = bare;
        free(real);
    }
}
