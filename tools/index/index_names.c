/* tools/index/index_names.c: see index_names.h. */
#include "tools/index/index_names.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"

struct name_key key_of_n(const char *name, size_t size) {
    return (struct name_key){hash_bytes(name, size, 0), hash_bytes(name, size, 1)};
}

struct name_key key_of(const char *name) {
    return key_of_n(name, strlen(name));
}

bool part_next(const char *path, size_t *at) {
    while (*at > 0) {
        --*at;
        if (*at > 0 && (path[*at] == '!' || path[*at] == '#')) return true;
    }
    return false;
}

bool path_ends(const char *path, const char *name, size_t size) {
    size_t whole = strlen(path);
    if (size == 0 || size > whole || memcmp(path + whole - size, name, size) != 0) return false;
    return size == whole || path[whole - size - 1] == '/' || name[0] == '/';
}

bool id_is_of(const char *id, const char *head, const char *tail) {
    struct buffer whole = {0};
    char made[DOCUMENT_ID_SIZE];
    buffer_printf(&whole, "%s%s", head, tail);
    document_id_of_path(whole.data, made);
    buffer_free(&whole);
    return strcmp(made, id) == 0;
}

static int64_t number_of(const struct key_set *set, struct name_key key) {
    const int64_t *number = key_set_number(set, key.a, key.b);
    return number ? *number : 0;
}

static void set_number(struct key_set *set, struct name_key key, int64_t number) {
    key_set_add(set, key.a, key.b);
    *key_set_number(set, key.a, key.b) = number;
}

/* Reading. */

struct known_reading {
    struct known_files *known;
    const struct put_plan *plan;
    struct key_set wanted; /* of an identity: the number + 1 of the plan's file */
    int n_other;           /* documents of other files that would be replaced */
    struct error first;
};

/* A document's file and its name. */
static void add_source(struct known_files *files, const struct stored_document *document) {
    struct name_key key = key_of(document->source);
    int64_t number = number_of(&files->sources, key);
    if (number == 0) {
        files->names = xgrow(files->names, files->n, &files->capacity, sizeof *files->names);
        files->names[files->n] = NULL;
        files->n++;
        number = files->n;
        set_number(&files->sources, key, number);
    }
    char **name = &files->names[number - 1];
    size_t at = strlen(document->path);
    do {
        if (*name == NULL && path_ends(document->source, document->path, at))
            *name = xstrndup(document->path, at);
    } while (part_next(document->path, &at));
}

static void add_shown(struct known_files *files, const struct stored_document *document) {
    int64_t number =
        document->source[0] ? number_of(&files->sources, key_of(document->source)) : -1;
    size_t at = strlen(document->path);
    do {
        struct name_key key = key_of_n(document->path, at);
        int64_t before = number_of(&files->shown, key);
        if (before != number) set_number(&files->shown, key, before == 0 ? number : -1);
    } while (part_next(document->path, &at));
}

/* The plan's file whose document has the id of this one; NULL: none. */
static const struct found_file *find_planned(const struct known_reading *reading,
                                             const struct stored_document *document) {
    const struct put_plan *plan = reading->plan;
    const struct found_file *files = plan->walk->files;
    size_t at = strlen(document->path), size = plan->id ? strlen(plan->id) : 0;
    if (plan->id) {
        bool same = strncmp(document->id, plan->id, size) == 0 &&
                    (document->id[size] == '\0' || strchr("!#", document->id[size]));
        return same && plan->walk->n > 0 ? &files[0] : NULL;
    }
    if (plan->walk->base == NULL || !id_is_of(document->id, document->path, "")) return NULL;
    do {
        int64_t number = number_of(&reading->wanted, key_of_n(document->path, at));
        if (number > 0) return &files[number - 1];
    } while (part_next(document->path, &at));
    return NULL;
}

static void check_replaced(struct known_reading *reading, const struct stored_document *document) {
    const struct found_file *file = reading->plan ? find_planned(reading, document) : NULL;
    if (file == NULL || strcmp(file->source, document->source) == 0) return;
    reading->n_other++;
    if (reading->n_other > 1) return;
    error_set(&reading->first, STATUS_INVALID,
              "document %.150s is %s%.250s, and would become that of %.250s", document->path,
              document->source[0] ? "that of the file " : "one that was put without a file",
              document->source, file->source);
}

static enum status take_known(void *context, const struct stored_document *document,
                              struct error *e) {
    struct known_reading *reading = context;
    (void)e;
    if (document->source[0]) add_source(reading->known, document);
    add_shown(reading->known, document);
    check_replaced(reading, document);
    return STATUS_OK;
}

enum status known_files_read(struct known_files *files, struct collection *collection,
                             const struct put_plan *plan, struct error *e) {
    struct known_reading reading = {.known = files, .plan = plan && !plan->replace ? plan : NULL};
    struct collection_walk walk = {.take = take_known, .context = &reading};
    for (int i = 0; reading.plan && i < plan->walk->n; i++)
        set_number(&reading.wanted, key_of(plan->walk->files[i].identity), i + 1);
    enum status status = collection_walk(collection, &walk, e);
    key_set_free(&reading.wanted);
    if (status || reading.n_other == 0) return status;
    if (reading.n_other > 1)
        return error_set(e, STATUS_INVALID,
                         "%s; so would %d others. --replace does it; nothing was changed",
                         reading.first.text, reading.n_other - 1);
    return error_set(e, STATUS_INVALID, "%s. --replace does it; nothing was changed",
                     reading.first.text);
}

void known_files_free(struct known_files *files) {
    for (int i = 0; i < files->n; i++) free(files->names[i]);
    free(files->names);
    key_set_free(&files->sources);
    key_set_free(&files->shown);
    *files = (struct known_files){0};
}

/* Choosing. */

/* The next longer end of the source, from a name in it on; NULL: there is none. */
static const char *lengthen(const struct found_file *file, const char *name) {
    if (name <= file->source + 1) return name == file->source ? NULL : file->source;
    name--;
    while (name > file->source && name[-1] != '/') name--;
    return name;
}

static const char *find_known_name(const struct known_files *files, const struct found_file *file) {
    int64_t number = number_of(&files->sources, key_of(file->source));
    const char *name = number > 0 ? files->names[number - 1] : NULL;
    return name ? file->source + strlen(file->source) - strlen(name) : NULL;
}

/* Counts, for each end of the source that may become a name, the new files that have it. */
static void count_ends(struct key_set *ends, const struct found_file *file) {
    for (const char *name = file->least; name; name = lengthen(file, name)) {
        struct name_key key = key_of(name);
        set_number(ends, key, number_of(ends, key) + 1);
    }
}

static const char *choose_name(const struct key_set *ends, const struct known_files *files,
                               const struct found_file *file) {
    for (const char *name = file->least; name; name = lengthen(file, name)) {
        struct name_key key = key_of(name);
        if (number_of(ends, key) == 1 && (files == NULL || number_of(&files->shown, key) == 0))
            return name;
    }
    return file->source;
}

void names_choose(struct walk *walk, const struct known_files *files) {
    struct key_set ends = {0};
    for (int i = 0; i < walk->n; i++) {
        struct found_file *file = &walk->files[i];
        file->stored = walk->base ? file->identity : files ? find_known_name(files, file) : NULL;
        if (file->stored == NULL) count_ends(&ends, file);
    }
    for (int i = 0; i < walk->n; i++)
        if (walk->files[i].stored == NULL)
            walk->files[i].stored = choose_name(&ends, files, &walk->files[i]);
    key_set_free(&ends);
}
