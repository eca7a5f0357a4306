/* retrieval/kept/kept_name.c: see kept_name.h. */
#include "retrieval/kept/kept_name.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "config/base/sha256.h"
#include "config/base/text.h"

enum { SAME_DIGITS = 32, COPY_DIGITS = 2 * SHA256_BYTES, PIECE_BYTES = 1 << 20 };

/* Reading. */

static bool is_hex(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (!is_digit(text[i]) && !(text[i] >= 'a' && text[i] <= 'f')) return false;
    return true;
}

/* Digits up to the end of the text, without a zero at their beginning. */
static bool read_size(const char *text, uint64_t *size) {
    size_t n = strlen(text);
    *size = 0;
    if (n < 1 || n > 18 || (text[0] == '0' && n > 1)) return false;
    for (size_t i = 0; i < n; i++) {
        if (!is_digit(text[i])) return false;
        *size = *size * 10 + (uint64_t)(text[i] - '0');
    }
    return true;
}

struct kept_name kept_name_read(const char *file) {
    struct kept_name name = {0};
    enum kept_kind kind = KEPT_NOTHING;
    if (file && starts_with(file, "same:")) kind = KEPT_SAME;
    if (file && starts_with(file, "copy:")) kind = KEPT_COPY;
    if (kind == KEPT_NOTHING) return name;
    const char *hash = file + strlen("same:");
    size_t digits = kind == KEPT_SAME ? SAME_DIGITS : COPY_DIGITS;
    if (strlen(hash) < digits + 2 || !is_hex(hash, digits) || hash[digits] != ':' ||
        !read_size(hash + digits + 1, &name.size))
        return (struct kept_name){0};
    memcpy(name.hash, hash, digits);
    name.kind = kind;
    return name;
}

int64_t kept_copy_bytes(const char *file) {
    struct kept_name name = kept_name_read(file);
    return name.kind == KEPT_COPY ? (int64_t)name.size : 0;
}

/* Writing. */

void kept_name_of_bytes(struct text_span bytes, char name[KEPT_NAME_SIZE]) {
    uint8_t hash[SHA256_BYTES];
    char digits[KEPT_HASH_SIZE];
    sha256_hash(&bytes, 1, hash);
    for (int i = 0; i < SHA256_BYTES; i++) snprintf(digits + 2 * i, 3, "%02x", hash[i]);
    snprintf(name, KEPT_NAME_SIZE, "copy:%s:%zu", digits, bytes.size);
}

/* Up to PIECE_BYTES; 0 at the end. */
static ssize_t read_piece(int fd, char *piece) {
    size_t done = 0;
    while (done < PIECE_BYTES) {
        ssize_t n = read(fd, piece + done, PIECE_BYTES - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (n == 0) break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/* Each piece is hashed with the hash of those before as its seed. */
enum status kept_hash_file(int fd, const char *path, char hash[KEPT_HASH_SIZE], uint64_t *size,
                           struct error *e) {
    uint64_t first = 0, second = 1;
    char *piece = xmalloc(PIECE_BYTES);
    ssize_t n = lseek(fd, 0, SEEK_SET) == 0 ? read_piece(fd, piece) : -1;
    *size = 0;
    while (n > 0) {
        first = hash_bytes(piece, (size_t)n, first);
        second = hash_bytes(piece, (size_t)n, second);
        *size += (uint64_t)n;
        n = read_piece(fd, piece);
    }
    free(piece);
    if (n < 0) return error_errno(e, "%s: read", path);
    snprintf(hash, KEPT_HASH_SIZE, "%016" PRIx64 "%016" PRIx64, first, second);
    return STATUS_OK;
}

enum status kept_name_of_path(const char *path, char name[KEPT_NAME_SIZE], struct error *e) {
    char hash[KEPT_HASH_SIZE];
    uint64_t size;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return error_errno(e, "%s", path);
    enum status status = kept_hash_file(fd, path, hash, &size, e);
    close(fd);
    if (status == STATUS_OK) snprintf(name, KEPT_NAME_SIZE, "same:%s:%" PRIu64, hash, size);
    return status;
}
