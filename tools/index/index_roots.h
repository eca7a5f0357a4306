/* tools/index/index_roots.h: the paths that a scan was given, from one scan to the next. Where a
 * file system is not mounted its folder is there all the same, and empty: nothing in it is gone. */
#pragma once

#include "tools/index/index.h"

struct given_roots {
    char *const *paths; /* [n] borrowed */
    int n;
    struct given_root {
        int64_t system;         /* number of the file system that files were found on; 0: none */
        int64_t device, number; /* what the path led to when it was looked at; 0: to nothing */
        bool empty;             /* it is there, and the walk has found no file in it */
        bool told, told_bare;   /* that it leads to nothing; that it is bare */
    } * roots;                  /* [n] */
};

/* Remembers the file systems of the latest scan of the same paths. The caller frees *out. */
void roots_open(struct given_roots *out, const char *collection, char *const *paths, int n);
void roots_free(struct given_roots *given);
/* Looks at the paths, before they are walked. */
void roots_look(struct given_roots *given);
/* Says of those that lead to nothing that their documents stay; once, until they are there again.
 */
void roots_tell_missing(struct given_roots *given);
/* Whether a path leads to something else than when it was looked at. */
bool roots_differ(const struct given_roots *given);
/* Remembers the file systems on which the walk of these paths has found files. */
void roots_note_found(struct given_roots *given, const struct walk *walk);
/* Takes those folders out of the walk's roots that have no file, and are on another file system
 * than before: so their documents stay. Says so once. */
void roots_spare_bare(struct given_roots *given, struct walk *walk);
