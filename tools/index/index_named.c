/* tools/index/index_named.c: see index_named.h. Ids are looked up; all other words are sought by
 * one walk over the collection. */
#include "tools/index/index_named.h"

#include <stdlib.h>
#include <string.h>

#include "tools/index/index_names.h"

struct named_word {
    const char *text;
    char *real; /* of a file or folder that is there, without links; NULL: it is none */
    bool folder;
    int n_found;
};

struct naming {
    struct named_documents *named;
    struct named_word *words; /* [n] */
    int n;
    struct key_set keys;   /* of a word and its real path: the number of the word + 1 */
    struct key_set ids;    /* of the documents that are named already */
    struct filter *filter; /* NULL: none */
};

static void name_document(struct naming *naming, const struct stored_document *document) {
    struct named_documents *named = naming->named;
    struct name_key id = key_of(document->id);
    if (!key_set_add(&naming->ids, id.a, id.b)) return;
    named->documents =
        xgrow(named->documents, named->n, &named->capacity, sizeof *named->documents);
    named->documents[named->n] =
        (struct named_document){xstrdup(document->id), xstrdup(document->path)};
    named->n++;
}

/* The word that is a name, of so many bytes; NULL: none is. */
static struct named_word *find_word(const struct naming *naming, const char *name, size_t size) {
    struct name_key key = key_of_n(name, size);
    const int64_t *number = key_set_number(&naming->keys, key.a, key.b);
    return number ? &naming->words[*number - 1] : NULL;
}

static bool lies_below(const char *path, const char *folder) {
    size_t size = strlen(folder);
    bool has_slash = size > 0 && folder[size - 1] == '/';
    return size > 0 && strncmp(path, folder, size) == 0 && (has_slash || path[size] == '/');
}

static struct named_word *find_folder(const struct naming *naming,
                                      const struct stored_document *document) {
    for (int i = 0; i < naming->n; i++) {
        struct named_word *word = &naming->words[i];
        if (!word->folder) continue;
        if (lies_below(document->path, word->text)) return word;
        if (word->real && lies_below(document->source, word->real)) return word;
    }
    return NULL;
}

/* A document's own name and id, and those of the file that it is a part of. */
static struct named_word *find_own_word(const struct naming *naming,
                                        const struct stored_document *document) {
    size_t at = strlen(document->path);
    struct named_word *word = find_word(naming, document->id, strlen(document->id));
    bool more = word == NULL;
    while (more) {
        word = find_word(naming, document->path, at);
        more = word == NULL && part_next(document->path, &at);
    }
    if (word == NULL && document->source[0])
        word = find_word(naming, document->source, strlen(document->source));
    return word;
}

static enum status take_document(void *context, const struct stored_document *document,
                                 struct error *e) {
    struct naming *naming = context;
    (void)e;
    struct named_word *word = find_own_word(naming, document);
    if (word == NULL) word = find_folder(naming, document);
    if (word) word->n_found++;
    if (word || naming->n == 0) name_document(naming, document);
    return STATUS_OK;
}

static void add_key(struct naming *naming, const char *name, int number) {
    struct name_key key = key_of(name);
    if (key_set_add(&naming->keys, key.a, key.b))
        *key_set_number(&naming->keys, key.a, key.b) = number + 1;
}

/* A word that is no folder may be an id, which needs no walk. */
static enum status look_up(struct naming *naming, struct collection *collection,
                           struct named_word *word, struct error *e) {
    struct collection_found found;
    enum status status = collection_find(collection, naming->filter, word->text, &found, e);
    if (status == STATUS_OK) {
        word->n_found++;
        name_document(naming, &found.document);
    }
    collection_found_release(&found);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static enum status read_words(struct naming *naming, struct collection *collection, char **texts,
                              bool *walks, struct error *e) {
    *walks = naming->n == 0;
    for (int i = 0; i < naming->n; i++) {
        struct named_word *word = &naming->words[i];
        size_t size = strlen(texts[i]);
        *word = (struct named_word){.text = texts[i], .real = realpath(texts[i], NULL)};
        word->folder = size > 0 && texts[i][size - 1] == '/';
        if (!word->folder && look_up(naming, collection, word, e)) return e->status;
        if (word->n_found > 0) continue;
        *walks = true;
        add_key(naming, word->text, i);
        if (word->real) add_key(naming, word->real, i);
    }
    return STATUS_OK;
}

static enum status check_words(struct naming *naming, struct error *e) {
    for (int i = 0; i < naming->n; i++) {
        const struct named_word *word = &naming->words[i];
        naming->named->several |= word->folder || word->n_found > 1;
        if (word->n_found > 0) continue;
        return error_set(e, STATUS_NOT_FOUND,
                         "no document %s %.200s; retro-index list prints the names",
                         word->folder ? "lies below" : "has the name or the id", word->text);
    }
    return STATUS_OK;
}

static void close_naming(struct naming *naming) {
    for (int i = 0; i < naming->n; i++) free(naming->words[i].real);
    free(naming->words);
    key_set_free(&naming->keys);
    key_set_free(&naming->ids);
    filter_release(naming->filter);
}

enum status named_documents_find(struct named_documents *named, struct collection *collection,
                                 char **words, int n, const char *filter, struct error *e) {
    struct naming naming = {
        .named = named, .words = xcalloc((size_t)n + 1, sizeof *naming.words), .n = n};
    bool walks = false;
    enum status status = filter ? filter_parse(&naming.filter, filter, "--filter", e) : STATUS_OK;
    named->several = n == 0;
    if (status == STATUS_OK) status = read_words(&naming, collection, words, &walks, e);
    struct collection_walk walk = {
        .filter = naming.filter, .take = take_document, .context = &naming};
    if (status == STATUS_OK && walks) status = collection_walk(collection, &walk, e);
    if (status == STATUS_OK) status = check_words(&naming, e);
    if (status == STATUS_OK && named->n == 0)
        status = error_set(e, STATUS_NOT_FOUND, "the filter allows no document");
    close_naming(&naming);
    return status;
}

void named_documents_free(struct named_documents *named) {
    for (int i = 0; i < named->n; i++) {
        free(named->documents[i].id);
        free(named->documents[i].path);
    }
    free(named->documents);
    *named = (struct named_documents){0};
}
