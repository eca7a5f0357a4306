/* tools/convert/formats/zip.c: zip archives of stored files. See zip.h. Only the central directory
 * counts: torch writes local headers without sizes. */
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

static enum status fail(const struct zip_cursor *cursor, const char *what) {
    return error_set(cursor->e, STATUS_CORRUPT,
                     "%s: %s: damaged, cut off, or no file of torch.save", cursor->name, what);
}

static bool signed_as(const uint8_t *p, char a, char b) {
    return p[0] == 'P' && p[1] == 'K' && p[2] == a && p[3] == b;
}

/* The end record of 64 bits, where the one before the end says where it is. */
static enum status read_end64(struct zip_cursor *cursor, uint64_t end) {
    if (end < LOCATOR_BYTES || !signed_as(cursor->bytes + end - LOCATOR_BYTES, 6, 7))
        return STATUS_OK;
    uint64_t at = number_at(cursor->bytes + end - LOCATOR_BYTES + 8, 8);
    if (at > cursor->size || cursor->size - at < END64_BYTES ||
        !signed_as(cursor->bytes + at, 6, 6))
        return fail(cursor, "the zip's 64-bit end record is not where it should be");
    cursor->n = number_at(cursor->bytes + at + 32, 8);
    cursor->directory_end = number_at(cursor->bytes + at + 40, 8);
    cursor->directory = number_at(cursor->bytes + at + 48, 8);
    return STATUS_OK;
}

static enum status read_end(struct zip_cursor *cursor) {
    if (cursor->size < END_BYTES) return fail(cursor, "too short for a zip");
    uint64_t at = cursor->size - END_BYTES;
    uint64_t least = at > END_COMMENT ? at - END_COMMENT : 0;
    while (at > least && !signed_as(cursor->bytes + at, 5, 6)) at--;
    if (!signed_as(cursor->bytes + at, 5, 6)) return fail(cursor, "the zip has no end record");

    cursor->n = number_at(cursor->bytes + at + 10, 2);
    cursor->directory_end = number_at(cursor->bytes + at + 12, 4);
    cursor->directory = number_at(cursor->bytes + at + 16, 4);
    if (read_end64(cursor, at)) return cursor->e->status;
    if (cursor->directory > cursor->size ||
        cursor->directory_end > cursor->size - cursor->directory)
        return fail(cursor, "the zip's directory lies outside the file");
    cursor->directory_end += cursor->directory;
    return cursor->n > FILES_LIMIT ? fail(cursor, "the zip says that it has millions of files")
                                   : STATUS_OK;
}

