/* tools/index/index_names.h: which document is which file's, and the names that files are shown by.
 *
 * A document's id is made of its identity: the file's path without links, or below --base, and
 * behind it the document's place in a file of several. So it depends neither on the other paths of
 * a command nor on the working directory. The name is the shortest end of that path, from the
 * folder that was given on, which no other file is shown by. It stays as long as the file has a
 * document: filters, citations and people know it. */
#pragma once

#include "tools/index/index.h"

/* Two numbers of a name. */
struct name_key {
    uint64_t a, b;
};
struct name_key key_of(const char *name);
struct name_key key_of_n(const char *name, size_t size);

/* A document's path ends with its place in its file, which begins with '!' or '#', or is empty.
 * Names of files have these letters too, so each place that may begin there is tried, from the end
 * on. Begin with at = strlen(path); false: there is no other. */
bool part_next(const char *path, size_t *at);
/* Whether `name` is an end of the path without links, from a name in it on; size: of name. */
bool path_ends(const char *path, const char *name, size_t size);
/* Whether an id is made of `head` and `tail`, one behind the other. */
bool id_is_of(const char *id, const char *head, const char *tail);

/* The files that the documents of a collection came from. */
struct known_files {
    struct key_set sources; /* of a file without links: its number + 1 in `names` */
    struct key_set shown;   /* of a name: the number + 1 of the file that is shown by it; -1: of
                               several, or of none */
    char **
        names; /* [n] of each file; NULL: none of its documents has an end of its path for a name */
    int n, capacity;
};

/* The documents that a command may put: what it refuses to replace. */
struct put_plan {
    const struct walk *walk;
    const char *id; /* of the one document; NULL: ids are made of identities */
    bool replace;   /* documents of other files, too */
};

/* Reads them all. STATUS_INVALID, which names both files, where the plan (NULL: none) would replace
 * a document by that of another file. */
enum status known_files_read(struct known_files *files, struct collection *collection,
                             const struct put_plan *plan, struct error *e);
void known_files_free(struct known_files *files);
/* Chooses the name of each of the walk's files; k NULL: of a collection without documents. */
void names_choose(struct walk *walk, const struct known_files *files);
