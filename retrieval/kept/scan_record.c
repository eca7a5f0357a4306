/* retrieval/kept/scan_record.c: see scan_record.h. */
#include "retrieval/kept/scan_record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "config/base/text.h"
#include "config/json/json_writer.h"
#include "retrieval/open/collection_open.h"

enum { RECORD_BYTES = 1 << 20, LOOKED_AT = 256 };
static const char record_end[] = ".json", lock_end[] = ".lock";

static char *scans_folder(const char *collection) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/scans", collection);
    return path.data;
}

/* Names. */

/* The path without links; as it was given where it leads to nothing. */
static char *resolve(const char *path) {
    char *real = realpath(path, NULL);
    return real ? real : xstrdup(path);
}

/* The file of the paths, which has the same name whatever folder they were named from. */
static char *place_of(const char *folder, char *const *paths, int n, const char *end) {
    struct buffer all = {0}, place = {0};
    for (int i = 0; i < n; i++) {
        char *real = resolve(paths[i]);
        buffer_append(&all, real, strlen(real) + 1);
        free(real);
    }
    buffer_printf(&place, "%s/%016" PRIx64 "%s", folder, hash_bytes(all.data, all.size, 0), end);
    buffer_free(&all);
    return place.data;
}

static enum status make_folder(const char *folder, struct error *e) {
    if (mkdir(folder, 0700) == 0 || errno == EEXIST) return STATUS_OK;
    return error_errno(e, "%s: make folder", folder);
}

/* Writing. */

static void put_skip(struct json_writer *w, const struct scan_skip *skip) {
    put_object(w);
    put_key_string_n(w, "path", skip->path.text, skip->path.size);
    put_key_string(w, "reason", skip->reason);
    put_key_string(w, "remedy", skip->remedy);
    put_object_end(w);
}

static void put_record(const struct scan_record *record, struct buffer *out) {
    struct json_writer w;
    put_begin(&w, out);
    put_object(&w);
    put_key_array(&w, "paths");
    for (int i = 0; i < record->n_paths; i++) {
        char *real = resolve(record->paths[i]);
        put_string(&w, real);
        free(real);
    }
    put_array_end(&w);
    put_key_array(&w, "systems");
    for (int i = 0; i < record->n_paths; i++) put_int(&w, record->systems[i]);
    put_array_end(&w);
    put_key_int(&w, "time", record->time);
    put_key_int(&w, "files", record->n_files);
    put_key_int(&w, "not_read", record->n_other);
    put_key_int(&w, "n_skipped", record->n_skipped);
    put_key_array(&w, "skipped");
    for (int i = 0; i < record->n_listed && i < SCAN_LISTED; i++) put_skip(&w, &record->skips[i]);
    put_array_end(&w);
    put_object_end(&w);
}

/* Under a name of this process's own, then in the place of the record before. */
static enum status replace_file(const char *place, const struct buffer *text, struct error *e) {
    struct buffer part = {0};
    buffer_printf(&part, "%s.%ld", place, (long)getpid());
    int fd = open(part.data, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    bool written = file && fwrite(text->data, 1, text->size, file) == text->size;
    written = file && fclose(file) == 0 && written;
    enum status status = written && rename(part.data, place) == 0
                             ? STATUS_OK
                             : error_errno(e, "%s: write", part.data);
    if (status && fd >= 0) unlink(part.data);
    buffer_free(&part);
    return status;
}

enum status scan_write(const char *collection, const struct scan_record *record, struct error *e) {
    struct buffer text = {0};
    if (collection_name_is_remote(collection)) return STATUS_OK;
    char *folder = scans_folder(collection);
    char *place = place_of(folder, record->paths, record->n_paths, record_end);
    put_record(record, &text);
    enum status status = make_folder(folder, e);
    if (status == STATUS_OK) status = replace_file(place, &text, e);
    buffer_free(&text);
    free(place);
    free(folder);
    return status;
}

/* Locks. */

static struct flock whole_file(short type) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET};
}

enum status scan_follow(const char *collection, char *const *paths, int n_paths, int *lock,
                        struct error *e) {
    struct flock whole = whole_file(F_RDLCK); /* several programs may follow the same paths */
    *lock = -1;
    if (collection_name_is_remote(collection)) return STATUS_OK;
    char *folder = scans_folder(collection);
    char *place = place_of(folder, paths, n_paths, lock_end);
    enum status status = make_folder(folder, e);
    if (status == STATUS_OK) *lock = open(place, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (status == STATUS_OK && (*lock < 0 || fcntl(*lock, F_OFD_SETLK, &whole) != 0))
        status = error_errno(e, "%s: lock", place);
    free(place);
    free(folder);
    return status;
}

/* Asks for the lock without taking it. `record` is the record's file. */
static bool is_followed(const char *record) {
    struct buffer place = {0};
    struct flock whole = whole_file(F_WRLCK);
    buffer_append(&place, record, strlen(record) - strlen(record_end));
    buffer_append(&place, lock_end, sizeof lock_end);
    int fd = open(place.data, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool followed = fd >= 0 && fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
    if (fd >= 0) close(fd);
    buffer_free(&place);
    return followed;
}

/* Reading. */

/* Calls `take` for the file of each record until it gives false. */
static void walk_records(const char *collection, bool (*take)(void *context, const char *record),
                         void *context) {
    if (collection_name_is_remote(collection)) return;
    char *folder = scans_folder(collection);
    DIR *d = opendir(folder);
    bool going = d != NULL;
    for (int i = 0; going && i < LOOKED_AT; i++) {
        struct dirent *entry = readdir(d);
        struct buffer path = {0};
        if (entry == NULL) break;
        if (!ends_with(entry->d_name, record_end)) continue;
        buffer_printf(&path, "%s/%s", folder, entry->d_name);
        going = take(context, path.data);
        buffer_free(&path);
    }
    if (d) closedir(d);
    free(folder);
}

static bool forget_record(void *context, const char *record) {
    (void)context;
    if (!is_followed(record)) unlink(record);
    return true;
}

void scan_forget(const char *collection) { walk_records(collection, forget_record, NULL); }

/* Out: NULL where it cannot be read. The caller closes it. */
static struct json *read_record(const char *place) {
    struct buffer text = {0};
    struct json *json = NULL;
    struct error e;
    if (file_read(place, RECORD_BYTES, &text, &e) == STATUS_OK)
        json_parse(&json, (struct text_span){text.data, text.size}, place, &e);
    buffer_free(&text);
    return json;
}

void scan_read_systems(const char *collection, char *const *paths, int n_paths, int64_t *systems) {
    memset(systems, 0, (size_t)n_paths * sizeof *systems);
    if (collection_name_is_remote(collection)) return;
    char *folder = scans_folder(collection);
    char *place = place_of(folder, paths, n_paths, record_end);
    struct json *json = read_record(place);
    const struct json *list = json_member(json, "systems");
    for (int i = 0; json_is_list(list) && i < n_paths; i++)
        systems[i] = json_int(json_item(list, (size_t)i));
    json_close(json);
    free(place);
    free(folder);
}

struct scan_listing {
    struct scan_found *found;
    int n;
};

static bool take_record(void *context, const char *record) {
    struct scan_listing *listing = context;
    struct json *json = read_record(record);
    if (json == NULL) return true;
    listing->found[listing->n] = (struct scan_found){json, is_followed(record)};
    listing->n++;
    return listing->n < SCANS_SHOWN;
}

int scan_list(const char *collection, struct scan_found found[SCANS_SHOWN]) {
    struct scan_listing listing = {.found = found};
    walk_records(collection, take_record, &listing);
    return listing.n;
}
