/* tools/convert/formats/tar.c: tar archives. See tar.h. */
#include "tools/convert/formats/tar.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 512, NAME_LIMIT = 4096, RECORDS_LIMIT = 1 << 20 };

/* Where fields lie in a header. */
enum { AT_NAME = 0, AT_SIZE = 124, AT_SUM = 148, AT_TYPE = 156, AT_MAGIC = 257, AT_PREFIX = 345 };

struct tar_reader {
    const uint8_t *bytes;
    size_t size, at;
    const char *archive;
    struct buffer name; /* of the next file, by a record before it; empty: its header says */
    bool sized;         /* the same of its size */
    uint64_t next_size;
    struct error *e;
};

static enum status fail(const struct tar_reader *r, const char *what) {
    return error_set(r->e, STATUS_CORRUPT, "%s: byte %zu of the tar: %s", r->archive, r->at, what);
}

/* Digits of base 8, or GNU's base 256 for what is too large for them; UINT64_MAX: neither. */
static uint64_t read_number(const uint8_t *p, size_t n) {
    uint64_t v = 0;
    if (p[0] == 0x80) {
        for (size_t i = 1; i < n; i++) v = v << 8 | p[i];
        return n > 9 && (p[1] | p[2] | p[3]) ? UINT64_MAX : v;
    }
    size_t i = 0;
    while (i < n && p[i] == ' ') i++;
    for (; i < n && p[i] != '\0' && p[i] != ' '; i++) {
        if (p[i] < '0' || p[i] > '7') return UINT64_MAX;
        v = v << 3 | (uint64_t)(p[i] - '0');
    }
    return v;
}

/* The sum of all bytes of a header, whose own field counts as blanks. */
static bool sum_fits(const uint8_t *h) {
    uint64_t sum = 0;
    for (size_t i = 0; i < BLOCK; i++) sum += i >= AT_SUM && i < AT_SUM + 8 ? ' ' : h[i];
    return sum == read_number(h + AT_SUM, 8);
}

bool tar_is(struct text_span bytes) {
    const uint8_t *h = (const uint8_t *)bytes.text;
    return bytes.size >= BLOCK && memcmp(h + AT_MAGIC, "ustar", 5) == 0 && sum_fits(h);
}

static void append_field(struct buffer *b, const uint8_t *p, size_t n) {
    buffer_append(b, p, strnlen((const char *)p, n));
}

/* pax: lines "LENGTH KEY=VALUE\n". */
static enum status read_records(struct tar_reader *r, const uint8_t *p, size_t n) {
    while (n > 0) {
        size_t length = 0, digits = 0;
        while (digits < n && digits < 8 && p[digits] >= '0' && p[digits] <= '9') {
            length = 10 * length + (size_t)(p[digits] - '0');
            digits++;
        }
        if (length <= digits + 1 || length > n || p[digits] != ' ' || p[length - 1] != '\n')
            return fail(r, "a record has no length");
        const uint8_t *key = p + digits + 1, *end = p + length - 1;
        size_t left = (size_t)(end - key);
        if (left > 5 && memcmp(key, "path=", 5) == 0) {
            buffer_clear(&r->name);
            buffer_append(&r->name, key + 5, left - 5);
        }
        if (left > 5 && memcmp(key, "size=", 5) == 0) {
            r->sized = true;
            r->next_size = 0;
            for (const uint8_t *d = key + 5; d < end; d++) {
                if (*d < '0' || *d > '9' || r->next_size > UINT64_MAX / 16) return fail(r, "a size is no number");
                r->next_size = 10 * r->next_size + (uint64_t)(*d - '0');
            }
        }
        p += length;
        n -= length;
    }
    return STATUS_OK;
}

/* The name of a file, without "./"; NULL, with the error set, where it leads out of the archive. */
static const char *check_name(const struct tar_reader *r) {
    const char *name = r->name.data;
    if (r->name.size == 0 || r->name.size > NAME_LIMIT || strlen(name) != r->name.size) {
        fail(r, "a file has no name that can be");
        return NULL;
    }
    while (strncmp(name, "./", 2) == 0) name += 2;
    bool leaves = name[0] == '/' || strcmp(name, "..") == 0 || strncmp(name, "../", 3) == 0 ||
                  strstr(name, "/../") != NULL || (strlen(name) > 3 && strcmp(name + strlen(name) - 3, "/..") == 0);
    if (!leaves) return name;
    error_set(r->e, STATUS_CORRUPT, "%s: the tar's file %s lies outside of it: refused", r->archive, name);
    return NULL;
}

/* One header with its data, at r->at, which moves behind them. */
static enum status read_entry(struct tar_reader *r, tar_taker *take, void *context) {
    const uint8_t *h = r->bytes + r->at;
    if (!sum_fits(h)) return fail(r, "no header of a tar: damaged or cut off");
    uint8_t type = h[AT_TYPE];
    uint64_t size = read_number(h + AT_SIZE, 12);
    bool described = type != 'x' && type != 'g' && type != 'L' && type != 'K';
    if (described && r->sized) size = r->next_size;
    size_t left = r->size - r->at - BLOCK;
    if (size > left) return fail(r, "a file is longer than the tar");
    const uint8_t *data = h + BLOCK;
    enum status status = STATUS_OK;
    if (type == 'x' && size <= RECORDS_LIMIT) {
        status = read_records(r, data, (size_t)size);
    } else if (type == 'L' && size <= NAME_LIMIT) {
        buffer_clear(&r->name);
        append_field(&r->name, data, (size_t)size);
    } else if (described) {
        if (r->name.size == 0) {
            append_field(&r->name, h + AT_PREFIX, h[AT_MAGIC + 5] == '\0' ? 155 : 0);
            if (r->name.size > 0) buffer_append_string(&r->name, "/");
            append_field(&r->name, h + AT_NAME, 100);
        }
        buffer_append(&r->name, "", 0);
        const char *name = check_name(r);
        if (name == NULL) return r->e->status;
        if (type == '0' || type == '\0' || type == '7')
            status = take(context, name, (struct text_span){(const char *)data, (size_t)size}, r->e);
        else if (type != '5')
            status = error_set(r->e, STATUS_UNSUPPORTED, "%s: %s in the tar is a link or a device: refused", r->archive,
                               name);
        buffer_clear(&r->name);
        r->sized = false;
    } else if (type != 'g' && type != 'K') {
        return fail(r, "a record is too long");
    }
    uint64_t padded = (size + BLOCK - 1) / BLOCK * BLOCK;
    r->at += BLOCK + (size_t)(padded < left ? padded : left);
    return status;
}

enum status tar_visit(struct text_span bytes, const char *archive, tar_taker *take, void *context, struct error *e) {
    static const uint8_t zeros[BLOCK];
    struct tar_reader r = {.bytes = (const uint8_t *)bytes.text, .size = bytes.size, .archive = archive, .e = e};
    enum status status = STATUS_OK;
    while (status == STATUS_OK && r.size - r.at >= BLOCK && memcmp(r.bytes + r.at, zeros, BLOCK) != 0)
        status = read_entry(&r, take, context);
    if (status == STATUS_OK && r.size - r.at < BLOCK) status = fail(&r, "ends without its last header: cut off");
    buffer_free(&r.name);
    return status;
}
