/* server/access/keyring.c: the file of keys. See keyring.h. */
#include "server/access/keyring.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "config/base/hash.h"
#include "config/base/key_set.h"
#include "config/json/json_table.h"
#include "config/json/json_writer.h"

enum { SECRET_BYTES = 32, NAME_MAX_BYTES = 64 };

struct keyring {
    pthread_mutex_t lock; /* guards keys */
    struct key_list keys;
    char *path;
};

/* One line. */

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

static enum status parse_hash(struct json_reader *reader, const struct json *value, void *object) {
    struct key *key = object;
    const char *digits = json_word(value);
    /* The words do not show the value: somebody may have put the key itself there. */
    if (digits == NULL || strlen(digits) != 2 * KEY_HASH_BYTES)
        return json_fail(reader, JSON_FAULT_TYPE,
                         "\"sha256\" must be a string of 64 hexadecimal digits");
    for (int i = 0; i < KEY_HASH_BYTES; i++) {
        int high = hex_value(digits[2 * i]), low = hex_value(digits[2 * i + 1]);
        if (high < 0 || low < 0)
            return json_fail(reader, JSON_FAULT_VALUE,
                             "\"sha256\" must be 64 lower-case hexadecimal digits");
        key->hash[i] = (uint8_t)(high << 4 | low);
    }
    return STATUS_OK;
}

/* A name is shown in logs and metrics. */
static enum status parse_name(struct json_reader *reader, const struct json *value, void *object) {
    struct key *key = object;
    const char *name = json_word(value);
    size_t size = name ? strlen(name) : 0;
    if (size == 0 || size > NAME_MAX_BYTES)
        return json_fail(reader, JSON_FAULT_TYPE, "\"name\" must be a string of 1 to 64 bytes");
    for (size_t i = 0; i < size; i++)
        if (name[i] <= ' ' || name[i] == '"' || name[i] == '\\' || name[i] > '~')
            return json_fail(
                reader, JSON_FAULT_VALUE,
                "\"name\" must be printable ASCII without blanks, quotes and backslashes");
    key->name = xstrdup(name);
    return STATUS_OK;
}

static enum status parse_filter(struct json_reader *reader, const struct json *value,
                                void *object) {
    return filter_read(&((struct key *)object)->filter, reader, value);
}

static const struct json_choice documents_choices[] = {{"off", KEY_DOCUMENTS_OFF},
                                                       {"read", KEY_DOCUMENTS_READ},
                                                       {"write", KEY_DOCUMENTS_WRITE},
                                                       {NULL, 0}};

