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

static int64_t number_of(const struct key_set *s, struct name_key key) {
    const int64_t *number = key_set_number(s, key.a, key.b);
    return number ? *number : 0;
}

static void set_number(struct key_set *s, struct name_key key, int64_t number) {
    key_set_add(s, key.a, key.b);
    *key_set_number(s, key.a, key.b) = number;
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
static void add_source(struct known_files *k, const struct stored_document *d) {
    struct name_key key = key_of(d->source);
    int64_t number = number_of(&k->sources, key);
    if (number == 0) {
        k->names = xgrow(k->names, k->n, &k->capacity, sizeof *k->names);
        k->names[k->n] = NULL;
        k->n++;
        number = k->n;
        set_number(&k->sources, key, number);
    }
    char **name = &k->names[number - 1];
    size_t at = strlen(d->path);
    do {
        if (*name == NULL && path_ends(d->source, d->path, at)) *name = xstrndup(d->path, at);
    } while (part_next(d->path, &at));
}

static void add_shown(struct known_files *k, const struct stored_document *d) {
    int64_t number = d->source[0] ? number_of(&k->sources, key_of(d->source)) : -1;
    size_t at = strlen(d->path);
    do {
        struct name_key key = key_of_n(d->path, at);
        int64_t before = number_of(&k->shown, key);
        if (before != number) set_number(&k->shown, key, before == 0 ? number : -1);
    } while (part_next(d->path, &at));
}

/* The plan's file whose document has the id of this one; NULL: none. */
static const struct found_file *find_planned(const struct known_reading *r, const struct stored_document *d) {
    const struct put_plan *plan = r->plan;
    const struct found_file *files = plan->walk->files;
    size_t at = strlen(d->path), size = plan->id ? strlen(plan->id) : 0;
    if (plan->id) {
        bool same = strncmp(d->id, plan->id, size) == 0 && (d->id[size] == '\0' || strchr("!#", d->id[size]));
        return same && plan->walk->n > 0 ? &files[0] : NULL;
    }
    if (plan->walk->base == NULL || !id_is_of(d->id, d->path, "")) return NULL;
    do {
        int64_t number = number_of(&r->wanted, key_of_n(d->path, at));
        if (number > 0) return &files[number - 1];
    } while (part_next(d->path, &at));
    return NULL;
}

static void check_replaced(struct known_reading *r, const struct stored_document *d) {
    const struct found_file *file = r->plan ? find_planned(r, d) : NULL;
    if (file == NULL || strcmp(file->source, d->source) == 0) return;
    r->n_other++;
    if (r->n_other > 1) return;
    error_set(&r->first, STATUS_INVALID, "document %.150s is %s%.250s, and would become that of %.250s", d->path,
              d->source[0] ? "that of the file " : "one that was put without a file", d->source, file->source);
}

static enum status take_known(void *context, const struct stored_document *d, struct error *e) {
    struct known_reading *r = context;
    (void)e;
    if (d->source[0]) add_source(r->known, d);
    add_shown(r->known, d);
    check_replaced(r, d);
    return STATUS_OK;
}

enum status known_files_read(struct known_files *k, struct collection *l, const struct put_plan *plan,
                             struct error *e) {
    struct known_reading reading = {.known = k, .plan = plan && !plan->replace ? plan : NULL};
    struct collection_walk walk = {.take = take_known, .context = &reading};
    for (int i = 0; reading.plan && i < plan->walk->n; i++)
        set_number(&reading.wanted, key_of(plan->walk->files[i].identity), i + 1);
    enum status status = collection_walk(l, &walk, e);
    key_set_free(&reading.wanted);
    if (status || reading.n_other == 0) return status;
    if (reading.n_other > 1)
        return error_set(e, STATUS_INVALID, "%s; so would %d others. --replace does it; nothing was changed",
                         reading.first.text, reading.n_other - 1);
    return error_set(e, STATUS_INVALID, "%s. --replace does it; nothing was changed", reading.first.text);
}

void known_files_free(struct known_files *k) {
    for (int i = 0; i < k->n; i++) free(k->names[i]);
    free(k->names);
    key_set_free(&k->sources);
    key_set_free(&k->shown);
    *k = (struct known_files){0};
}

/* Choosing. */

/* The next longer end of the source, from a name in it on; NULL: there is none. */
static const char *lengthen(const struct found_file *file, const char *name) {
    if (name <= file->source + 1) return name == file->source ? NULL : file->source;
    name--;
    while (name > file->source && name[-1] != '/') name--;
    return name;
}

static const char *find_known_name(const struct known_files *k, const struct found_file *file) {
    int64_t number = number_of(&k->sources, key_of(file->source));
    const char *name = number > 0 ? k->names[number - 1] : NULL;
    return name ? file->source + strlen(file->source) - strlen(name) : NULL;
}

/* Counts, for each end of the source that may become a name, the new files that have it. */
static void count_ends(struct key_set *ends, const struct found_file *file) {
    for (const char *name = file->least; name; name = lengthen(file, name)) {
        struct name_key key = key_of(name);
        set_number(ends, key, number_of(ends, key) + 1);
    }
}

static const char *choose_name(const struct key_set *ends, const struct known_files *k, const struct found_file *file) {
    for (const char *name = file->least; name; name = lengthen(file, name)) {
        struct name_key key = key_of(name);
        if (number_of(ends, key) == 1 && (k == NULL || number_of(&k->shown, key) == 0)) return name;
    }
    return file->source;
}

void names_choose(struct walk *w, const struct known_files *k) {
    struct key_set ends = {0};
    for (int i = 0; i < w->n; i++) {
        struct found_file *file = &w->files[i];
        file->stored = w->base ? file->identity : k ? find_known_name(k, file) : NULL;
        if (file->stored == NULL) count_ends(&ends, file);
    }
    for (int i = 0; i < w->n; i++)
        if (w->files[i].stored == NULL) w->files[i].stored = choose_name(&ends, k, &w->files[i]);
    key_set_free(&ends);
}
