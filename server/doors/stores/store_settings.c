/* server/doors/stores/store_settings.c: what requests say of a store and of its files, within
 * OpenAI's limits. */
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "server/doors/stores/stores_private.h"

enum { NAME_MOST = 256, MOST_ATTRIBUTES = 16, KEY_MOST = 64, VALUE_MOST = 512, DAYS_MOST = 365 };

static bool refuse(struct failure *failure, const char *field, const char *why) {
    return failure_set(failure, 400, "invalid_value", field, "%s: %s", field, why);
}

static bool is_short(struct text_span text, size_t characters) {
    return utf8_count(text.text, text.size) <= characters &&
           (text.size == 0 || memchr(text.text, '\0', text.size) == NULL);
}

static bool check_attribute(const struct json_entry *entry, const char *field, bool texts_only,
                            struct failure *failure) {
    enum json_kind kind = json_kind(entry->value);
    bool plain = kind == JSON_KIND_BOOL || kind == JSON_KIND_INT || kind == JSON_KIND_REAL;
    if (entry->name.size == 0 || !is_short(entry->name, KEY_MOST))
        return refuse(failure, field, "a name has 1 to 64 characters, none of them NUL");
    if (kind == JSON_KIND_TEXT && !is_short(json_text(entry->value), VALUE_MOST))
        return refuse(failure, field, "a text has at most 512 characters, none of them NUL");
    if (kind == JSON_KIND_TEXT || (plain && !texts_only)) return true;
    return refuse(failure, field,
                  texts_only ? "values are texts" : "values are texts, numbers and booleans");
}

bool attributes_check(const struct json *attributes, const char *field, bool texts_only,
                      struct failure *failure) {
    bool ok = true;
    if (json_is_absent(attributes)) return true;
    if (json_kind(attributes) != JSON_KIND_OBJECT)
        return failure_set(failure, 400, "invalid_type", field, "%s must be an object", field);
    if (json_count(attributes) > MOST_ATTRIBUTES)
        return refuse(failure, field, "has at most 16 members");
    for (struct json_entry it = {0}; ok && json_next(attributes, &it);)
        ok = check_attribute(&it, field, texts_only, failure);
    return ok;
}

/* Expiry. */

static bool read_expiry(int *days, const struct json *expires_after, struct failure *failure) {
    const struct json *number = json_member(expires_after, "days");
    *days = 0;
    if (json_is_absent(expires_after)) return true;
    if (!json_text_is(json_member(expires_after, "anchor"), "last_active_at"))
        return refuse(failure, "expires_after", "the anchor is last_active_at");
    if (!json_is_int(number) || json_int(number) < 1 || json_int(number) > DAYS_MOST)
        return refuse(failure, "expires_after", "days must be 1 .. 365");
    *days = (int)json_int(number);
    return true;
}

bool store_settings_read(struct store_settings *out, const struct json *name,
                         const struct json *metadata, const struct json *expires_after,
                         struct failure *failure) {
    *out = (struct store_settings){.metadata = json_is_absent(metadata) ? NULL : metadata};
    if (!json_is_absent(name)) {
        if (!json_is_text(name) || !is_short(json_text(name), NAME_MOST))
            return refuse(failure, "name", "must be a text of at most 256 characters");
        out->name = name;
    }
    return attributes_check(metadata, "metadata", true, failure) &&
           read_expiry(&out->days, expires_after, failure);
}

void store_settings_set(const struct store_settings *settings, struct store_record *store) {
    if (settings->name) {
        free(store->name);
        store->name = xstrdup(json_text(settings->name).text);
    }
    if (settings->metadata) {
        struct buffer text = {0};
        struct json_writer w;
        put_begin(&w, &text);
        put_json(&w, settings->metadata);
        free(store->metadata);
        store->metadata = text.data;
    }
    if (settings->days > 0 || settings->lasts) store->days = settings->days;
}

/* Chunks. */

void put_key_chunking(struct json_writer *w, const struct served_model *model) {
    struct snapshot *snapshot = collection_hold(model->collection);
    put_key_object(w, "chunking_strategy");
    put_key_string(w, "type", "static");
    put_key_object(w, "static");
    put_key_int(w, "max_chunk_size_tokens", snapshot->info->chunk_length);
    put_key_int(w, "chunk_overlap_tokens", snapshot->info->overlap);
    put_object_end(w);
    put_object_end(w);
    snapshot_release(snapshot);
}

bool chunking_check(const struct json *chunking, const struct served_model *model,
                    struct failure *failure) {
    const struct json *given = json_member(chunking, "static");
    if (json_is_absent(chunking) || json_text_is(json_member(chunking, "type"), "auto"))
        return true;
    if (!json_text_is(json_member(chunking, "type"), "static"))
        return refuse(failure, "chunking_strategy", "the type is auto or static");
    struct snapshot *snapshot = collection_hold(model->collection);
    int length = snapshot->info->chunk_length, overlap = snapshot->info->overlap;
    snapshot_release(snapshot);
    const struct json *size = json_member(given, "max_chunk_size_tokens"),
                      *common = json_member(given, "chunk_overlap_tokens");
    if (json_is_int(size) && json_int(size) == length && json_is_int(common) &&
        json_int(common) == overlap)
        return true;
    return failure_set(failure, 400, "not_supported", "chunking_strategy",
                       "chunking_strategy: the collection has chunks of at most %d tokens with %d "
                       "before them, and cuts no file in another way: send these, or auto",
                       length, overlap);
}
