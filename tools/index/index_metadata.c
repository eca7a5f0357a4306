/* tools/index/index_metadata.c: metadata of a file: what --meta says, then FILE.meta.json beside
 * it, then the front matter of Markdown. The first that says a name counts. */
#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "config/base/utf8.h"
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

/* Names that begin with "$" say whose a file is, in which vector stores, and until when: whoever
 * wrote a file does not decide that. */
static bool is_own(struct text_span name) { return name.size > 0 && name.text[0] == '$'; }

/* Of front matter, which other programs write too: such a name is passed over. */
static bool begin_front_matter(void *context, struct text_span name) {
    return !is_own(name) && begin_member(context, name);
}

static enum status check_names(const struct json *object, const char *path, struct error *e) {
    for (struct json_entry it = {0}; json_next(object, &it);)
        if (is_own(it.name))
            return error_set(e, STATUS_INVALID,
                             "%s: %.*s: names that begin with $ are the server's own", path,
                             (int)utf8_prefix(it.name.text, it.name.size, 100), it.name.text);
    return STATUS_OK;
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

/* Without links. A link to another folder would show what a walk is kept from. */
static enum status check_place(const char *real, const char *name, struct error *e) {
    size_t folder = (size_t)(strrchr(name, '/') - name) + 1;
    bool beside = strncmp(real, name, folder) == 0 && strchr(real + folder, '/') == NULL;
    return beside ? STATUS_OK
                  : error_set(e, STATUS_INVALID, "%s: a link that leads to another folder", name);
}

static enum status read_beside(struct json **out, const char *real, const char *name,
                               struct error *e) {
    if (check_place(real, name, e) || json_parse_file(out, real, e)) return e->status;
    if (json_kind(*out) != JSON_KIND_OBJECT)
        return error_set(e, STATUS_INVALID, "%s: %s, not an object", name, json_kind_name(*out));
    return check_names(*out, name, e);
}

/* source: of the file, without links. */
static enum status gather_beside(struct gathering *gathering, const char *source, struct error *e) {
    struct buffer name = {0};
    struct json *object = NULL;
    buffer_printf(&name, "%s.meta.json", source);
    char *real = realpath(name.data, NULL);
    enum status status = real ? read_beside(&object, real, name.data, e) : STATUS_OK;
    if (status == STATUS_OK && object) gather_object(gathering, object);
    json_close(object);
    free(real);
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
        front_matter_read(text, &gathering.w, begin_front_matter, &gathering);
    put_object_end(&gathering.w);
    key_set_free(&gathering.names);
    if (gathering.n == 0) buffer_clear(out);
    if (status == STATUS_OK && gathering.n > 0 && check_size(out, limits, e))
        status = error_prefix(e, "%s", file->path);
    return status;
}
