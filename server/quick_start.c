/* server/quick_start.c: see quick_start.h. */
#include "server/quick_start.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "config/base/line.h"

/* Exit codes of retro-index: files were skipped; interrupted. */
enum { INDEX_SKIPPED = 2, INDEX_INTERRUPTED = 130 };

static bool is_there(const char *path, const char *within) {
    struct buffer file = {0};
    buffer_printf(&file, "%s/%s", path, within);
    bool there = access(file.data, R_OK) == 0;
    buffer_free(&file);
    return there;
}

static char *take_text(struct buffer *text) {
    char *taken = xstrdup(text->data);
    buffer_free(text);
    return taken;
}

/* The folder that this program lies in. */
static enum status find_own_folder(struct buffer *folder, struct error *e) {
    char program[4096];
    ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);
    if (size < 0) return error_errno(e, "/proc/self/exe");
    program[size] = '\0';
    *strrchr(program, '/') = '\0';
    buffer_append_string(folder, program);
    return STATUS_OK;
}

static enum status find_index(struct quick_start *start, const char *own, struct error *e) {
    struct buffer program = {0};
    buffer_printf(&program, "%s/retro-index", own);
    start->index = take_text(&program);
    if (access(start->index, X_OK) == 0) return STATUS_OK;
    return error_set(e, STATUS_NOT_FOUND, "%.300s is not there; it makes the collection",
                     start->index);
}

/* Where an embedder may lie: beside the program, as a package and as an archive have it, and where
 * make deps puts it. */
static enum status find_embedder(struct quick_start *start, const struct config *config,
                                 const char *own, struct error *e) {
    const char *home = getenv("HOME");
    const struct {
        const char *base, *below;
    } places[] = {{own, "/../share/retro-server/minilm"},
                  {own, "/minilm"},
                  {home ? home : "", "/.cache/retro-server/minilm"}};
    if (config->retrieval.embedder[0]) {
        start->embedder = xstrdup(config->retrieval.embedder);
        return STATUS_OK;
    }
    for (size_t i = 0; i < ARRAY_COUNT(places); i++) {
        struct buffer folder = {0};
        buffer_printf(&folder, "%s%s", places[i].base, places[i].below);
        char *candidate = take_text(&folder);
        if (is_there(candidate, "config.json")) {
            start->embedder = candidate;
            return STATUS_OK;
        }
        free(candidate);
    }
    return error_set(
        e, STATUS_NOT_FOUND,
        "there is no embedder: give one by --set retrieval.embedder=FOLDER "
        "(docs/embedders.md); make deps fetches all-MiniLM-L6-v2 to where it is found");
}

/* The name of the first of the documents, and a hash of what the collection is made from. */
static enum status name_collection(struct quick_start *start, struct error *e) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    struct buffer folder = {0}, made_from = {0};
    buffer_printf(&made_from, "%s\n", start->embedder);
    for (int i = 0; i < start->n; i++) {
        char *real = realpath(start->documents[i], NULL);
        if (real == NULL) {
            buffer_free(&made_from);
            return error_errno(e, "%.300s: a document, a file or a folder", start->documents[i]);
        }
        buffer_printf(&made_from, "%s\n", real);
        free(real);
    }

    char *first = realpath(start->documents[0], NULL), *name = path_name(first ? first : "");
    if (data && data[0])
        buffer_printf(&folder, "%s/retro-server", data);
    else
        buffer_printf(&folder, "%s/.local/share/retro-server", home ? home : ".");
    buffer_printf(&folder, "/%s-%08" PRIx32, name,
                  (uint32_t)hash_bytes(made_from.data, made_from.size, 0));
    start->collection = take_text(&folder);
    free(first);
    free(name);
    buffer_free(&made_from);
    return STATUS_OK;
}

static enum status set_option(struct config *config, const char *name, const char *value,
                              struct error *e) {
    struct buffer option = {0};
    buffer_printf(&option, "%s=%s", name, value);
    enum status status = config_set(config, option.data, e);
    buffer_free(&option);
    return status;
}

/* bf16 embeds faster than f32 and finds the same. The page opens the files that answers read. */
static enum status set_documents(const struct quick_start *start, struct config *config,
                                 struct error *e) {
    if (set_option(config, "retrieval.collection", start->collection, e) ||
        set_option(config, "retrieval.embedder", start->embedder, e) ||
        set_option(config, "retrieval.embedder_dtype", "bf16", e) ||
        set_option(config, "retrieval.keep_files", "copy", e))
        return e->status;
    return STATUS_OK;
}

enum status quick_start_configure(struct quick_start *start, struct config *config,
                                  const char *model, char **documents, int n, struct error *e) {
    struct buffer own = {0};
    start->documents = documents;
    start->n = n;
    if (access(model, R_OK) != 0)
        return error_errno(e, "%.300s: the model, a folder or a GGUF file", model);
    if (set_option(config, "model.path", model, e)) return e->status;
    if (n == 0) return STATUS_OK;

    enum status status = find_own_folder(&own, e);
    if (status == STATUS_OK) status = find_index(start, own.data, e);
    if (status == STATUS_OK) status = find_embedder(start, config, own.data, e);
    if (status == STATUS_OK) status = name_collection(start, e);
    if (status == STATUS_OK) status = set_documents(start, config, e);
    buffer_free(&own);
    return status;
}

