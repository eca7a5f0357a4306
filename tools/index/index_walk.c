/* tools/index/index_walk.c: which files to read. Nothing here opens a file: a FIFO or a device is seen by its type and
 * can hang nobody. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/base/hash.h"
#include "tools/index/index.h"
#include "tools/index/index_color.h"

enum { MAX_DEPTH = 200 };

/* The folders from a root down to where the walk is. */
struct trail {
    const char *root; /* without links and with one slash at its end; NULL: unknown, and no link leads below it */
    dev_t device[MAX_DEPTH];
    ino_t inode[MAX_DEPTH];
    int depth;
    struct key_set *seen;
};

static void skip(struct walk *w, const char *path, const char *why) {
    if (!w->quiet) color_line(stderr, COLOR_YELLOW, "skipped:", " %s: %s", path, why);
    w->n_skipped++;
}

static void skip_unknown(struct walk *w, const char *path) {
    struct buffer why = {0}, names = {0};
    document_list_kinds(&names);
    buffer_printf(&why, "not a known kind of document; %s are", names.data);
    if (document_kind(path) == DOCUMENT_PICTURE) buffer_append_string(&why, ", and with --pictures pictures");
    skip(w, path, why.data);
    buffer_free(&names);
    buffer_free(&why);
}

static bool is_known(const struct walk *w, const char *path) {
    enum document_kind kind = document_kind(path);
    return kind != DOCUMENT_UNKNOWN && (kind != DOCUMENT_PICTURE || w->pictures);
}

static void count_unknown(struct walk *w, const char *path) {
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    const char *extension = dot && strlen(dot) < sizeof w->unknown[0].extension ? dot : "";
    int last = (int)ARRAY_COUNT(w->unknown) - 1, i = 0;
    if (w->verbose) line_print(stderr, "not a known kind: %s", path);
    w->n_unknown_files++;
    while (i < w->n_unknown && strcmp(w->unknown[i].extension, extension) != 0) i++;
    if (i == w->n_unknown && i < last) {
        snprintf(w->unknown[i].extension, sizeof w->unknown[i].extension, "%s", extension);
        w->n_unknown++;
    } else if (i == w->n_unknown) {
        /* More kinds than rows: the last row stands for the rest. */
        i = last;
        snprintf(w->unknown[i].extension, sizeof w->unknown[i].extension, "others");
    }
    w->unknown[i].count++;
}

/* The first names are shown; people look for what they miss. */
static void count_dotted(struct walk *w, const char *path) {
    enum { SHOWN = 5 };
    const char *slash = strrchr(path, '/');
    if (w->verbose) line_print(stderr, "begins with a dot: %s", path);
    if (w->n_dotted < SHOWN) buffer_printf(&w->dotted, "%s%s", w->n_dotted ? ", " : "", slash ? slash + 1 : path);
    if (w->n_dotted == SHOWN) buffer_append_string(&w->dotted, ", ...");
    w->n_dotted++;
}

void walk_report(const struct walk *w) {
    for (int i = 0; i < (int)ARRAY_COUNT(w->unknown); i++)
        if (w->unknown[i].count > 0)
            line_print(stderr, "not read: %d file%s of kind \"%s\"", w->unknown[i].count,
                       w->unknown[i].count == 1 ? "" : "s",
                       w->unknown[i].extension[0] ? w->unknown[i].extension : "no extension");
    if (w->n_dotted > 0)
        line_print(stderr, "not read: %d name%s that begin%s with a dot: %s", w->n_dotted, w->n_dotted == 1 ? "" : "s",
                   w->n_dotted == 1 ? "s" : "", w->dotted.data);
}

/* Whether a path without links is that of the folder, whose name ends with a slash, or of what lies in it. */
static bool is_within(const char *path, const char *folder) {
    size_t size = strlen(folder);
    return strncmp(path, folder, size) == 0 || (strlen(path) + 1 == size && strncmp(path, folder, size - 1) == 0);
}

/* From the name of the folder that was given on, else of the folder that the file lies in. */
static const char *find_least(const char *source, const char *root) {
    const char *end = source + strlen(source);
    if (root && is_within(source, root) && strlen(source) >= strlen(root))
        end = source + strlen(root) - 1;
    else if (root == NULL || !is_within(source, root))
        end = strrchr(source, '/');
    while (end > source && end[-1] != '/') end--;
    return end;
}

/* Takes over the source. */
static void add_file(struct walk *w, const struct trail *t, const char *path, char *source, const struct stat *st) {
    w->files = xgrow(w->files, w->n, &w->capacity, sizeof *w->files);
    w->files[w->n] = (struct found_file){.path = xstrdup(path),
                                         .source = source,
                                         .identity = source + (w->base ? strlen(w->base) : 0),
                                         .least = find_least(source, t->root),
                                         .kind = is_known(w, source) ? document_kind(source) : document_kind(path),
                                         .size = (uint64_t)st->st_size};
    w->files[w->n].stored = w->files[w->n].least;
    w->n++;
}

static void add_root(struct walk *w, const char *source) {
    w->roots = xgrow(w->roots, w->n_roots, &w->root_capacity, sizeof *w->roots);
    w->roots[w->n_roots] = xstrdup(source);
    w->n_roots++;
}

static bool on_trail(const struct trail *t, const struct stat *st) {
    for (int i = 0; i < t->depth; i++)
        if (t->device[i] == st->st_dev && t->inode[i] == st->st_ino) return true;
    return false;
}

static char *join(const char *folder, const char *name) {
    struct buffer b = {0};
    size_t size = strlen(folder);
    buffer_printf(&b, "%s%s%s", folder, size > 0 && folder[size - 1] == '/' ? "" : "/", name);
    return b.data;
}

