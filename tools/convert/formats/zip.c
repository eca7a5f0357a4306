/* tools/convert/formats/zip.c: zip archives of stored files. See zip.h. Only the central directory counts: torch writes
 * local headers without sizes. */
#include "tools/convert/formats/zip.h"

#include "config/base/text.h"

#include <stdlib.h>
#include <string.h>

enum {
    END_BYTES = 22,
    END_COMMENT = 1 << 16,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    FILES_LIMIT = 1 << 22
};

struct zip {
    struct zip_file *files;
    int n, capacity;
};

/* One archive being read. */
struct zip_cursor {
    struct zip *z;
    const char *name;
    const uint8_t *bytes;
    uint64_t size;
    uint64_t directory, directory_end, n; /* where the entries lie, and how many there should be */
    struct error *e;
};

static uint64_t number_at(const uint8_t *p, size_t n) {
    uint64_t v = 0;
    for (size_t i = n; i > 0; i--) v = v << 8 | p[i - 1];
    return v;
}

static enum status fail(const struct zip_cursor *c, const char *what) {
    return error_set(c->e, STATUS_CORRUPT, "%s: %s: damaged, cut off, or no file of torch.save", c->name, what);
}

static bool signed_as(const uint8_t *p, char a, char b) { return p[0] == 'P' && p[1] == 'K' && p[2] == a && p[3] == b; }

/* The end record of 64 bits, where the one before the end says where it is. */
static enum status read_end64(struct zip_cursor *c, uint64_t end) {
    if (end < LOCATOR_BYTES || !signed_as(c->bytes + end - LOCATOR_BYTES, 6, 7)) return STATUS_OK;
    uint64_t at = number_at(c->bytes + end - LOCATOR_BYTES + 8, 8);
    if (at > c->size || c->size - at < END64_BYTES || !signed_as(c->bytes + at, 6, 6))
        return fail(c, "the zip's 64-bit end record is not where it should be");
    c->n = number_at(c->bytes + at + 32, 8);
    c->directory_end = number_at(c->bytes + at + 40, 8);
    c->directory = number_at(c->bytes + at + 48, 8);
    return STATUS_OK;
}

static enum status read_end(struct zip_cursor *c) {
    if (c->size < END_BYTES) return fail(c, "too short for a zip");
    uint64_t at = c->size - END_BYTES;
    uint64_t least = at > END_COMMENT ? at - END_COMMENT : 0;
    while (at > least && !signed_as(c->bytes + at, 5, 6)) at--;
    if (!signed_as(c->bytes + at, 5, 6)) return fail(c, "the zip has no end record");

    c->n = number_at(c->bytes + at + 10, 2);
    c->directory_end = number_at(c->bytes + at + 12, 4);
    c->directory = number_at(c->bytes + at + 16, 4);
    if (read_end64(c, at)) return c->e->status;
    if (c->directory > c->size || c->directory_end > c->size - c->directory)
        return fail(c, "the zip's directory lies outside the file");
    c->directory_end += c->directory;
    return c->n > FILES_LIMIT ? fail(c, "the zip says that it has millions of files") : STATUS_OK;
}

/* Fields of 32 bits that are all ones are in the extra record 1, in this order. */
static enum status widen(const struct zip_cursor *c, const uint8_t *extra, size_t n, uint64_t *fields[3]) {
    while (n >= 4) {
        uint64_t kind = number_at(extra, 2), size = number_at(extra + 2, 2);
        if (size > n - 4) return fail(c, "an extra record of the zip is too long");
        const uint8_t *p = extra + 4;
        uint64_t left = size;
        for (int i = 0; kind == 1 && i < 3; i++) {
            if (*fields[i] != UINT32_MAX) continue;
            if (left < 8) return fail(c, "a 64-bit record of the zip is too short");
            *fields[i] = number_at(p, 8);
            p += 8;
            left -= 8;
        }
        extra += 4 + size;
        n -= 4 + (size_t)size;
    }
    return STATUS_OK;
}

/* A file's data begins behind its local header. */
static enum status find_data(const struct zip_cursor *c, uint64_t local, uint64_t size, struct zip_file *f) {
    if (local > c->size || c->size - local < LOCAL_BYTES || !signed_as(c->bytes + local, 3, 4))
        return fail(c, "a file of the zip is not where its directory says");
    uint64_t header = LOCAL_BYTES + number_at(c->bytes + local + 26, 2) + number_at(c->bytes + local + 28, 2);
    if (header > c->size - local || size > c->size - local - header)
        return fail(c, "a file of the zip is longer than the zip");
    f->data = (struct text_span){(const char *)c->bytes + local + header, (size_t)size};
    return STATUS_OK;
}