/* Running retro-index. */

/* Another copy of the options, whose paths are whole: a path in a file of options is one from the
 * file's folder on. */
static enum status place_options(const struct config *config, struct config *placed,
                                 struct error *e) {
    char here[4096];
    char *text = NULL;
    size_t size = 0;
    if (getcwd(here, sizeof here) == NULL) return error_errno(e, "the working directory");
    FILE *memory = open_memstream(&text, &size);
    CHECK(memory);
    config_print_json(config, memory);
    CHECK(fclose(memory) == 0);
    config_init(placed);
    enum status status = config_parse(placed, text, size, "the options", here, e);
    free(text);
    return status;
}

/* The options in effect, as a configuration that other programs and people can use. */
static enum status write_config(const struct quick_start *start, const struct config *config,
                                struct buffer *path, struct error *e) {
    struct config placed;
    buffer_printf(path, "%s.json", start->collection);
    enum status status = place_options(config, &placed, e);
    FILE *file = status ? NULL : fopen(path->data, "w");
    if (status == STATUS_OK && file == NULL) status = error_errno(e, "%.300s", path->data);
    if (file) config_print_json(&placed, file);
    if (file && fclose(file) != 0) status = error_errno(e, "%.300s", path->data);
    config_free(&placed);
    return status;
}

static enum status make_folders(const char *path, struct error *e) {
    struct buffer folder = {0};
    enum status status = STATUS_OK;
    for (const char *slash = strchr(path + 1, '/'); slash && status == STATUS_OK;
         slash = strchr(slash + 1, '/')) {
        buffer_clear(&folder);
        buffer_append(&folder, path, (size_t)(slash - path));
        buffer_append(&folder, "", 1);
        if (mkdir(folder.data, 0700) != 0 && errno != EEXIST)
            status = error_errno(e, "%.300s", folder.data);
    }
    buffer_free(&folder);
    return status;
}

/* In a process of its own. Its standard output, which names each document, goes where the log goes:
 * standard output is the server's. */
static void run_index(const struct quick_start *start, char **words, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(EXIT_FAILURE);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execv(start->index, words);
    _exit(EXIT_FAILURE);
}

/* retro-index with these words before the documents. */
static enum status begin_index(const struct quick_start *start, char *const *words, int n_words,
                               pid_t *child, struct error *e) {
    int n = 0;
    char **all = xcalloc((size_t)(n_words + start->n) + 2, sizeof *all);
    all[0] = start->index;
    n++;
    for (int i = 0; i < n_words; i++) all[n + i] = words[i];
    n += n_words;
    for (int i = 0; i < start->n; i++) all[n + i] = start->documents[i];

    pid_t parent = getpid();
    *child = fork();
    if (*child == 0) run_index(start, all, parent);
    free(all);
    return *child > 0 ? STATUS_OK : error_errno(e, "%.300s", start->index);
}

static enum status build_collection(const struct quick_start *start, char *config_file,
                                    struct error *e) {
    char *words[] = {(char[]){"build"}, (char[]){"--out"}, start->collection, (char[]){"--config"},
                     config_file};
    pid_t child;
    int ended = 0;
    if (begin_index(start, words, ARRAY_COUNT(words), &child, e)) return e->status;
    pid_t waited = waitpid(child, &ended, 0);
    while (waited < 0 && errno == EINTR) waited = waitpid(child, &ended, 0);
    int code = waited == child && WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
    if (code == 0 || code == INDEX_SKIPPED) return STATUS_OK;
    if (code == INDEX_INTERRUPTED) return error_set(e, STATUS_CANCELLED, "interrupted");
    return error_set(e, STATUS_INVALID, "the collection was not built: retro-index says why above");
}

/* The collection's own tokenizer cuts what comes: the one that is served may be another model's. */
static enum status follow_documents(const struct quick_start *start, char *config_file,
                                    struct error *e) {
    char *words[] = {(char[]){"watch"}, (char[]){"--config"},    config_file,
                     (char[]){"--set"}, (char[]){"model.path="}, start->collection};
    pid_t child;
    return begin_index(start, words, ARRAY_COUNT(words), &child, e);
}

enum status quick_start_begin(const struct quick_start *start, const struct config *config,
                              struct error *e) {
    struct buffer config_file = {0};
    if (start->n == 0) return STATUS_OK;
    if (strcmp(start->collection, config->retrieval.collection) != 0)
        return error_set(
            e, STATUS_INVALID,
            "retrieval.collection is set, and the documents make one of their own, %.300s: "
            "give one of them",
            start->collection);
    enum status status = make_folders(start->collection, e);
    if (status == STATUS_OK) status = write_config(start, config, &config_file, e);
    if (status == STATUS_OK && !is_there(start->collection, "CURRENT"))
        status = build_collection(start, config_file.data, e);
    if (status == STATUS_OK) {
        line_print(stderr, "retro-server: the collection is %s, its configuration %s",
                   start->collection, config_file.data);
        line_print(stderr, "retro-server: documents are followed; the page will be http://%s:%d/",
                   config->server.host, config->server.port);
        status = follow_documents(start, config_file.data, e);
    }
    buffer_free(&config_file);
    return status;
}

void quick_start_free(struct quick_start *start) {
    free(start->index);
    free(start->collection);
    free(start->embedder);
    *start = (struct quick_start){0};
}