static int is_entry(const struct dirent *entry) {
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static enum status visit(struct walk *w, struct trail *t, const char *path, bool given, struct error *e);

static enum status visit_folder(struct walk *w, struct trail *t, const char *path, const struct stat *st,
                                struct error *e) {
    struct dirent **entries = NULL;
    if (t->depth == MAX_DEPTH) {
        skip(w, path, "folders nest too deep");
        return STATUS_OK;
    }
    int n = scandir(path, &entries, is_entry, by_name);
    if (n < 0) {
        w->incomplete = w->incomplete || errno != ENOENT;
        skip(w, path, strerror(errno));
        return STATUS_OK;
    }
    t->device[t->depth] = st->st_dev;
    t->inode[t->depth] = st->st_ino;
    t->depth++;
    enum status status = STATUS_OK;
    for (int i = 0; i < n; i++) {
        if (status == STATUS_OK && entries[i]->d_name[0] == '.') {
            char *child = join(path, entries[i]->d_name);
            count_dotted(w, child);
            free(child);
        } else if (status == STATUS_OK) {
            char *child = join(path, entries[i]->d_name);
            status = visit(w, t, child, false, e);
            free(child);
        }
        free(entries[i]);
    }
    free(entries);
    t->depth--;
    return status;
}

/* A link that leads to where the walk would not come. */
static bool link_leads_out(const struct trail *t, const char *path, const char *source) {
    struct stat st;
    if (lstat(path, &st) != 0 || !S_ISLNK(st.st_mode)) return false;
    return t->root == NULL || !is_within(source, t->root);
}

/* A folder's own path with a slash at its end, without links. The caller frees it. */
static char *resolve_root(const char *path) {
    char *real = realpath(path, NULL);
    char *root = real ? join(real, "") : NULL;
    free(real);
    return root;
}

/* A file or folder that may be read, each once. Takes over the source. */
static enum status enter(struct walk *w, struct trail *t, const char *path, char *source, const struct stat *st,
                         struct error *e) {
    size_t size = strlen(source);
    bool is_new = key_set_add(t->seen, hash_bytes(source, size, 0), hash_bytes(source, size, 1));
    if (is_new && S_ISREG(st->st_mode)) {
        add_file(w, t, path, source, st);
        return STATUS_OK;
    }
    free(source);
    if (is_new) return visit_folder(w, t, path, st, e);
    if (w->verbose) line_print(stderr, "reached twice: %s", path);
    w->n_repeated++;
    return STATUS_OK;
}

/* The reason why a path is not followed to its source; NULL: it is. */
static const char *refuse_source(const struct walk *w, const char *source, bool leads_out) {
    if (leads_out && !w->follow) return "a link that leads out of the folder (--follow)";
    if (w->base && !is_within(source, w->base)) return "a link that leads out of --base";
    return NULL;
}

/* given: named on the command line, where a kind that we do not read is a mistake rather than something beside. */
static enum status visit(struct walk *w, struct trail *t, const char *path, bool given, struct error *e) {
    struct stat st;
    char *source;
    if (index_interrupted) return error_set(e, STATUS_CANCELLED, "interrupted");
    if (stat(path, &st) != 0 || (source = realpath(path, NULL)) == NULL) {
        w->incomplete = w->incomplete || (errno != ENOENT && errno != ELOOP);
        skip(w, path, errno == ELOOP ? "a link that leads back to itself" : strerror(errno));
        return STATUS_OK;
    }
    if (S_ISDIR(st.st_mode) && on_trail(t, &st)) {
        skip(w, path, "a link back to a folder that it lies in");
    } else if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)) {
        skip(w, path, "neither a file nor a folder");
    } else if (S_ISREG(st.st_mode) && !is_known(w, path)) {
        if (given)
            skip_unknown(w, path);
        else
            count_unknown(w, path);
    } else {
        bool leads_out = !given && link_leads_out(t, path, source);
        const char *why = refuse_source(w, source, leads_out);
        if (why == NULL && (given || leads_out)) add_root(w, source);
        if (why == NULL) return enter(w, t, path, source, &st, e);
        skip(w, path, why);
    }
    free(source);
    return STATUS_OK;
}

/* A path that is missing is reported by the walk. */
static enum status check_base(const struct walk *w, const char *path, struct error *e) {
    char *source = realpath(path, NULL);
    enum status status = STATUS_OK;
    if (source && !is_within(source, w->base))
        status = error_set(e, STATUS_INVALID, "%s does not lie below %s, which --base names", path, w->base);
    free(source);
    return status;
}

enum status walk_paths(struct walk *w, char **paths, int n, const char *base, struct error *e) {
    struct key_set seen = {0};
    enum status status = STATUS_OK;
    if (base && (w->base = resolve_root(base)) == NULL) return error_errno(e, "--base %s", base);
    for (int i = 0; i < n && status == STATUS_OK && base; i++) status = check_base(w, paths[i], e);
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        char *root = resolve_root(paths[i]);
        struct trail trail = {.root = root, .seen = &seen};
        status = visit(w, &trail, paths[i], true, e);
        free(root);
    }
    key_set_free(&seen);
    return status;
}

void walk_free(struct walk *w) {
    for (int i = 0; i < w->n; i++) {
        free(w->files[i].path);
        free(w->files[i].source);
    }
    for (int i = 0; i < w->n_roots; i++) free(w->roots[i]);
    free(w->files);
    free(w->roots);
    free(w->base);
    buffer_free(&w->dotted);
}
