/* retro/pictures/preprocessor_open.c: the file that says how a model's pictures are prepared, in a
 * folder or of a GGUF model. preprocessor_config.c reads it. */
#include <sys/stat.h>
#include <unistd.h>

#include "config/json/json_table.h"
#include "retro/pictures/preprocessor.h"
#include "retro/weights/gguf_tower.h"

/* The image processor's file, and that of a processor of texts and pictures. */
static const char alone[] = "preprocessor_config.json", both[] = "processor_config.json";

/* Pixtral's processor of texts and pictures tells its image processor the patches. */
static enum status patches_read(struct preprocessor *out, const struct json *root, const char *name,
                                struct error *e) {
    static const struct json_field patch_fields[] = {
        {"patch_size", JSON_INT, JSON_AT(struct preprocessor, patch), .min = 1, .max = 256,
         .fallback = 16},
        {"spatial_merge_size", JSON_INT, JSON_AT(struct preprocessor, merge), .min = 1, .max = 16,
         .fallback = 1},
    };
    static const struct json_table patches = JSON_TABLE(patch_fields, .open = true);
    struct preprocessor keys = *out;
    struct json_reader reader = {.name = name, .e = e};
    if (out->kind != PREPROCESSOR_PIXTRAL) return STATUS_OK;
    if (json_table_read(&reader, &patches, root, &keys)) return e->status;
    *out = keys;
    return STATUS_OK;
}

/* The processor is the document itself, or a part of processor_config.json. */
static enum status preprocessor_read_file(struct preprocessor *out, const char *path,
                                          struct error *e) {
    struct json *root = NULL;
    enum status status = json_parse_file(&root, path, e);
    if (status) return status;
    const struct json *part = json_member(root, "image_processor");
    status = preprocessor_read(out, part ? part : root, path, e);
    if (status == STATUS_OK && part) status = patches_read(out, root, path, e);
    json_close(root);
    return status;
}

/* The file of a GGUF model's tower says how pictures are prepared. */
static enum status preprocessor_open_gguf(struct preprocessor *out, const char *file,
                                          struct error *e) {
    struct buffer text = {0};
    struct json *root = NULL;
    struct gguf *gguf;
    if (gguf_open_model(&gguf, file, e)) return e->status;
    enum status status =
        gguf_joined(gguf)
            ? gguf_write_processor(gguf, &text, e)
            : error_set(e, STATUS_NOT_FOUND,
                        "%s: no file of a vision tower, *mmproj*.gguf, is beside it", file);
    if (status == STATUS_OK)
        status = json_parse(&root, (struct text_span){text.data, text.size}, file, e);
    if (status == STATUS_OK) status = preprocessor_read(out, root, gguf_name(gguf_joined(gguf)), e);
    json_close(root);
    buffer_free(&text);
    gguf_close(gguf);
    return status;
}

/* A folder's file of either name; *there: it has it. */
static enum status preprocessor_open_file(struct preprocessor *out, const char *folder,
                                          const char *name, bool *there, struct error *e) {
    struct buffer file = {0};
    buffer_printf(&file, "%s/%s", folder, name);
    *there = access(file.data, F_OK) == 0;
    enum status status = *there ? preprocessor_read_file(out, file.data, e) : STATUS_OK;
    buffer_free(&file);
    return status;
}

/* A folder that has both files. */
static enum status patches_open_file(struct preprocessor *out, const char *folder,
                                     struct error *e) {
    struct json *root = NULL;
    struct buffer file = {0};
    buffer_printf(&file, "%s/%s", folder, both);
    enum status status = STATUS_OK;
    if (out->kind == PREPROCESSOR_PIXTRAL && access(file.data, F_OK) == 0)
        status = json_parse_file(&root, file.data, e);
    if (status == STATUS_OK && root) status = patches_read(out, root, file.data, e);
    json_close(root);
    buffer_free(&file);
    return status;
}

enum status preprocessor_open(struct preprocessor *out, const char *path, struct error *e) {
    struct stat about;
    struct buffer gguf = {0};
    bool there;
    if (gguf_find_file(path, &gguf)) {
        enum status status = preprocessor_open_gguf(out, gguf.data, e);
        buffer_free(&gguf);
        return status;
    }
    if (stat(path, &about) == 0 && S_ISREG(about.st_mode))
        return preprocessor_read_file(out, path, e);

    if (preprocessor_open_file(out, path, alone, &there, e)) return e->status;
    if (there) return patches_open_file(out, path, e);
    enum status status = preprocessor_open_file(out, path, both, &there, e);
    if (there) return status;
    return error_set(e, STATUS_NOT_FOUND,
                     "%s: preprocessor_config.json is missing: it says how pictures are cut", path);
}
