/* retro/weights/gguf_find.c: the GGUF file or the folder that a model's path stands for. See
 * gguf_folder.h. */
#include <string.h>
#include <sys/stat.h>

#include "config/base/text.h"
#include "config/json/json_value.h"
#include "retro/weights/gguf_folder.h"

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

enum status config_read_text(const char *path, struct buffer *json, struct error *e) {
    struct buffer file = {0};
    struct gguf *gguf;
    enum status status;
    if (gguf_find_file(path, &file)) {
        status = gguf_open(&gguf, file.data, e);
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
