/* tools/index/index_walk.c: which files to read. Nothing here opens anything but regular files
 * without an extension, whose bytes tell what they are: a FIFO or a device is seen by its type and
 * can hang nobody. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "tools/index/index.h"
#include "tools/index/index_color.h"

enum { MAX_DEPTH = 200 };

/* The folders from a root down to where the walk is. */
struct trail {
    const char *root; /* without links and with one slash at its end; NULL: unknown, and no link
                         leads below it */
    dev_t device[MAX_DEPTH];
    ino_t inode[MAX_DEPTH];
    int depth;
    struct key_set *seen;
};

static void skip(struct walk *walk, const char *path, const char *why) {
    struct buffer text = {0};
    buffer_printf(&text, "%s: %s", path, why);
    if (!walk->quiet) color_line(stderr, COLOR_YELLOW, "skipped:", " %s", text.data);
    walk_count_skipped(walk, NULL, text.data);
    buffer_free(&text);
}

static void skip_unknown(struct walk *walk, const char *path) {
    struct buffer why = {0}, names = {0};
    document_list_kinds(&names);
    buffer_printf(&why, "not a known kind of document; %s are", names.data);
    if (document_kind(path) == DOCUMENT_PICTURE)
        buffer_append_string(&why, ", and with --pictures, or without --no-ocr, pictures");
    skip(walk, path, why.data);
    buffer_free(&names);
    buffer_free(&why);
}

