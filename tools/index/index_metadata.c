/* tools/index/index_metadata.c: metadata of a file: what --meta says, then FILE.meta.json beside
 * it, then the front matter of Markdown. The first that says a name counts. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "config/json/json_writer.h"
#include "retrieval/extract/front_matter.h"
#include "tools/index/index.h"

/* Metadata as it is gathered. */
struct gathering {
    struct json_writer w;
    struct key_set names;
    int n;
};

/* Whether it is within its limits. */
static enum status check_size(const struct buffer *metadata, const struct metadata_limits *limits,
                              struct error *e) {
    struct json *object;
    struct text_span text = {metadata->data, metadata->size};
    if (json_parse(&object, text, "metadata", e)) return e->status;
    enum status status = metadata_fits(object, text.size, limits, e);
    json_close(object);
    return status;
}

/* Whether the name is new; its key is written then. */
static bool begin_member(void *context, struct text_span name) {
    struct gathering *gathering = context;
    if (!key_set_add(&gathering->names, hash_bytes(name.text, name.size, 0),
                     hash_bytes(name.text, name.size, 1)))
        return false;
    put_key_n(&gathering->w, name.text, name.size);
    gathering->n++;
    return true;
}

static void gather_object(struct gathering *gathering, const struct json *object) {
    for (struct json_entry it = {0}; json_next(object, &it);)
        if (begin_member(gathering, it.name)) put_json(&gathering->w, it.value);
}

static enum status gather_given(struct gathering *gathering, const struct buffer *given,
                                struct error *e) {
    struct json *object;
    if (given->size == 0) return STATUS_OK;
    if (json_parse(&object, (struct text_span){given->data, given->size}, "--meta", e))
        return e->status;
    gather_object(gathering, object);
    json_close(object);
    return STATUS_OK;
}

static enum status gather_beside(struct gathering *gathering, const char *path, struct error *e) {
    struct buffer name = {0};
    struct json *object = NULL;
    enum status status = STATUS_OK;
    buffer_printf(&name, "%s.meta.json", path);
    if (access(name.data, F_OK) == 0) {
        status = json_parse_file(&object, name.data, e);
        if (status == STATUS_OK && json_kind(object) != JSON_KIND_OBJECT)
            status = error_set(e, STATUS_INVALID, "%s: %s, not an object", name.data,
                               json_kind_name(object));
        if (status == STATUS_OK) gather_object(gathering, object);
        json_close(object);
    }
    buffer_free(&name);
    return status;
}

struct metadata_limits index_metadata_limits(const struct config *config) {
    return (struct metadata_limits){config->retrieval.max_metadata_values,
                                    config->retrieval.max_metadata_bytes};
}

enum status metadata_of_file(struct buffer *out, const struct buffer *given,
                             const struct found_file *file, struct text_span text,
                             const struct metadata_limits *limits, struct error *e) {
    struct gathering gathering = {0};
    buffer_clear(out);
    put_begin(&gathering.w, out);
    put_object(&gathering.w);
    enum status status = gather_given(&gathering, given, e);
    if (status == STATUS_OK) status = gather_beside(&gathering, file->source, e);
    if (status == STATUS_OK && file->kind == DOCUMENT_MARKDOWN)
        front_matter_read(text, &gathering.w, begin_member, &gathering);
    put_object_end(&gathering.w);
    key_set_free(&gathering.names);
    if (gathering.n == 0) buffer_clear(out);
    if (status == STATUS_OK && gathering.n > 0 && check_size(out, limits, e))
        status = error_prefix(e, "%s", file->path);
    return status;
}