/* Fields of 32 bits that are all ones are in the extra record 1, in this order. */
static enum status widen(const struct zip_cursor *cursor, const uint8_t *extra, size_t n,
                         uint64_t *fields[3]) {
    while (n >= 4) {
        uint64_t kind = number_at(extra, 2), size = number_at(extra + 2, 2);
        if (size > n - 4) return fail(cursor, "an extra record of the zip is too long");
        const uint8_t *p = extra + 4;
        uint64_t left = size;
        for (int i = 0; kind == 1 && i < 3; i++) {
            if (*fields[i] != UINT32_MAX) continue;
            if (left < 8) return fail(cursor, "a 64-bit record of the zip is too short");
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
static enum status find_data(const struct zip_cursor *cursor, uint64_t local, uint64_t size,
                             struct zip_file *file) {
    if (local > cursor->size || cursor->size - local < LOCAL_BYTES ||
        !signed_as(cursor->bytes + local, 3, 4))
        return fail(cursor, "a file of the zip is not where its directory says");
    uint64_t header = LOCAL_BYTES + number_at(cursor->bytes + local + 26, 2) +
                      number_at(cursor->bytes + local + 28, 2);
    if (header > cursor->size - local || size > cursor->size - local - header)
        return fail(cursor, "a file of the zip is longer than the zip");
    file->data = (struct text_span){(const char *)cursor->bytes + local + header, (size_t)size};
    return STATUS_OK;
}

/* The entry at *at, which moves to the next. */
static enum status read_entry(struct zip_cursor *cursor, uint64_t *at) {
    if (cursor->directory_end - *at < ENTRY_BYTES || !signed_as(cursor->bytes + *at, 1, 2))
        return fail(cursor, "the zip's directory is shorter than its end record says");
    const uint8_t *p = cursor->bytes + *at;
    uint64_t flags = number_at(p + 8, 2), method = number_at(p + 10, 2);
    uint64_t stored = number_at(p + 20, 4), size = number_at(p + 24, 4),
             local = number_at(p + 42, 4);
    size_t name = (size_t)number_at(p + 28, 2), extra = (size_t)number_at(p + 30, 2);
    uint64_t whole = ENTRY_BYTES + name + extra + number_at(p + 32, 2);
    if (whole > cursor->directory_end - *at)
        return fail(cursor, "an entry of the zip's directory is too long");

    struct zip_file file = {.name = {(const char *)p + ENTRY_BYTES, name}};
    if (widen(cursor, p + ENTRY_BYTES + name, extra, (uint64_t *[3]){&size, &stored, &local}))
        return cursor->e->status;
    if (flags & 1) return fail(cursor, "a file of the zip is encrypted");
    if (method != 0 || stored != size)
        return error_set(cursor->e, STATUS_UNSUPPORTED,
                         "%s: the file %.*s in it is compressed (%llu bytes for %llu); torch.save "
                         "stores its files as "
                         "they are",
                         cursor->name, (int)name, file.name.text, (unsigned long long)stored,
                         (unsigned long long)size);
    if (find_data(cursor, local, size, &file)) return cursor->e->status;
    cursor->z->files =
        xgrow(cursor->z->files, cursor->z->n, &cursor->z->capacity, sizeof *cursor->z->files);
    cursor->z->files[cursor->z->n] = file;
    cursor->z->n++;
    *at += whole;
    return STATUS_OK;
}

static int compare_names(const void *a, const void *b) {
    return span_compare(((const struct zip_file *)a)->name, ((const struct zip_file *)b)->name);
}

static int compare_places(const void *a, const void *b) {
    const struct zip_file *file = a, *zip_file = b;
    return (file->data.text > zip_file->data.text) - (file->data.text < zip_file->data.text);
}

/* Bytes that belong to two files would let a small archive fill a large memory. */
static enum status check_overlaps(struct zip_cursor *cursor) {
    struct zip_file *files = cursor->z->files;
    int n = cursor->z->n;
    if (n == 0) return fail(cursor, "the zip holds no files");
    qsort(files, (size_t)n, sizeof *files, compare_places);
    const char *end = NULL;
    for (int i = 0; i < n; i++) {
        if (files[i].data.size == 0) continue;
        if (end && files[i].data.text < end)
            return fail(cursor, "two files of the zip lie over one another");
        end = files[i].data.text + files[i].data.size;
    }
    qsort(files, (size_t)n, sizeof *files, compare_names);
    for (int i = 1; i < n; i++)
        if (span_compare(files[i - 1].name, files[i].name) == 0)
            return fail(cursor, "two files of the zip have one name");
    return STATUS_OK;
}

enum status zip_open(struct zip **out, struct text_span bytes, const char *name, struct error *e) {
    struct zip *zip = xcalloc(1, sizeof *zip);
    struct zip_cursor cursor = {
        .z = zip, .name = name, .bytes = (const uint8_t *)bytes.text, .size = bytes.size, .e = e};
    enum status status = read_end(&cursor);
    uint64_t at = cursor.directory;
    for (uint64_t i = 0; status == STATUS_OK && i < cursor.n; i++)
        status = read_entry(&cursor, &at);
    if (status == STATUS_OK) status = check_overlaps(&cursor);
    if (status) {
        zip_close(zip);
        return status;
    }
    *out = zip;
    return STATUS_OK;
}

void zip_close(struct zip *zip) {
    if (zip == NULL) return;
    free(zip->files);
    free(zip);
}

int zip_count(const struct zip *zip) { return zip->n; }

const struct zip_file *zip_at(const struct zip *zip, int i) { return &zip->files[i]; }

/* As span_compare, of prefix + name. */
static int compare_joined(struct text_span prefix, struct text_span name, struct text_span span) {
    size_t n = span.size < prefix.size ? span.size : prefix.size;
    int order = memcmp(prefix.text, span.text, n);
    if (order != 0 || span.size < prefix.size) return order != 0 ? order : 1;
    return span_compare(name, (struct text_span){span.text + prefix.size, span.size - prefix.size});
}

const struct zip_file *zip_find(const struct zip *zip, struct text_span prefix,
                                struct text_span name) {
    int low = 0, high = zip->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        int order = compare_joined(prefix, name, zip->files[middle].name);
        if (order == 0) return &zip->files[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
