/* retrieval/kept/scan_record.h: which folders and files a program has read for a collection, and
 * what of them it could not read and why, for whoever asks later. Records lie in the collection's
 * folder "scans", one for each set of paths: their latest scan. A program that goes on following
 * the paths holds a lock beside the record, which ends with the process. A collection in Milvus has
 * no folder, and so no records. */
#pragma once

#include "config/json/json_value.h"

enum { SCAN_LISTED = 200, SCANS_SHOWN = 16 };

/* A file, or a document within one, that was left out. Borrowed texts. */
struct scan_skip {
    struct text_span path;
    const char *reason;
    const char *remedy; /* NULL: none is known */
};

struct scan_record {
    char *const *paths;     /* [n_paths] as they were given */
    const int64_t *systems; /* [n_paths] numbers of the file systems that they were found on; 0:
                               nothing was */
    int n_paths;
    int64_t time;    /* of its end, in seconds since 1970 */
    int64_t n_files; /* that were found and are of a known kind */
    int64_t n_other; /* of other kinds, and with names that begin with a dot */
    int64_t n_skipped;
    const struct scan_skip *skips; /* [n_listed] the first of these, at most SCAN_LISTED */
    int n_listed;
};

/* Puts the record in the place of the one of the same paths. */
enum status scan_write(const char *collection, const struct scan_record *record, struct error *e);
/* The file systems of the record of these paths; zeros where there is none. */
void scan_read_systems(const char *collection, char *const *paths, int n_paths, int64_t *systems);
/* Says until *lock is closed, or the process ends, that the paths are followed. *lock is -1 for a
 * collection that has no folder. */
enum status scan_follow(const char *collection, char *const *paths, int n_paths, int *lock,
                        struct error *e);
/* Removes the records of paths that nobody follows: the collection was made anew. */
void scan_forget(const char *collection);

/* A record as it was read: an object with the lists "paths" and "skipped" and the integers "time",
 * "files", "not_read" and "n_skipped". */
struct scan_found {
    struct json *json; /* the caller closes it */
    bool followed;
};
/* Fills in at most SCANS_SHOWN, and gives their number. Records that cannot be read are left out,
 * each of at most a MiB is looked at. */
int scan_list(const char *collection, struct scan_found found[SCANS_SHOWN]);
