/* server/doors/stores/file_facts.c: see file_facts.h. */
#include "server/doors/stores/file_facts.h"

#include <string.h>

static const char membership[] = "$vs_";
enum { MEMBERSHIP_BYTES = 4, STORE_DIGITS = 32, NAME_BYTES = MEMBERSHIP_BYTES + STORE_DIGITS };

/* "$" and the id of a store at the beginning of a name; then the id is copied. */
static bool begins_with_store(struct text_span name, char store[STORE_ID_BYTES]) {
    if (name.size < NAME_BYTES || !span_starts_with(name, membership)) return false;
    memcpy(store, name.text + 1, NAME_BYTES - 1);
    store[NAME_BYTES - 1] = '\0';
    return strspn(store + MEMBERSHIP_BYTES - 1, "0123456789abcdef") == STORE_DIGITS;
}

bool fact_is_membership(const struct fact *fact, char store[STORE_ID_BYTES]) {
    return fact->kind == FACT_INT && fact->name.size == NAME_BYTES &&
           begins_with_store(fact->name, store);
}

void file_facts_read(struct file_facts *out, const struct stored_document *document) {
    struct fact fact;
    *out = (struct file_facts){0};
    for (size_t at = 0; facts_next(document->facts, &at, &fact);) {
        bool whole = fact.kind == FACT_INT, text = fact.kind == FACT_TEXT;
        if (text && span_is(fact.name, "$purpose")) out->purpose = fact.text;
        if (text && span_is(fact.name, "$owner")) out->owner = fact.text;
        if (whole && span_is(fact.name, "$created")) out->created = fact.whole;
        if (whole && span_is(fact.name, "$bytes")) out->bytes = fact.whole;
        if (whole && span_is(fact.name, "$until")) out->until = fact.whole;
    }
    out->uploaded = out->purpose.size > 0;
}

/* Attributes. */

void attribute_name_append(struct buffer *out, const char *store, struct text_span key) {
    if (store) buffer_printf(out, "$%s.", store);
    buffer_append(out, key.text, key.size);
}

/* The attribute's own name; NULL: the member is none of the store. */
static struct text_span attribute_of(struct text_span name, const char *store) {
    char id[STORE_ID_BYTES];
    bool own = name.size > 0 && name.text[0] == '$';
    if (store == NULL) return own ? (struct text_span){0} : name;
    if (!begins_with_store(name, id) || strcmp(id, store) != 0 || name.size <= NAME_BYTES ||
        name.text[NAME_BYTES] != '.')
        return (struct text_span){0};
    return (struct text_span){name.text + NAME_BYTES + 1, name.size - NAME_BYTES - 1};
}

void put_key_attributes(struct json_writer *w, const char *metadata, const char *store) {
    struct json *object = NULL;
    struct error e;
    bool any = metadata && metadata[0] != '\0';
    if (any && json_parse(&object, (struct text_span){metadata, strlen(metadata)}, "metadata", &e))
        log_warn("a document's metadata cannot be read: %s", e.text);
    put_key_object(w, "attributes");
    for (struct json_entry it = {0}; json_next(object, &it);) {
        struct text_span name = attribute_of(it.name, store);
        if (name.text == NULL) continue;
        put_key_n(w, name.text, name.size);
        put_json(w, it.value);
    }
    put_object_end(w);
    json_close(object);
}

/* Writing. */

void file_metadata_begin(struct buffer *out, const struct file_upload *upload) {
    struct json_writer w;
    put_begin(&w, out);
    put_object(&w);
    put_key_string(&w, "$purpose", upload->purpose);
    put_key_int(&w, "$created", upload->created);
    put_key_int(&w, "$bytes", upload->bytes);
    if (upload->until > 0) put_key_int(&w, "$until", upload->until);
    if (upload->owner) put_key_string(&w, "$owner", upload->owner);
    put_object_end(&w);
}

/* Whether the member stays as it is. */
static bool is_kept(const struct file_metadata_change *change, struct text_span name) {
    char store[STORE_ID_BYTES];
    if (!begins_with_store(name, store)) return true;
    return strcmp(store, change->store) != 0 && change->knows(change->context, store);
}

static void put_membership(struct json_writer *w, const struct json *before,
                           const struct file_metadata_change *change) {
    struct buffer name = {0};
    buffer_printf(&name, "$%s", change->store);
    const struct json *since = json_member(before, name.data);
    put_key_int(w, name.data, json_is_int(since) ? json_int(since) : change->since);
    for (struct json_entry it = {0}; json_next(change->attributes, &it);) {
        buffer_clear(&name);
        attribute_name_append(&name, change->store, it.name);
        put_key_n(w, name.data, name.size);
        put_json(w, it.value);
    }
    buffer_free(&name);
}

enum status file_metadata_change(struct buffer *out, const char *metadata,
                                 const struct file_metadata_change *change, struct error *e) {
    struct json *before = NULL;
    struct json_writer w;
    if (json_parse(&before, (struct text_span){metadata, strlen(metadata)}, "metadata", e))
        return e->status;
    buffer_clear(out);
    put_begin(&w, out);
    put_object(&w);
    for (struct json_entry it = {0}; json_next(before, &it);) {
        if (!is_kept(change, it.name)) continue;
        put_key_n(&w, it.name.text, it.name.size);
        put_json(&w, it.value);
    }
    if (change->is_in) put_membership(&w, before, change);
    put_object_end(&w);
    json_close(before);
    return STATUS_OK;
}
