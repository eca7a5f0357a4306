/* tools/convert/containers/checkpoint_entries.c: the files of a checkpoint: of a folder, or of an
 * archive, in which they are read where they lie. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/archive/unpack.h"
#include "config/base/line.h"
#include "tools/convert/containers/checkpoint.h"
#include "tools/convert/formats/gzip.h"

enum { DEPTH = 3, ENTRIES_LIMIT = 1 << 20 };

static void add_entry(struct checkpoint *checkpoint, const char *name, struct text_span bytes) {
    checkpoint->entries = xgrow(checkpoint->entries, checkpoint->n_entries,
                                &checkpoint->entry_capacity, sizeof *checkpoint->entries);
    checkpoint->entries[checkpoint->n_entries] = (struct checkpoint_entry){xstrdup(name), bytes};
    checkpoint->n_entries++;
}

static int compare_entries(const void *a, const void *b) {
    return strcmp(((const struct checkpoint_entry *)a)->name,
                  ((const struct checkpoint_entry *)b)->name);
}

static void sort_entries(struct checkpoint *checkpoint) {
    if (checkpoint->n_entries > 1)
        qsort(checkpoint->entries, (size_t)checkpoint->n_entries, sizeof *checkpoint->entries,
              compare_entries);
}

static enum status list_below(struct checkpoint *checkpoint, const char *inner, int depth,
                              struct error *e) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/%s", checkpoint->folder, inner);
    DIR *dir = opendir(path.data);
    enum status status = dir ? STATUS_OK : error_errno(e, "%s", path.data);
    buffer_free(&path);
    for (struct dirent *entry; dir && status == STATUS_OK && (entry = readdir(dir)) != NULL;) {
        struct buffer name = {0}, whole = {0};
        struct stat st;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        buffer_printf(&name, "%s%s", inner, entry->d_name);
        buffer_printf(&whole, "%s/%s", checkpoint->folder, name.data);
        bool there = stat(whole.data, &st) == 0;
        if (there && S_ISREG(st.st_mode)) {
            add_entry(checkpoint, name.data, (struct text_span){0});
        } else if (there && S_ISDIR(st.st_mode) && depth > 1) {
            buffer_append_string(&name, "/");
            status = list_below(checkpoint, name.data, depth - 1, e);
        }
        if (status == STATUS_OK && checkpoint->n_entries > ENTRIES_LIMIT)
            status = error_set(e, STATUS_TOO_LARGE, "%s: more than %d files", checkpoint->folder,
                               ENTRIES_LIMIT);
        buffer_free(&name);
        buffer_free(&whole);
    }
    if (dir) closedir(dir);
    return status;
}

enum status checkpoint_list_folder(struct checkpoint *checkpoint, struct error *e) {
    if (list_below(checkpoint, "", DEPTH, e)) return e->status;
    sort_entries(checkpoint);
    return STATUS_OK;
}

static enum status map_file(struct checkpoint *checkpoint, const char *path,
                            struct text_span *bytes, struct error *e) {
    struct file_map map;
    for (int i = 0; i < checkpoint->n_sources; i++) {
        if (strcmp(checkpoint->sources[i].path, path) != 0) continue;
        *bytes = (struct text_span){(const char *)checkpoint->sources[i].map.data,
                                    checkpoint->sources[i].map.size};
        return STATUS_OK;
    }
    if (file_map_open(&map, path, e)) return e->status;
    checkpoint->sources = xgrow(checkpoint->sources, checkpoint->n_sources,
                                &checkpoint->source_capacity, sizeof *checkpoint->sources);
    checkpoint->sources[checkpoint->n_sources] = (struct checkpoint_source){xstrdup(path), map};
    checkpoint->n_sources++;
    *bytes = (struct text_span){(const char *)map.data, map.size};
    return STATUS_OK;
}

/* The archive, which was the only file until now, becomes what is compressed in it. */
static enum status unpack_file(struct checkpoint *checkpoint, struct text_span *bytes,
                               struct error *e) {
    struct file_map map;
    line_print(stderr, "retro-convert: %s is unpacked in %s while it is read", checkpoint->folder,
               checkpoint->scratch);
    if (gzip_open(&map, *bytes, checkpoint->folder, checkpoint->scratch, e)) return e->status;
    file_map_close(&checkpoint->sources[0].map);
    checkpoint->sources[0].map = map;
    *bytes = (struct text_span){(const char *)map.data, map.size};
    return STATUS_OK;
}

static enum status take_member(void *context, const char *name, struct text_span data,
                               struct error *e) {
    struct checkpoint *checkpoint = context;
    if (checkpoint->n_entries == ENTRIES_LIMIT)
        return error_set(e, STATUS_TOO_LARGE, "%s: more than %d files", checkpoint->folder,
                         ENTRIES_LIMIT);
    static const char nothing[1];
    add_entry(checkpoint, name, data.size > 0 ? data : (struct text_span){nothing, 0});
    return STATUS_OK;
}

enum status checkpoint_list_archive(struct checkpoint *checkpoint, struct error *e) {
    struct text_span bytes;
    if (map_file(checkpoint, checkpoint->folder, &bytes, e) ||
        (gzip_is(bytes) && unpack_file(checkpoint, &bytes, e)))
        return e->status;
    if (tar_visit(bytes, checkpoint->folder, take_member, checkpoint, e)) return e->status;
    sort_entries(checkpoint);
    for (int i = 1; i < checkpoint->n_entries; i++)
        if (strcmp(checkpoint->entries[i].name, checkpoint->entries[i - 1].name) == 0)
            return error_set(e, STATUS_CORRUPT, "%s: the tar holds %s twice", checkpoint->folder,
                             checkpoint->entries[i].name);
    return STATUS_OK;
}

static const struct checkpoint_entry *find_entry(const struct checkpoint *checkpoint,
                                                 const char *name) {
    struct checkpoint_entry wanted = {.name = (char *)(uintptr_t)name};
    if (checkpoint->n_entries == 0) return NULL;
    return bsearch(&wanted, checkpoint->entries, (size_t)checkpoint->n_entries,
                   sizeof *checkpoint->entries, compare_entries);
}

bool checkpoint_has(const struct checkpoint *checkpoint, const char *name) {
    return find_entry(checkpoint, name) != NULL;
}

void checkpoint_enter(struct checkpoint *checkpoint, const char *inner) {
    size_t n = strlen(inner);
    int kept = 0;
    for (int i = 0; i < checkpoint->n_entries; i++) {
        struct checkpoint_entry *entry = &checkpoint->entries[i];
        bool below = strncmp(entry->name, inner, n) == 0 && entry->name[n] != '\0';
        char *name = below ? xstrdup(entry->name + n) : NULL;
        free(entry->name);
        if (!below) continue;
        checkpoint->entries[kept] = (struct checkpoint_entry){name, entry->bytes};
        kept++;
    }
    checkpoint->n_entries = kept;
    checkpoint->inner = inner;
}

enum status checkpoint_read(struct checkpoint *checkpoint, const char *name,
                            struct text_span *bytes, struct error *e) {
    const struct checkpoint_entry *entry = find_entry(checkpoint, name);
    if (entry == NULL)
        return error_set(e, STATUS_NOT_FOUND, "%s holds no %s%s", checkpoint->folder,
                         checkpoint->inner, name);
    *bytes = entry->bytes;
    if (bytes->text) return STATUS_OK;
    struct buffer path = {0};
    buffer_printf(&path, "%s/%s%s", checkpoint->folder, checkpoint->inner, name);
    enum status status = map_file(checkpoint, path.data, bytes, e);
    buffer_free(&path);
    return status;
}