/* The entry at *at, which moves to the next. */
static enum status read_entry(struct zip_cursor *c, uint64_t *at) {
    if (c->directory_end - *at < ENTRY_BYTES || !signed_as(c->bytes + *at, 1, 2))
        return fail(c, "the zip's directory is shorter than its end record says");
    const uint8_t *p = c->bytes + *at;
    uint64_t flags = number_at(p + 8, 2), method = number_at(p + 10, 2);
    uint64_t stored = number_at(p + 20, 4), size = number_at(p + 24, 4), local = number_at(p + 42, 4);
    size_t name = (size_t)number_at(p + 28, 2), extra = (size_t)number_at(p + 30, 2);
    uint64_t whole = ENTRY_BYTES + name + extra + number_at(p + 32, 2);
    if (whole > c->directory_end - *at) return fail(c, "an entry of the zip's directory is too long");

    struct zip_file f = {.name = {(const char *)p + ENTRY_BYTES, name}};
    if (widen(c, p + ENTRY_BYTES + name, extra, (uint64_t *[3]){&size, &stored, &local})) return c->e->status;
    if (flags & 1) return fail(c, "a file of the zip is encrypted");
    if (method != 0 || stored != size)
        return error_set(c->e, STATUS_UNSUPPORTED,
                         "%s: the file %.*s in it is compressed (%llu bytes for %llu); torch.save stores its files as "
                         "they are",
                         c->name, (int)name, f.name.text, (unsigned long long)stored, (unsigned long long)size);
    if (find_data(c, local, size, &f)) return c->e->status;
    c->z->files = xgrow(c->z->files, c->z->n, &c->z->capacity, sizeof *c->z->files);
    c->z->files[c->z->n] = f;
    c->z->n++;
    *at += whole;
    return STATUS_OK;
}

static int compare_names(const void *a, const void *b) {
    return span_compare(((const struct zip_file *)a)->name, ((const struct zip_file *)b)->name);
}

static int compare_places(const void *a, const void *b) {
    const struct zip_file *x = a, *y = b;
    return (x->data.text > y->data.text) - (x->data.text < y->data.text);
}

/* Bytes that belong to two files would let a small archive fill a large memory. */
static enum status check_overlaps(struct zip_cursor *c) {
    struct zip_file *files = c->z->files;
    int n = c->z->n;
    if (n == 0) return fail(c, "the zip holds no files");
    qsort(files, (size_t)n, sizeof *files, compare_places);
    const char *end = NULL;
    for (int i = 0; i < n; i++) {
        if (files[i].data.size == 0) continue;
        if (end && files[i].data.text < end) return fail(c, "two files of the zip lie over one another");
        end = files[i].data.text + files[i].data.size;
    }
    qsort(files, (size_t)n, sizeof *files, compare_names);
    for (int i = 1; i < n; i++)
        if (span_compare(files[i - 1].name, files[i].name) == 0) return fail(c, "two files of the zip have one name");
    return STATUS_OK;
}

enum status zip_open(struct zip **out, struct text_span bytes, const char *name, struct error *e) {
    struct zip *z = xcalloc(1, sizeof *z);
    struct zip_cursor c = {.z = z, .name = name, .bytes = (const uint8_t *)bytes.text, .size = bytes.size, .e = e};
    enum status status = read_end(&c);
    uint64_t at = c.directory;
    for (uint64_t i = 0; status == STATUS_OK && i < c.n; i++) status = read_entry(&c, &at);
    if (status == STATUS_OK) status = check_overlaps(&c);
    if (status) {
        zip_close(z);
        return status;
    }
    *out = z;
    return STATUS_OK;
}

void zip_close(struct zip *z) {
    if (z == NULL) return;
    free(z->files);
    free(z);
}

int zip_count(const struct zip *z) { return z->n; }

const struct zip_file *zip_at(const struct zip *z, int i) { return &z->files[i]; }

/* As span_compare, of prefix + name. */
static int compare_joined(struct text_span prefix, struct text_span name, struct text_span b) {
    size_t n = b.size < prefix.size ? b.size : prefix.size;
    int order = memcmp(prefix.text, b.text, n);
    if (order != 0 || b.size < prefix.size) return order != 0 ? order : 1;
    return span_compare(name, (struct text_span){b.text + prefix.size, b.size - prefix.size});
}

const struct zip_file *zip_find(const struct zip *z, struct text_span prefix, struct text_span name) {
    int low = 0, high = z->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        int order = compare_joined(prefix, name, z->files[middle].name);
        if (order == 0) return &z->files[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
