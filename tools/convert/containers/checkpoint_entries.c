/* tools/convert/containers/checkpoint_entries.c: the files of a checkpoint: of a folder, or of an archive, in which
 * they are read where they lie. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/archive/unpack.h"
#include "config/base/line.h"
#include "tools/convert/containers/checkpoint.h"
#include "tools/convert/formats/gzip.h"

enum { DEPTH = 3, ENTRIES_LIMIT = 1 << 20 };

static void add_entry(struct checkpoint *c, const char *name, struct text_span bytes) {
    c->entries = xgrow(c->entries, c->n_entries, &c->entry_capacity, sizeof *c->entries);
    c->entries[c->n_entries] = (struct checkpoint_entry){xstrdup(name), bytes};
    c->n_entries++;
}

static int compare_entries(const void *a, const void *b) {
    return strcmp(((const struct checkpoint_entry *)a)->name, ((const struct checkpoint_entry *)b)->name);
}

static void sort_entries(struct checkpoint *c) {
    if (c->n_entries > 1) qsort(c->entries, (size_t)c->n_entries, sizeof *c->entries, compare_entries);
}

static enum status list_below(struct checkpoint *c, const char *inner, int depth, struct error *e) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/%s", c->folder, inner);
    DIR *dir = opendir(path.data);
    enum status status = dir ? STATUS_OK : error_errno(e, "%s", path.data);
    buffer_free(&path);
    for (struct dirent *entry; dir && status == STATUS_OK && (entry = readdir(dir)) != NULL;) {
        struct buffer name = {0}, whole = {0};
        struct stat st;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        buffer_printf(&name, "%s%s", inner, entry->d_name);
        buffer_printf(&whole, "%s/%s", c->folder, name.data);
        bool there = stat(whole.data, &st) == 0;
        if (there && S_ISREG(st.st_mode)) {
            add_entry(c, name.data, (struct text_span){0});
        } else if (there && S_ISDIR(st.st_mode) && depth > 1) {
            buffer_append_string(&name, "/");
            status = list_below(c, name.data, depth - 1, e);
        }
        if (status == STATUS_OK && c->n_entries > ENTRIES_LIMIT)
            status = error_set(e, STATUS_TOO_LARGE, "%s: more than %d files", c->folder, ENTRIES_LIMIT);
        buffer_free(&name);
        buffer_free(&whole);
    }
    if (dir) closedir(dir);
    return status;
}

enum status checkpoint_list_folder(struct checkpoint *c, struct error *e) {
    if (list_below(c, "", DEPTH, e)) return e->status;
    sort_entries(c);
    return STATUS_OK;
}

static enum status map_file(struct checkpoint *c, const char *path, struct text_span *bytes, struct error *e) {
    struct file_map map;
    for (int i = 0; i < c->n_sources; i++) {
        if (strcmp(c->sources[i].path, path) != 0) continue;
        *bytes = (struct text_span){(const char *)c->sources[i].map.data, c->sources[i].map.size};
        return STATUS_OK;
    }
    if (file_map_open(&map, path, e)) return e->status;
    c->sources = xgrow(c->sources, c->n_sources, &c->source_capacity, sizeof *c->sources);
    c->sources[c->n_sources] = (struct checkpoint_source){xstrdup(path), map};
    c->n_sources++;
    *bytes = (struct text_span){(const char *)map.data, map.size};
    return STATUS_OK;
}

/* The archive, which was the only file until now, becomes what is compressed in it. */
static enum status unpack_file(struct checkpoint *c, struct text_span *bytes, struct error *e) {
    struct file_map map;
    line_print(stderr, "retro-convert: %s is unpacked in %s while it is read", c->folder, c->scratch);
    if (gzip_open(&map, *bytes, c->folder, c->scratch, e)) return e->status;
    file_map_close(&c->sources[0].map);
    c->sources[0].map = map;
    *bytes = (struct text_span){(const char *)map.data, map.size};
    return STATUS_OK;
}

static enum status take_member(void *context, const char *name, struct text_span data, struct error *e) {
    struct checkpoint *c = context;
    if (c->n_entries == ENTRIES_LIMIT)
        return error_set(e, STATUS_TOO_LARGE, "%s: more than %d files", c->folder, ENTRIES_LIMIT);
    static const char nothing[1];
    add_entry(c, name, data.size > 0 ? data : (struct text_span){nothing, 0});
    return STATUS_OK;
}

enum status checkpoint_list_archive(struct checkpoint *c, struct error *e) {
    struct text_span bytes;
    if (map_file(c, c->folder, &bytes, e) || (gzip_is(bytes) && unpack_file(c, &bytes, e))) return e->status;
    if (tar_visit(bytes, c->folder, take_member, c, e)) return e->status;
    sort_entries(c);
    for (int i = 1; i < c->n_entries; i++)
        if (strcmp(c->entries[i].name, c->entries[i - 1].name) == 0)
            return error_set(e, STATUS_CORRUPT, "%s: the tar holds %s twice", c->folder, c->entries[i].name);
    return STATUS_OK;
}

static const struct checkpoint_entry *find_entry(const struct checkpoint *c, const char *name) {
    struct checkpoint_entry wanted = {.name = (char *)(uintptr_t)name};
    if (c->n_entries == 0) return NULL;
    return bsearch(&wanted, c->entries, (size_t)c->n_entries, sizeof *c->entries, compare_entries);
}

bool checkpoint_has(const struct checkpoint *c, const char *name) { return find_entry(c, name) != NULL; }

void checkpoint_enter(struct checkpoint *c, const char *inner) {
    size_t n = strlen(inner);
    int kept = 0;
    for (int i = 0; i < c->n_entries; i++) {
        struct checkpoint_entry *entry = &c->entries[i];
        bool below = strncmp(entry->name, inner, n) == 0 && entry->name[n] != '\0';
        char *name = below ? xstrdup(entry->name + n) : NULL;
        free(entry->name);
        if (!below) continue;
        c->entries[kept] = (struct checkpoint_entry){name, entry->bytes};
        kept++;
    }
    c->n_entries = kept;
    c->inner = inner;
}

enum status checkpoint_read(struct checkpoint *c, const char *name, struct text_span *bytes, struct error *e) {
    const struct checkpoint_entry *entry = find_entry(c, name);
    if (entry == NULL) return error_set(e, STATUS_NOT_FOUND, "%s holds no %s%s", c->folder, c->inner, name);
    *bytes = entry->bytes;
    if (bytes->text) return STATUS_OK;
    struct buffer path = {0};
    buffer_printf(&path, "%s/%s%s", c->folder, c->inner, name);
    enum status status = map_file(c, path.data, bytes, e);
    buffer_free(&path);
    return status;
}
