/* retro/weights/gguf_find.c: the GGUF file or the folder that a model's path stands for. See
 * gguf_folder.h. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/base/text.h"
#include "config/json/json_value.h"
#include "retro/weights/gguf_tower.h"

bool gguf_find_file(const char *path, struct buffer *file) {
    struct stat st;
    struct buffer config = {0}, model = {0};
    if (stat(path, &st) != 0) return false;
    if (!S_ISDIR(st.st_mode)) {
        bool found = ends_with(path, ".gguf");
        if (found) buffer_append_string(file, path);
        return found;
    }
    buffer_printf(&config, "%s/config.json", path);
    buffer_printf(&model, "%s/model.gguf", path);
    bool found = stat(config.data, &st) != 0 && stat(model.data, &st) == 0;
    if (found) buffer_append_string(file, model.data);
    buffer_free(&config);
    buffer_free(&model);
    return found;
}

static int is_tower(const struct dirent *entry) {
    return strstr(entry->d_name, "mmproj") && ends_with(entry->d_name, ".gguf");
}

static enum status fail_ambiguous(const char *folder, struct dirent *const *entries, int n,
                                  struct error *e) {
    enum { SHOWN = 8 };
    struct buffer names = {0};
    for (int i = 0; i < n && i < SHOWN; i++)
        buffer_printf(&names, "%s%s", i ? ", " : "", entries[i]->d_name);
    error_set(e, STATUS_INVALID,
              "%s: %d files could be the vision tower of the model: %s%s: keep the model in a "
              "folder with one of them",
              folder, n, names.data, n > SHOWN ? ", ..." : "");
    buffer_free(&names);
    return e->status;
}

enum status gguf_find_tower(const char *model, struct buffer *file, struct error *e) {
    const char *slash = strrchr(model, '/');
    struct buffer folder = {0};
    struct dirent **entries;
    enum status status = STATUS_OK;
    buffer_printf(&folder, "%.*s", slash ? (int)(slash - model) + 1 : 2, slash ? model : "./");
    int n = scandir(folder.data, &entries, is_tower, alphasort);
    if (n < 0) {
        status = error_errno(e, "%s", folder.data);
        buffer_free(&folder);
        return status;
    }
    if (n == 1)
        buffer_printf(file, "%s%s", folder.data, entries[0]->d_name);
    else if (n > 1)
        status = fail_ambiguous(folder.data, entries, n, e);
    for (int i = 0; i < n; i++) free(entries[i]);
    free(entries);
    buffer_free(&folder);
    return status;
}

/* The tower is the model's from here on. */
static enum status join_tower(struct gguf *model, const char *file, struct error *e) {
    struct gguf *tower;
    if (gguf_open(&tower, file, e)) return e->status;
    gguf_join(model, tower);
    return gguf_check_tower(model, tower, e);
}

static enum status check_model(const struct gguf *gguf, struct error *e) {
    struct text_span name;
    if (!gguf_text(gguf_value_find(gguf, "general.architecture"), &name) || !span_is(name, "clip"))
        return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "%s is the file of a vision tower: name that of the model, beside which the "
                     "tower is found",
                     gguf_name(gguf));
}

enum status gguf_open_model(struct gguf **out, const char *file, struct error *e) {
    struct buffer tower = {0};
    *out = NULL;
    if (gguf_open(out, file, e)) return e->status;
    enum status status = check_model(*out, e);
    if (status == STATUS_OK) status = gguf_find_tower(file, &tower, e);
    if (status == STATUS_OK && tower.size > 0) status = join_tower(*out, tower.data, e);
    buffer_free(&tower);
    if (status == STATUS_OK) return STATUS_OK;
    gguf_close(*out);
    *out = NULL;
    return status;
}

enum status config_read_text(const char *path, struct buffer *json, struct error *e) {
    struct buffer file = {0};
    struct gguf *gguf;
    enum status status;
    if (gguf_find_file(path, &file)) {
        status = gguf_open_model(&gguf, file.data, e);
        if (status == STATUS_OK) {
            status = gguf_write_config(gguf, json, e);
            gguf_close(gguf);
        }
    } else {
        struct buffer text = {0};
        buffer_printf(&file, "%s/config.json", path);
        status = file_read(file.data, JSON_FILE_LIMIT, &text, e);
        if (status == STATUS_OK) json_widen_numbers((struct text_span){text.data, text.size}, json);
        buffer_free(&text);
    }
    buffer_free(&file);
    return status;
}
