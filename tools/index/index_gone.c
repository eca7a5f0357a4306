/* tools/index/index_gone.c: documents whose source is gone, for update and watch. See
 * index_adder.h. */
#include <stdlib.h>
#include <string.h>

#include "tools/index/index_adder.h"

void gone_set_file(struct gone_search *search, const char *source, int what) {
    struct name_key key = key_of(source);
    key_set_add(&search->files, key.a, key.b);
    *key_set_number(&search->files, key.a, key.b) = what;
}

/* The file whose document this one is, if its id is one that this command gives: of the command
 * line, of the path below
 * --base, or of the file. Documents that got an id of their own are somebody else's. With
 * --replace, --base and --id alone say whose a document is. False: it is none of this command's. */
static bool find_source(const struct gone_search *search, const struct stored_document *document,
                        struct buffer *source) {
    const struct walk *walk = &search->adder->walk;
    const struct index_arguments *arguments = search->adder->arguments;
    const char *given = arguments->id;
    size_t at = strlen(document->path), size = given ? strlen(given) : 0;
    if (given) {
        bool ours = strncmp(document->id, given, size) == 0 &&
                    (document->id[size] == '\0' || strchr("!#", document->id[size]));
        buffer_append_string(
            source, arguments->replace && walk->n == 1 ? walk->files[0].source : document->source);
        return ours;
    }
    do {
        bool by_path = walk->base && path_ends(document->source, document->path, at) &&
                       id_is_of(document->id, document->path, "");
        bool below = by_path && strlen(document->source) == strlen(walk->base) + at &&
                     strncmp(document->source, walk->base, strlen(walk->base)) == 0;
        if (walk->base == NULL && id_is_of(document->id, document->source, document->path + at)) {
            buffer_append_string(source, document->source);
            return true;
        }
        if (by_path && (below || arguments->replace)) {
            buffer_printf(source, "%s%.*s", walk->base, (int)at, document->path);
            return true;
        }
    } while (part_next(document->path, &at));
    return false;
}

/* Whether the walk would have come upon the file. */
static bool is_walked(const struct walk *walk, const char *source) {
    for (int i = 0; i < walk->n_roots; i++) {
        const char *root = walk->roots[i];
        size_t size = strlen(root);
        bool is_top = size == 1; /* "/" */
        if (strncmp(source, root, size) == 0 &&
            (is_top || source[size] == '/' || source[size] == '\0'))
            return true;
    }
    return false;
}

static enum status look_for_gone(void *context, const struct stored_document *document,
                                 struct error *e) {
    struct gone_search *search = context;
    struct buffer source = {0};
    (void)e;
    if (document->source[0] == '\0' || !find_source(search, document, &source)) {
        buffer_free(&source);
        return STATUS_OK;
    }
    struct name_key file = key_of(source.data), id = key_of(document->id);
    const int64_t *state = key_set_number(&search->files, file.a, file.b);
    bool is_gone = state == NULL ? search->whole && is_walked(&search->adder->walk, source.data)
                   : *state == GONE_FILE_READ ? key_set_number(&search->ids, id.a, id.b) == NULL
                                              : false;
    buffer_free(&source);
    if (!is_gone) return STATUS_OK;
    search->found = xgrow(search->found, search->n, &search->capacity, sizeof *search->found);
    search->found[search->n] =
        (struct gone_document){xstrdup(document->id), xstrdup(document->path)};
    search->n++;
    return STATUS_OK;
}

enum status gone_delete(struct gone_search *search, struct error *e) {
    struct adder *adder = search->adder;
    struct collection_walk walk = {.take = look_for_gone, .context = search};
    enum status status = collection_walk(adder->collection, &walk, e);
    for (int i = 0; i < search->n && status == STATUS_OK; i++) {
        const struct gone_document *gone = &search->found[i];
        status = collection_delete(adder->collection, NULL, gone->id, e);
        if (status == STATUS_OK)
            index_print_effect(adder->arguments,
                               &(struct printed_effect){CHANGE_DELETED, gone->id, gone->path, -1});
        if (status == STATUS_NOT_FOUND) status = STATUS_OK;
    }
    return status;
}

void gone_free(struct gone_search *search) {
    for (int i = 0; i < search->n; i++) {
        free(search->found[i].id);
        free(search->found[i].path);
    }
    free(search->found);
    key_set_free(&search->files);
    key_set_free(&search->ids);
}
