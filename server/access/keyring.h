/* server/access/keyring.h: the keys that clients may have, from a file of JSON lines that holds no
 * key, only hashes:
 *
 *     # one key a line; `retro-server --new-key alice` makes one
 *     {"name": "alice", "sha256": "...", "concurrent": 4, "requests_per_minute": 60,
 * "tokens_per_day": 1000000}
 *
 * The file can be read again while the server runs. */
#pragma once

#include "server/access/key.h"

enum { KEYRING_MAX_KEYS = 10000, KEYRING_MAX_BYTES = 16 << 20 };

struct key_list {
    struct key **items; /* [n] references */
    int n, capacity;
};

/* The text of a file, which errors call `name`. Names and hashes are each there once, and there is
 * at least one. */
enum status key_list_parse(struct key_list *out, struct text_span text, const char *name,
                           struct error *e);
void key_list_free(struct key_list *list);
/* A line for the file, without limits. */
void key_line_write(const char *name, struct text_span secret, struct buffer *out);
/* Appends a new key of 256 random bits. */
enum status key_make(struct buffer *out, struct error *e);

struct keyring;

enum status keyring_open(struct keyring **out, const char *path, struct error *e);
void keyring_close(struct keyring *ring);
/* Reads the file again. A key that stays keeps what it has used. After an error everything is as
 * before. */
enum status keyring_reload(struct keyring *ring, struct error *e);
/* A reference to the key that `secret` is, NULL when there is none. */
struct key *keyring_find(struct keyring *ring, struct text_span secret);
/* Whether the key is one of the file as it was read last. */
bool keyring_has(struct keyring *ring, const struct key *key);
int keyring_count(struct keyring *ring);
/* References to all keys, for key_list_free. */
struct key_list keyring_list(struct keyring *ring);