#define LIMIT(member, kind, most) \
    { .name = #member, .type = kind, JSON_AT(struct key, limits.member), .min = 0, .max = (most) }
static const struct json_field key_fields[] = {
    {.name = "name", .type = JSON_PARSED, .parse = parse_name, .required = true},
    {.name = "sha256", .type = JSON_PARSED, .parse = parse_hash, .required = true},
    {.name = "filter", .type = JSON_PARSED, .parse = parse_filter},
    {.name = "operations", .type = JSON_BOOL, JSON_AT(struct key, operations)},
    {.name = "documents",
     .type = JSON_CHOICE,
     JSON_AT(struct key, documents),
     .choices = documents_choices,
     .fallback = KEY_DOCUMENTS_WRITE},
    LIMIT(concurrent, JSON_INT, 1e6),
    LIMIT(requests_per_minute, JSON_INT, 1e6),
    LIMIT(tokens_per_minute, JSON_INT64, 1e15),
    LIMIT(tokens_per_day, JSON_INT64, 1e15),
    LIMIT(stored_bytes, JSON_INT64, 1e15),
};
static const struct json_table key_table = JSON_TABLE(key_fields);

static enum status key_read(const struct json *record, const char *name, struct key **out,
                            struct error *e) {
    struct json_reader reader = {.name = name, .e = e};
    struct key *key = key_open();
    enum status status = json_table_read(&reader, &key_table, record, key);
    if (status) {
        key_release(key);
        return status;
    }
    key_finish(key);
    *out = key;
    return STATUS_OK;
}

/* The file. */

/* Names and hashes that were seen. */
struct key_names {
    struct key_set names, hashes;
};

static enum status check_unique(struct key_names *seen, const struct key *key, const char *where,
                                struct error *e) {
    uint64_t halves[2];
    size_t size = strlen(key->name);
    memcpy(halves, key->hash, sizeof halves);
    if (!key_set_add(&seen->names, hash_bytes(key->name, size, 0), hash_bytes(key->name, size, 1)))
        return error_set(e, STATUS_INVALID, "%s: another key is called %s", where, key->name);
    if (!key_set_add(&seen->hashes, halves[0], halves[1]))
        return error_set(e, STATUS_INVALID, "%s: %s is the same key as another", where, key->name);
    return STATUS_OK;
}

static enum status take_line(struct key_list *out, struct text_span line, const char *where,
                             struct key_names *seen, struct error *e) {
    struct json *record = NULL;
    struct key *key = NULL;
    if (out->n == KEYRING_MAX_KEYS)
        return error_set(e, STATUS_TOO_LARGE, "%s: the limit is %d keys", where, KEYRING_MAX_KEYS);
    if (json_parse(&record, line, where, e)) return e->status;
    enum status status = key_read(record, where, &key, e);
    json_close(record);
    if (status) return status;
    out->items = xgrow(out->items, out->n, &out->capacity, sizeof(struct key *));
    out->items[out->n] = key;
    out->n++;
    return check_unique(seen, key, where, e);
}

/* Blank lines and comments hold no key. */
static bool line_is_empty(struct text_span line) {
    size_t i = 0;
    while (i < line.size && (line.text[i] == ' ' || line.text[i] == '\t' || line.text[i] == '\r'))
        i++;
    return i == line.size || line.text[i] == '#';
}

static enum status take_lines(struct key_list *out, struct text_span text, const char *name,
                              struct error *e) {
    const char *at = text.text, *end = text.text + text.size;
    struct key_names seen = {0};
    enum status status = STATUS_OK;
    for (int number = 1; at < end && status == STATUS_OK; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        struct text_span line = {at, (size_t)((stop ? stop : end) - at)};
        char where[300];
        snprintf(where, sizeof where, "%.280s:%d", name, number);
        if (!line_is_empty(line)) status = take_line(out, line, where, &seen, e);
        at = stop ? stop + 1 : end;
    }
    key_set_free(&seen.names);
    key_set_free(&seen.hashes);
    return status;
}

enum status key_list_parse(struct key_list *out, struct text_span text, const char *name,
                           struct error *e) {
    *out = (struct key_list){0};
    enum status status = take_lines(out, text, name, e);
    if (status == STATUS_OK && out->n == 0)
        status = error_set(e, STATUS_INVALID,
                           "%s has no key; retro-server --new-key NAME makes one", name);
    if (status) key_list_free(out);
    return status;
}

void key_list_free(struct key_list *list) {
    for (int i = 0; i < list->n; i++) key_release(list->items[i]);
    free(list->items);
    *list = (struct key_list){0};
}

/* Making keys. */

void key_line_write(const char *name, struct text_span secret, struct buffer *out) {
    uint8_t hash[KEY_HASH_BYTES];
    struct buffer digits = {0};
    struct json_writer w;
    key_hash(secret, hash);
    for (int i = 0; i < KEY_HASH_BYTES; i++) buffer_printf(&digits, "%02x", hash[i]);
    put_begin_spaced(&w, out);
    put_object(&w);
    put_key_string(&w, "name", name);
    put_key_string(&w, "sha256", digits.data);
    put_object_end(&w);
    buffer_append_string(out, "\n");
    buffer_free(&digits);
}

enum status key_make(struct buffer *out, struct error *e) {
    uint8_t bytes[SECRET_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return error_errno(e, "random bytes");
    buffer_append_string(out, "retro-");
    for (int i = 0; i < SECRET_BYTES; i++) buffer_printf(out, "%02x", bytes[i]);
    return STATUS_OK;
}

/* The ring. */

static enum status read_file(const char *path, struct key_list *out, struct error *e) {
    struct buffer text = {0};
    enum status status = file_read(path, KEYRING_MAX_BYTES, &text, e);
    if (status == STATUS_OK)
        status = key_list_parse(out, (struct text_span){text.data, text.size}, path, e);
    buffer_free(&text);
    return status;
}

enum status keyring_open(struct keyring **out, const char *path, struct error *e) {
    struct key_list keys;
    if (read_file(path, &keys, e)) return error_prefix(e, "server.keys_file");
    struct keyring *ring = xcalloc(1, sizeof *ring);
    pthread_mutex_init(&ring->lock, NULL);
    ring->keys = keys;
    ring->path = xstrdup(path);
    *out = ring;
    return STATUS_OK;
}

void keyring_close(struct keyring *ring) {
    if (ring == NULL) return;
    key_list_free(&ring->keys);
    pthread_mutex_destroy(&ring->lock);
    free(ring->path);
    free(ring);
}

/* Every key is looked at, so that the time tells nothing about the place of the one that fits. */
static struct key *list_find(const struct key_list *keys, const uint8_t hash[KEY_HASH_BYTES]) {
    struct key *found = NULL;
    for (int i = 0; i < keys->n; i++)
        if (key_hash_is(keys->items[i]->hash, hash)) found = keys->items[i];
    return found;
}

enum status keyring_reload(struct keyring *ring, struct error *e) {
    struct key_list keys, before;
    if (read_file(ring->path, &keys, e)) return error_prefix(e, "server.keys_file");
    pthread_mutex_lock(&ring->lock);
    for (int i = 0; i < keys.n; i++) {
        const struct key *old = list_find(&ring->keys, keys.items[i]->hash);
        if (old) key_share_usage(keys.items[i], old);
    }
    before = ring->keys;
    ring->keys = keys;
    pthread_mutex_unlock(&ring->lock);
    key_list_free(&before);
    return STATUS_OK;
}

struct key *keyring_find(struct keyring *ring, struct text_span secret) {
    uint8_t hash[KEY_HASH_BYTES];
    if (secret.size > KEY_MAX_BYTES) return NULL;
    key_hash(secret, hash);
    pthread_mutex_lock(&ring->lock);
    struct key *found = list_find(&ring->keys, hash);
    if (found) key_hold(found);
    pthread_mutex_unlock(&ring->lock);
    return found;
}

bool keyring_has(struct keyring *ring, const struct key *key) {
    bool has = false;
    pthread_mutex_lock(&ring->lock);
    for (int i = 0; i < ring->keys.n && !has; i++) has = ring->keys.items[i] == key;
    pthread_mutex_unlock(&ring->lock);
    return has;
}

int keyring_count(struct keyring *ring) {
    pthread_mutex_lock(&ring->lock);
    int n = ring->keys.n;
    pthread_mutex_unlock(&ring->lock);
    return n;
}

struct key_list keyring_list(struct keyring *ring) {
    pthread_mutex_lock(&ring->lock);
    struct key_list list = {.n = ring->keys.n, .capacity = ring->keys.n};
    list.items = xcalloc((size_t)max_int(1, list.n), sizeof(struct key *));
    for (int i = 0; i < list.n; i++) {
        list.items[i] = ring->keys.items[i];
        key_hold(list.items[i]);
    }
    pthread_mutex_unlock(&ring->lock);
    return list;
}
