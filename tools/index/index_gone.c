/* tools/index/index_gone.c: documents whose source is gone, for update and watch. See index_adder.h. */
#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "tools/index/index_adder.h"

struct name_key key_of(const char *name) {
    size_t size = strlen(name);
    return (struct name_key){hash_bytes(name, size, 0), hash_bytes(name, size, 1)};
}

static enum status list_files(void *context, const struct stored_document *d, struct error *e) {
    struct key_set *files = context;
    char *name = xstrdup(d->path);
    (void)e;
    for (size_t at = strlen(name); at > 0; at--) {
        if (name[at] != '!' && name[at] != '#') continue;
        name[at] = '\0';
        struct name_key key = key_of(name);
        key_set_add(files, key.a, key.b);
    }
    free(name);
    return STATUS_OK;
}

enum status gone_list_files(struct library *l, struct key_set *files, struct error *e) {
    struct library_walk walk = {.take = list_files, .context = files};
    return library_walk(l, &walk, e);
}

void gone_set_file(struct gone_search *g, const char *stored, int what) {
    struct name_key key = key_of(stored);
    key_set_add(&g->files, key.a, key.b);
    *key_set_number(&g->files, key.a, key.b) = what;
}

/* The number of the file that a document came from; 0: it is not there. A document of a file with several has '!' or
 * '#' and more behind the file's name, whose length *size is. */
static int64_t find_source(const struct gone_search *g, const char *path, size_t *size) {
    char *name = xstrdup(path);
    int64_t found = 0;
    for (size_t at = strlen(name); at > 0 && found == 0; at--) {
        if (path[at] != '\0' && path[at] != '!' && path[at] != '#') continue;
        name[at] = '\0';
        struct name_key key = key_of(name);
        const int64_t *number = key_set_number(&g->files, key.a, key.b);
        if (number) found = *number;
        *size = at;
    }
    free(name);
    return found;
}

/* Documents that got an id of their own are somebody else's, unless the command line names it. */
static bool has_our_id(const struct gone_search *g, const struct stored_document *d, const char *part) {
    const char *given = g->adder->arguments->id;
    char of_path[DOCUMENT_ID_SIZE];
    size_t size = given ? strlen(given) : 0;
    if (given) return strncmp(d->id, given, size) == 0 && strcmp(d->id + size, part) == 0;
    document_id_of_path(d->path, of_path);
    return strcmp(of_path, d->id) == 0;
}

static enum status look_for_gone(void *context, const struct stored_document *d, struct error *e) {
    struct gone_search *g = context;
    size_t size = 0;
    (void)e;
    int64_t source = find_source(g, d->path, &size);
    struct name_key id = key_of(d->id);
    bool is_gone = source == 0                ? g->is_below && g->is_below(g->context, d->path)
                   : source == GONE_FILE_READ ? key_set_number(&g->ids, id.a, id.b) == NULL
                                              : false;
    if (!is_gone || !has_our_id(g, d, source ? d->path + size : "")) return STATUS_OK;
    g->found = xgrow(g->found, g->n, &g->capacity, sizeof *g->found);
    g->found[g->n] = xstrdup(d->id);
    g->n++;
    return STATUS_OK;
}

enum status gone_delete(struct gone_search *g, struct error *e) {
    struct adder *a = g->adder;
    struct library_walk walk = {.take = look_for_gone, .context = g};
    enum status status = library_walk(a->library, &walk, e);
    for (int i = 0; i < g->n && status == STATUS_OK; i++) {
        status = library_delete(a->library, NULL, g->found[i], e);
        if (status == STATUS_OK) index_print_effect(a->arguments, CHANGE_DELETED, g->found[i], NULL);
        if (status == STATUS_NOT_FOUND) status = STATUS_OK;
    }
    return status;
}

void gone_free(struct gone_search *g) {
    for (int i = 0; i < g->n; i++) free(g->found[i]);
    free(g->found);
    key_set_free(&g->files);
    key_set_free(&g->ids);
}
