/* server/doors/stores/record.c: see record.h. */
#include "server/doors/stores/record.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_DAYS = 365, MOST_RECORDS = 1 << 20 };

const struct json_choice file_states[] = {{"in_progress", FILE_IN_PROGRESS},
                                          {"completed", FILE_COMPLETED},
                                          {"failed", FILE_FAILED},
                                          {"cancelled", FILE_CANCELLED},
                                          {NULL, 0}};

#define AT(member) JSON_AT(struct store_record, member)
static const struct json_field store_fields[] = {
    {"id", JSON_TEXT, AT(id), .required = true},
    {"owner", JSON_TEXT, AT(owner), .text = ""},
    {"name", JSON_TEXT, AT(name), .text = ""},
    {"metadata", JSON_TEXT, AT(metadata), .text = "{}"},
    {"created", JSON_INT64, AT(created), .required = true},
    {"active", JSON_INT64, AT(active), .required = true},
    {"days", JSON_INT, AT(days), .min = 0, .max = MOST_DAYS},
};
#undef AT
static const struct json_table store_table = JSON_TABLE(store_fields);
static const struct json_field store_item = {"store", JSON_STRUCT, .table = &store_table};

#define AT(member) JSON_AT(struct file_entry, member)
static const struct json_field entry_fields[] = {
    {"document", JSON_TEXT, AT(document), .required = true},
    {"state", JSON_CHOICE, AT(state), .choices = file_states, .required = true},
    {"code", JSON_TEXT, AT(code), .text = ""},
    {"message", JSON_TEXT, AT(message), .text = ""},
    {"gone", JSON_BOOL, AT(gone)},
};
#undef AT
static const struct json_table entry_table = JSON_TABLE(entry_fields);
static const struct json_field entry_item = {"file", JSON_STRUCT, .table = &entry_table};

#define AT(member) JSON_AT(struct batch_record, member)
static const struct json_field batch_fields[] = {
    {"id", JSON_TEXT, AT(id), .required = true},
    {"owner", JSON_TEXT, AT(owner), .text = ""},
    {"store", JSON_TEXT, AT(store), .required = true},
    {"created", JSON_INT64, AT(created), .required = true},
    {"server", JSON_HEX, AT(server), .required = true},
    {"hidden", JSON_BOOL, AT(hidden)},
    {"cancelled", JSON_BOOL, AT(cancelled)},
    {"files", JSON_LIST, AT(files), .item = &entry_item, .item_size = sizeof(struct file_entry),
     .max = MOST_RECORDS},
};
#undef AT
static const struct json_table batch_table = JSON_TABLE(batch_fields);
static const struct json_field batch_item = {"batch", JSON_STRUCT, .table = &batch_table};

#define AT(member) JSON_AT(struct records, member)
static const struct json_field records_fields[] = {
    {"owned", JSON_BOOL, AT(owned)},
    {"expires", JSON_BOOL, AT(expires)},
    {"stores", JSON_LIST, AT(stores), .item = &store_item, .item_size = sizeof(struct store_record),
     .max = MOST_RECORDS},
    {"batches", JSON_LIST, AT(batches), .item = &batch_item,
     .item_size = sizeof(struct batch_record), .max = MOST_RECORDS},
};
#undef AT
static const struct json_table records_table = JSON_TABLE(records_fields);

/* Reading. */

/* Metadata is written into answers as it is. */
static enum status check_metadata(const struct records *records, const char *name,
                                  struct error *e) {
    const struct store_record *stores = records->stores.items;
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < records->stores.count; i++) {
        struct text_span text = {stores[i].metadata, strlen(stores[i].metadata)};
        struct json *metadata = NULL;
        status = json_parse(&metadata, text, name, e);
        if (status == STATUS_OK && json_kind(metadata) != JSON_KIND_OBJECT)
            status = error_set(e, STATUS_CORRUPT, "%s: metadata of %.80s is no object", name,
                               stores[i].id);
        json_close(metadata);
    }
    return status;
}

