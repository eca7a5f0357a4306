/* retrieval/kept/kept_copy.h: copies of uploads, in the folder "files" beside a collection's
 * generations. A copy is named by the SHA-256 of its bytes, readable by its owner alone, and on the
 * disk before the document that names it is put. Documents of the same bytes share it.
 *
 * A copy is there for as long as a document names it. Whoever puts a document holds its copy until
 * then, by a lock that ends with the process; a sweep removes what no document names and nobody
 * holds. So a copy outlives neither a deletion nor a crash, whichever program comes next. */
#pragma once

#include "retrieval/collection.h"
#include "retrieval/kept/kept_name.h"

/* Zeroed: none. */
struct kept_copy {
    bool held;
    int fd; /* with a shared lock */
    char name[KEPT_NAME_SIZE];
};

/* The folder of a collection's copies; the caller frees it. */
char *kept_folder(const char *collection);
/* Makes the folder where it is missing. */
enum status kept_folder_make(const char *folder, struct error *e);
/* The copy of the bytes, held for the caller. It takes as long whether or not they were there. */
enum status kept_copy_write(const char *folder, struct text_span bytes, struct kept_copy *out,
                            struct error *e);
void kept_copy_release(struct kept_copy *copy);
/* The file of a copy; the caller frees it. */
char *kept_copy_path(const char *folder, const char *hash);

struct kept_swept {
    int n_removed;
    int n_held; /* that no document names, and somebody may be about to */
};
/* Removes copies that no document of the collection names. A folder that is missing has none. */
enum status kept_sweep(const char *folder, struct collection *collection, struct kept_swept *swept,
                       struct error *e);
/* Copies those of one folder into that of another collection, which has the same documents. */
enum status kept_copy_all(const char *from, const char *to, struct error *e);
