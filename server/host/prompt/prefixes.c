/* server/host/prompt/prefixes.c: see prefixes.h. */
#include "server/host/prompt/prefixes.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "config/base/text.h"
#include "config/json/json_value.h"
#include "config/json/json_writer.h"
#include "retro/model/identity.h"

enum { MOST_BYTES = 16 << 20 };

/* Chats. */

/* The chat of the file with one more message, of the user. */
static void print_chat(const struct json *file, const char *said, struct buffer *out) {
    struct json_writer w;
    put_begin(&w, out);
    put_object(&w);
    for (struct json_entry it = {0}; json_next(file, &it);) {
        if (strcmp(it.name.text, "messages") == 0) continue;
        put_key(&w, it.name.text);
        put_json(&w, it.value);
    }
    put_key_array(&w, "messages");
    const struct json *messages = json_member(file, "messages");
    for (size_t i = 0; i < json_count(messages); i++) put_json(&w, json_item(messages, i));
    put_object(&w);
    put_key_string(&w, "role", "user");
    put_key_string(&w, "content", said);
    put_object_end(&w);
    put_array_end(&w);
    put_object_end(&w);
}

static enum status encode_request(const struct chat *chat, const struct tokenizer *tokenizer,
                                  const struct json *request, struct tokens *ids, struct error *e) {
    struct chat_input in = {0};
    struct template_output text = {0};
    const struct template *template;
    enum status status = chat_input_read(&in, request, e);
    in.now = chat_now();
    if (status == STATUS_OK) status = chat_pick(chat, &in, &template, e);
    if (status == STATUS_OK) status = chat_render(chat, &in, &text, e);
    if (status == STATUS_OK) status = chat_encode(template, tokenizer, &text, ids, e);
    template_output_free(&text);
    return status;
}

static enum status encode_chat(const struct chat *chat, const struct tokenizer *tokenizer,
                               const struct json *file, const char *said, struct tokens *ids,
                               struct error *e) {
    struct buffer text = {0};
    struct json *request;
    print_chat(file, said, &text);
    enum status status =
        json_parse(&request, (struct text_span){text.data, text.size}, "a prefix", e);
    if (status == STATUS_OK) {
        status = encode_request(chat, tokenizer, request, ids, e);
        json_close(request);
    }
    buffer_free(&text);
    return status;
}

/* The beginning that two chats share which differ in the user's words. */
static enum status read_chat(const struct chat *chat, const struct tokenizer *tokenizer,
                             const char *path, struct tokens *ids, struct error *e) {
    struct tokens other = {0};
    struct json *file;
    if (chat == NULL) return error_set(e, STATUS_UNSUPPORTED, "the model has no chat template");
    if (json_parse_file(&file, path, e)) return e->status;
    enum status status = encode_chat(chat, tokenizer, file, "a", ids, e);
    if (status == STATUS_OK) status = encode_chat(chat, tokenizer, file, "b", &other, e);
    int n = 0;
    while (n < ids->n && n < other.n && ids->ids[n] == other.ids[n]) n++;
    ids->n = n;
    tokens_free(&other);
    json_close(file);
    return status;
}

/* Texts. */

static enum status read_text(const struct tokenizer *tokenizer, const char *path,
                             struct tokens *ids, struct error *e) {
    struct buffer text = {0};
    enum status status = file_read(path, MOST_BYTES, &text, e);
    if (status == STATUS_OK) {
        size_t size = text.size;
        if (size > 0 && text.data[size - 1] == '\n') size--;
        status = tokenizer_encode(tokenizer, text.data, size,
                                  TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_SPECIAL, ids, e);
    }
    buffer_free(&text);
    return status;
}

/* The list. */

static char *stored_path(const char *folder, const char *name) {
    struct buffer path = {0};
    if (folder[0] == '\0') return NULL;
    buffer_printf(&path, "%s/%s.rows", folder, name);
    return path.data;
}

static enum status check_name(const struct prefix_list *list, struct error *e) {
    const char *stored = list->list[list->n - 1].stored;
    for (int i = 0; stored && i < list->n - 1; i++)
        if (strcmp(list->list[i].stored, stored) == 0)
            return error_set(e, STATUS_INVALID,
                             "two files of this name; %s can keep the rows of one", stored);
    return STATUS_OK;
}

static enum status check_length(const struct named_prefix *prefix, int context, struct error *e) {
    if (prefix->ids.n == 0) return error_set(e, STATUS_INVALID, "no text");
    if (prefix->ids.n < context) return STATUS_OK;
    return error_set(e, STATUS_TOO_LARGE, "%d tokens; server.max_context is %d", prefix->ids.n,
                     context);
}

enum status prefixes_open(struct prefix_list *out, const struct prefix_files *files,
                          const struct tokenizer *tokenizer, const struct chat *chat,
                          struct error *e) {
    const struct model_info *model = files->model;
    *out = (struct prefix_list){.list = xcalloc((size_t)max_int(files->n, 1), sizeof *out->list)};
    if (files->n > 0 && (model->chunk_length > 0 || model->reads_source))
        return error_set(
            e, STATUS_UNSUPPORTED,
            "server.prefixes: the rows of a %s model depend on more than the text before them",
            model->family);
    for (int i = 0; i < files->n; i++) {
        struct named_prefix *prefix = &out->list[i];
        const char *path = files->paths[i];
        prefix->name = path_name(path);
        prefix->stored = stored_path(files->folder, prefix->name);
        out->n++;
        enum status status = ends_with(path, ".json")
                                 ? read_chat(chat, tokenizer, path, &prefix->ids, e)
                                 : read_text(tokenizer, path, &prefix->ids, e);
        if (status == STATUS_OK) status = check_length(prefix, files->context, e);
        if (status || check_name(out, e)) return error_prefix(e, "server.prefixes, %s", path);
    }
    return STATUS_OK;
}

void prefixes_close(struct prefix_list *list) {
    for (int i = 0; i < list->n; i++) {
        free(list->list[i].name);
        free(list->list[i].stored);
        tokens_free(&list->list[i].ids);
    }
    free(list->list);
}

/* Identity. */

/* The program's own bytes: another build may add in another order. */
static uint64_t hash_program(void) {
    struct file_map map;
    struct error e;
    if (file_map_open(&map, "/proc/self/exe", &e)) return 0;
    uint64_t hash = hash_bytes(map.data, map.size, 0);
    file_map_close(&map);
    return hash;
}

uint64_t prefixes_identity(const char *folder, struct comm *world, const struct model_info *info,
                           const struct backend *backend) {
    struct buffer text = {0};
    const char *device = backend_describe(backend),
               *end = strchr(device, ','); /* behind it is the number of threads */
    model_identify(folder, world, &text);
    buffer_append(&text, device, end ? (size_t)(end - device) : strlen(device));
    buffer_printf(&text, "\n%s %s %016llx\n", dtype_name(info->dtype),
                  dtype_name(info->cache_dtype), (unsigned long long)hash_program());
    uint64_t identity = hash_bytes(text.data, text.size, 0);
    buffer_free(&text);
    return identity;
}
