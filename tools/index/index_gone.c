/* tools/index/index_gone.c: documents whose source is gone, for update and watch. See index_adder.h. */
#include <stdlib.h>
#include <string.h>

#include "tools/index/index_adder.h"

void gone_set_file(struct gone_search *g, const char *source, int what) {
    struct name_key key = key_of(source);
    key_set_add(&g->files, key.a, key.b);
    *key_set_number(&g->files, key.a, key.b) = what;
}

/* The file whose document this one is, if its id is one that this command gives: of the command line, of the path below
 * --base, or of the file. Documents that got an id of their own are somebody else's. With --replace, --base and --id
 * alone say whose a document is. False: it is none of this command's. */
static bool find_source(const struct gone_search *g, const struct stored_document *d, struct buffer *source) {
    const struct walk *walk = &g->adder->walk;
    const struct index_arguments *arguments = g->adder->arguments;
    const char *given = arguments->id;
    size_t at = strlen(d->path), size = given ? strlen(given) : 0;
    if (given) {
        bool ours = strncmp(d->id, given, size) == 0 && (d->id[size] == '\0' || strchr("!#", d->id[size]));
        buffer_append_string(source, arguments->replace && walk->n == 1 ? walk->files[0].source : d->source);
        return ours;
    }
    do {
        bool by_path = walk->base && path_ends(d->source, d->path, at) && id_is_of(d->id, d->path, "");
        bool below = by_path && strlen(d->source) == strlen(walk->base) + at &&
                     strncmp(d->source, walk->base, strlen(walk->base)) == 0;
        if (walk->base == NULL && id_is_of(d->id, d->source, d->path + at)) {
            buffer_append_string(source, d->source);
            return true;
        }
        if (by_path && (below || arguments->replace)) {
            buffer_printf(source, "%s%.*s", walk->base, (int)at, d->path);
            return true;
        }
    } while (part_next(d->path, &at));
    return false;
}

/* Whether the walk would have come upon the file. */
static bool is_walked(const struct walk *w, const char *source) {
    for (int i = 0; i < w->n_roots; i++) {
        const char *root = w->roots[i];
        size_t size = strlen(root);
        bool is_top = size == 1; /* "/" */
        if (strncmp(source, root, size) == 0 && (is_top || source[size] == '/' || source[size] == '\0')) return true;
    }
    return false;
}

static enum status look_for_gone(void *context, const struct stored_document *d, struct error *e) {
    struct gone_search *g = context;
    struct buffer source = {0};
    (void)e;
    if (d->source[0] == '\0' || !find_source(g, d, &source)) {
        buffer_free(&source);
        return STATUS_OK;
    }
    struct name_key file = key_of(source.data), id = key_of(d->id);
    const int64_t *state = key_set_number(&g->files, file.a, file.b);
    bool is_gone = state == NULL              ? g->whole && is_walked(&g->adder->walk, source.data)
                   : *state == GONE_FILE_READ ? key_set_number(&g->ids, id.a, id.b) == NULL
                                              : false;
    buffer_free(&source);
    if (!is_gone) return STATUS_OK;
    g->found = xgrow(g->found, g->n, &g->capacity, sizeof *g->found);
    g->found[g->n] = xstrdup(d->id);
    g->n++;
    return STATUS_OK;
}

enum status gone_delete(struct gone_search *g, struct error *e) {
    struct adder *a = g->adder;
    struct collection_walk walk = {.take = look_for_gone, .context = g};
    enum status status = collection_walk(a->collection, &walk, e);
    for (int i = 0; i < g->n && status == STATUS_OK; i++) {
        status = collection_delete(a->collection, NULL, g->found[i], e);
        if (status == STATUS_OK)
            index_print_effect(a->arguments, &(struct printed_effect){CHANGE_DELETED, g->found[i], NULL, -1});
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