enum status records_parse(struct records *out, struct text_span text, const char *name,
                          struct error *e) {
    struct json_reader reader = {.name = name, .text = text, .e = e};
    struct json *root = NULL;
    *out = (struct records){0};
    enum status status = json_parse(&root, text, name, e);
    if (status == STATUS_OK) status = json_table_read(&reader, &records_table, root, out);
    json_close(root);
    return status ? status : check_metadata(out, name, e);
}

void records_free(struct records *records) { json_table_free(&records_table, records); }

/* Writing. */

static void put_stores(struct json_writer *w, const struct json_list *list) {
    const struct store_record *stores = list->items;
    put_key_array(w, "stores");
    for (size_t i = 0; i < list->count; i++) {
        put_object(w);
        put_key_string(w, "id", stores[i].id);
        put_key_string(w, "owner", stores[i].owner);
        put_key_string(w, "name", stores[i].name);
        put_key_string(w, "metadata", stores[i].metadata);
        put_key_int(w, "created", stores[i].created);
        put_key_int(w, "active", stores[i].active);
        put_key_int(w, "days", stores[i].days);
        put_object_end(w);
    }
    put_array_end(w);
}

static void put_entries(struct json_writer *w, const struct json_list *list) {
    const struct file_entry *entries = list->items;
    put_key_array(w, "files");
    for (size_t i = 0; i < list->count; i++) {
        put_object(w);
        put_key_string(w, "document", entries[i].document);
        put_key_string(w, "state", file_state_name((enum file_state)entries[i].state));
        put_key_string(w, "code", entries[i].code);
        put_key_string(w, "message", entries[i].message);
        put_key_bool(w, "gone", entries[i].gone);
        put_object_end(w);
    }
    put_array_end(w);
}

static void put_batches(struct json_writer *w, const struct json_list *list) {
    const struct batch_record *batches = list->items;
    put_key_array(w, "batches");
    for (size_t i = 0; i < list->count; i++) {
        put_object(w);
        put_key_string(w, "id", batches[i].id);
        put_key_string(w, "owner", batches[i].owner);
        put_key_string(w, "store", batches[i].store);
        put_key_int(w, "created", batches[i].created);
        put_key_hex(w, "server", batches[i].server);
        put_key_bool(w, "hidden", batches[i].hidden);
        put_key_bool(w, "cancelled", batches[i].cancelled);
        put_entries(w, &batches[i].files);
        put_object_end(w);
    }
    put_array_end(w);
}

void records_write(const struct records *records, struct buffer *out) {
    struct json_writer w;
    put_begin(&w, out);
    put_object(&w);
    put_key_bool(&w, "owned", records->owned);
    put_key_bool(&w, "expires", records->expires);
    put_stores(&w, &records->stores);
    put_batches(&w, &records->batches);
    put_object_end(&w);
}

/* Copies. */

struct store_record store_record_copy(const struct store_record *store) {
    struct store_record copy = *store;
    copy.id = xstrdup(store->id);
    copy.owner = xstrdup(store->owner);
    copy.name = xstrdup(store->name);
    copy.metadata = xstrdup(store->metadata);
    return copy;
}

void store_record_free(struct store_record *store) { json_table_free(&store_table, store); }

/* Lists. */

void *list_add(struct json_list *list, size_t item_size) {
    list->items = xrealloc(list->items, (list->count + 1) * item_size);
    void *item = (char *)list->items + list->count * item_size;
    memset(item, 0, item_size);
    list->count++;
    return item;
}

static void list_drop(struct json_list *list, size_t i, size_t item_size) {
    char *item = (char *)list->items + i * item_size;
    memmove(item, item + item_size, (list->count - i - 1) * item_size);
    list->count--;
}

void records_drop_store(struct records *records, size_t i) {
    json_table_free(&store_table, (struct store_record *)records->stores.items + i);
    list_drop(&records->stores, i, sizeof(struct store_record));
}

void records_drop_batch(struct records *records, size_t i) {
    json_table_free(&batch_table, (struct batch_record *)records->batches.items + i);
    list_drop(&records->batches, i, sizeof(struct batch_record));
}