/* Whether a regular file without an extension is one that is read. */
static bool is_bare_known(const char *path) {
    char head[KIND_HEAD_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd >= 0 ? read(fd, head, sizeof head) : -1;
    if (fd >= 0) close(fd);
    if (n < 0) return true; /* reading it says why not */
    return n == 0 ||
           document_kind_of_bytes((struct text_span){head, (size_t)n}) != DOCUMENT_UNKNOWN;
}

static bool is_known(const struct walk *walk, const char *path) {
    enum document_kind kind = document_kind(path);
    if (kind == DOCUMENT_BARE) return is_bare_known(path);
    return kind != DOCUMENT_UNKNOWN && (kind != DOCUMENT_PICTURE || walk->pictures || walk->ocr);
}

static void count_unknown(struct walk *walk, const char *path) {
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    const char *extension = dot && strlen(dot) < sizeof walk->unknown[0].extension ? dot : "";
    int last = (int)ARRAY_COUNT(walk->unknown) - 1, i = 0;
    if (walk->verbose) line_print(stderr, "not a known kind: %s", path);
    walk->n_unknown_files++;
    while (i < walk->n_unknown && strcmp(walk->unknown[i].extension, extension) != 0) i++;
    if (i == walk->n_unknown && i < last) {
        snprintf(walk->unknown[i].extension, sizeof walk->unknown[i].extension, "%s", extension);
        walk->n_unknown++;
    } else if (i == walk->n_unknown) {
        /* More kinds than rows: the last row stands for the rest. */
        i = last;
        snprintf(walk->unknown[i].extension, sizeof walk->unknown[i].extension, "others");
    }
    walk->unknown[i].count++;
}

/* The first names are shown; people look for what they miss. */
static void count_dotted(struct walk *walk, const char *path) {
    enum { SHOWN = 5 };
    const char *slash = strrchr(path, '/');
    if (walk->verbose) line_print(stderr, "begins with a dot: %s", path);
    if (walk->n_dotted < SHOWN)
        buffer_printf(&walk->dotted, "%s%s", walk->n_dotted ? ", " : "", slash ? slash + 1 : path);
    if (walk->n_dotted == SHOWN) buffer_append_string(&walk->dotted, ", ...");
    walk->n_dotted++;
}

/* Whether a path without links is that of the folder, whose name ends with a slash, or of what lies
 * in it. */
static bool is_within(const char *path, const char *folder) {
    size_t size = strlen(folder);
    return strncmp(path, folder, size) == 0 ||
           (strlen(path) + 1 == size && strncmp(path, folder, size - 1) == 0);
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
static void add_file(struct walk *walk, const struct trail *trail, const char *path, char *source,
                     const struct stat *st) {
    walk->files = xgrow(walk->files, walk->n, &walk->capacity, sizeof *walk->files);
    walk->files[walk->n] = (struct found_file){
        .path = xstrdup(path),
        .source = source,
        .identity = source + (walk->base ? strlen(walk->base) : 0),
        .least = find_least(source, trail->root),
        .kind = is_known(walk, source) ? document_kind(source) : document_kind(path),
        .size = (uint64_t)st->st_size,
        .kept = xcalloc(1, KEPT_NAME_SIZE)};
    walk->files[walk->n].stored = walk->files[walk->n].least;
    walk->n++;
}

static void add_root(struct walk *walk, const char *source) {
    walk->roots = xgrow(walk->roots, walk->n_roots, &walk->root_capacity, sizeof *walk->roots);
    walk->roots[walk->n_roots] = xstrdup(source);
    walk->n_roots++;
}

static bool on_trail(const struct trail *trail, const struct stat *st) {
    for (int i = 0; i < trail->depth; i++)
        if (trail->device[i] == st->st_dev && trail->inode[i] == st->st_ino) return true;
    return false;
}

static char *join(const char *folder, const char *name) {
    struct buffer buffer = {0};
    size_t size = strlen(folder);
    buffer_printf(&buffer, "%s%s%s", folder, size > 0 && folder[size - 1] == '/' ? "" : "/", name);
    return buffer.data;
}

static int is_entry(const struct dirent *entry) {
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int by_name(const struct dirent **left, const struct dirent **right) {
    return strcmp((*left)->d_name, (*right)->d_name);
}

static enum status visit(struct walk *walk, struct trail *trail, const char *path, bool given,
                         struct error *e);

static enum status visit_folder(struct walk *walk, struct trail *trail, const char *path,
                                const struct stat *st, struct error *e) {
    struct dirent **entries = NULL;
    if (trail->depth == MAX_DEPTH) {
        skip(walk, path, "folders nest too deep");
        return STATUS_OK;
    }
    int n = scandir(path, &entries, is_entry, by_name);
    if (n < 0) {
        walk->incomplete = walk->incomplete || errno != ENOENT;
        skip(walk, path, strerror(errno));
        return STATUS_OK;
    }
    trail->device[trail->depth] = st->st_dev;
    trail->inode[trail->depth] = st->st_ino;
    trail->depth++;
    enum status status = STATUS_OK;
    for (int i = 0; i < n; i++) {
        if (status == STATUS_OK && entries[i]->d_name[0] == '.') {
            char *child = join(path, entries[i]->d_name);
            count_dotted(walk, child);
            free(child);
        } else if (status == STATUS_OK) {
            char *child = join(path, entries[i]->d_name);
            status = visit(walk, trail, child, false, e);
            free(child);
        }
        free(entries[i]);
    }
    free(entries);
    trail->depth--;
    return status;
}

/* A link that leads to where the walk would not come. */
static bool link_leads_out(const struct trail *trail, const char *path, const char *source) {
    struct stat st;
    if (lstat(path, &st) != 0 || !S_ISLNK(st.st_mode)) return false;
    return trail->root == NULL || !is_within(source, trail->root);
}

/* A folder's own path with a slash at its end, without links. The caller frees it. */
static char *resolve_root(const char *path) {
    char *real = realpath(path, NULL);
    char *root = real ? join(real, "") : NULL;
    free(real);
    return root;
}

/* A file or folder that may be read, each once. Takes over the source. */
static enum status enter(struct walk *walk, struct trail *trail, const char *path, char *source,
                         const struct stat *st, struct error *e) {
    size_t size = strlen(source);
    bool is_new =
        key_set_add(trail->seen, hash_bytes(source, size, 0), hash_bytes(source, size, 1));
    if (is_new && S_ISREG(st->st_mode)) {
        add_file(walk, trail, path, source, st);
        return STATUS_OK;
    }
    free(source);
    if (is_new) return visit_folder(walk, trail, path, st, e);
    if (walk->verbose) line_print(stderr, "reached twice: %s", path);
    walk->n_repeated++;
    return STATUS_OK;
}

/* The reason why a path is not followed to its source; NULL: it is. */
static const char *refuse_source(const struct walk *walk, const char *source, bool leads_out) {
    if (leads_out && !walk->follow) return "a link that leads out of the folder (--follow)";
    if (walk->base && !is_within(source, walk->base)) return "a link that leads out of --base";
    return NULL;
}

/* given: named on the command line, where a kind that we do not read is a mistake rather than
 * something beside. */
static enum status visit(struct walk *walk, struct trail *trail, const char *path, bool given,
                         struct error *e) {
    struct stat st;
    char *source;
    if (index_interrupted) return error_set(e, STATUS_CANCELLED, "interrupted");
    if (stat(path, &st) != 0 || (source = realpath(path, NULL)) == NULL) {
        walk->incomplete = walk->incomplete || (errno != ENOENT && errno != ELOOP);
        skip(walk, path, errno == ELOOP ? "a link that leads back to itself" : strerror(errno));
        return STATUS_OK;
    }
    if (S_ISDIR(st.st_mode) && on_trail(trail, &st)) {
        skip(walk, path, "a link back to a folder that it lies in");
    } else if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)) {
        skip(walk, path, "neither a file nor a folder");
    } else if (S_ISREG(st.st_mode) && !is_known(walk, path)) {
        if (given)
            skip_unknown(walk, path);
        else
            count_unknown(walk, path);
    } else {
        bool leads_out = !given && link_leads_out(trail, path, source);
        const char *why = refuse_source(walk, source, leads_out);
        if (why == NULL && (given || leads_out)) add_root(walk, source);
        if (why == NULL) return enter(walk, trail, path, source, &st, e);
        skip(walk, path, why);
    }
    free(source);
    return STATUS_OK;
}

/* A path that is missing is reported by the walk. */
static enum status check_base(const struct walk *walk, const char *path, struct error *e) {
    char *source = realpath(path, NULL);
    enum status status = STATUS_OK;
    if (source && !is_within(source, walk->base))
        status = error_set(e, STATUS_INVALID, "%s does not lie below %s, which --base names", path,
                           walk->base);
    free(source);
    return status;
}

enum status walk_paths(struct walk *walk, char *const *paths, int n, const char *base,
                       struct error *e) {
    struct key_set seen = {0};
    enum status status = STATUS_OK;
    if (base && (walk->base = resolve_root(base)) == NULL) return error_errno(e, "--base %s", base);
    for (int i = 0; i < n && status == STATUS_OK && base; i++)
        status = check_base(walk, paths[i], e);
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        char *root = resolve_root(paths[i]);
        struct trail trail = {.root = root, .seen = &seen};
        status = visit(walk, &trail, paths[i], true, e);
        free(root);
    }
    key_set_free(&seen);
    return status;
}

void walk_free(struct walk *walk) {
    for (int i = 0; i < walk->n; i++) {
        free(walk->files[i].path);
        free(walk->files[i].source);
        free(walk->files[i].kept);
    }
    for (int i = 0; i < walk->n_roots; i++) free(walk->roots[i]);
    free(walk->files);
    free(walk->roots);
    free(walk->base);
    walk_free_skipped(walk);
    buffer_free(&walk->dotted);
}
