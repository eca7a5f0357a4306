/* retro/run/cache/block_file.c: see block_file.h. */
#include "retro/run/cache/block_file.h"

#include <string.h>

#include "config/base/hash.h"
#include "kernels/backend.h"

static const char mark[8] = "RETROBK2";
enum { ALIGNMENT = 64, MOST_READ = 1 << 24 };
static const uint64_t MOST_DOCUMENTS = (uint64_t)1 << 26, MOST_IMAGE = (uint64_t)1 << 40;

struct block_head {
    char mark[8];
    uint64_t identity;
    struct block_address before, address;
    uint64_t base;
    uint32_t n, n_read;
    uint64_t documents_bytes, image_bytes;
};

struct document_head {
    uint32_t id_bytes, row;
    uint64_t start, size, known, hash;
};

void block_file_address(const struct block_file *file, struct block_address *address) {
    const uint64_t counts[] = {file->base, (uint64_t)file->n, (uint64_t)file->n_read};
    const struct text_span parts[] = {
        {(const char *)file->before.bytes, sizeof file->before.bytes},
        {(const char *)counts, sizeof counts},
        {(const char *)file->ids, (size_t)file->n * sizeof *file->ids},
        {(const char *)file->read, (size_t)file->n_read * sizeof *file->read}};
    sha256_hash(parts, ARRAY_COUNT(parts), address->bytes);
}

/* Where parts of a file begin, from the numbers in its head. */
struct block_layout {
    size_t read, documents, checksum, image;
};

static struct block_layout layout_of(const struct block_head *head) {
    struct block_layout at;
    at.read = sizeof *head + head->n * sizeof(int32_t);
    at.documents = at.read + head->n_read * sizeof(int32_t);
    at.checksum = at.documents + (size_t)head->documents_bytes;
    size_t end = at.checksum + sizeof(uint64_t);
    at.image = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

/* Numbers that fit together. */
static enum status check_numbers(const struct block_head *head, uint64_t size, const char *name,
                                 struct error *e) {
    if (head->n < 1 || head->n > ATTENTION_BLOCK || head->n_read > MOST_READ ||
        head->documents_bytes > MOST_DOCUMENTS || head->image_bytes < 1 ||
        head->image_bytes > MOST_IMAGE)
        return error_set(e, STATUS_CORRUPT, "%s: %u rows of %llu bytes", name, head->n,
                         (unsigned long long)head->image_bytes);
    uint64_t expected = layout_of(head).image + head->image_bytes + sizeof(uint64_t);
    if (size == expected) return STATUS_OK;
    return error_set(e, STATUS_CORRUPT, "%s: %llu bytes, expected %llu", name,
                     (unsigned long long)size, (unsigned long long)expected);
}

static enum status check_documents(struct text_span documents, const char *name, struct error *e) {
    struct document_part part;
    size_t at = 0;
    while (block_file_next_document(documents, &at, &part)) continue;
    if (at == documents.size) return STATUS_OK;
    return error_set(e, STATUS_CORRUPT, "%s: a document's record is cut", name);
}

static bool checksum_fits(const char *bytes, size_t first, size_t end) {
    uint64_t checksum;
    memcpy(&checksum, bytes + end, sizeof checksum);
    return hash_bytes(bytes + first, end - first, 0) == checksum;
}

/* Of bytes that have the whole head. */
static enum status parse_head(struct block_file *file, const char *bytes,
                              const struct block_head *head, const char *name, struct error *e) {
    struct block_layout at = layout_of(head);
    struct block_address address;
    if (!checksum_fits(bytes, 0, at.checksum))
        return error_set(e, STATUS_CORRUPT, "%s: the checksum of its head does not fit", name);
    *file = (struct block_file){
        .identity = head->identity,
        .before = head->before,
        .address = head->address,
        .base = head->base,
        .ids = (const int32_t *)(const void *)(bytes + sizeof *head),
        .read = (const int32_t *)(const void *)(bytes + at.read),
        .n = (int)head->n,
        .n_read = (int)head->n_read,
        .documents = {bytes + at.documents, (size_t)head->documents_bytes},
        .image_bytes = head->image_bytes,
    };
    block_file_address(file, &address);
    if (memcmp(&address, &file->address, sizeof address) != 0)
        return error_set(e, STATUS_CORRUPT, "%s: its address is not that of its rows", name);
    return check_documents(file->documents, name, e);
}

enum status block_file_parse(struct block_file *file, struct text_span bytes, uint64_t size,
                             const char *name, size_t *wanted, struct error *e) {
    struct block_head head;
    *wanted = 0;
    if (size < sizeof head || bytes.size < sizeof head ||
        memcmp(bytes.text, mark, sizeof mark) != 0)
        return error_set(e, STATUS_CORRUPT, "%s: no file of a block's rows", name);
    memcpy(&head, bytes.text, sizeof head);
    if (check_numbers(&head, size, name, e)) return e->status;
    struct block_layout at = layout_of(&head);
    *wanted = at.image;
    if (bytes.size < at.image)
        return error_set(e, STATUS_TOO_LARGE, "%s: a head of %zu bytes", name, at.image);
    if (parse_head(file, bytes.text, &head, name, e)) return e->status;
    if (bytes.size < size) return STATUS_OK;
    if (!checksum_fits(bytes.text, at.image, at.image + (size_t)head.image_bytes))
        return error_set(e, STATUS_CORRUPT, "%s: the checksum of its rows does not fit", name);
    file->image = bytes.text + at.image;
    return STATUS_OK;
}

static struct block_head head_of(const struct block_file *file) {
    struct block_head head = {.identity = file->identity,
                              .before = file->before,
                              .address = file->address,
                              .base = file->base,
                              .n = (uint32_t)file->n,
                              .n_read = (uint32_t)file->n_read,
                              .documents_bytes = file->documents.size,
                              .image_bytes = file->image_bytes};
    memcpy(head.mark, mark, sizeof mark);
    return head;
}

uint64_t block_file_bytes(const struct block_file *file) {
    struct block_head head = head_of(file);
    return layout_of(&head).image + head.image_bytes + sizeof(uint64_t);
}

void block_file_print(struct block_file *file, struct buffer *out) {
    static const char zeros[ALIGNMENT];
    size_t first = out->size;
    block_file_address(file, &file->address);
    struct block_head head = head_of(file);
    struct block_layout at = layout_of(&head);
    buffer_append(out, &head, sizeof head);
    buffer_append(out, file->ids, (size_t)file->n * sizeof *file->ids);
    buffer_append(out, file->read, (size_t)file->n_read * sizeof *file->read);
    buffer_append(out, file->documents.text, file->documents.size);
    uint64_t checksum = hash_bytes(out->data + first, at.checksum, 0);
    buffer_append(out, &checksum, sizeof checksum);
    buffer_append(out, zeros, at.image - (out->size - first));
    buffer_append(out, file->image, (size_t)file->image_bytes);
    checksum = hash_bytes(file->image, (size_t)file->image_bytes, 0);
    buffer_append(out, &checksum, sizeof checksum);
}

/* Documents. */

bool block_file_next_document(struct text_span documents, size_t *at, struct document_part *out) {
    struct document_head head;
    size_t left = documents.size - *at;
    if (left < sizeof head) return false;
    memcpy(&head, documents.text + *at, sizeof head);
    if (head.id_bytes > left - sizeof head || head.row > INT32_MAX) return false;
    *out = (struct document_part){{documents.text + *at + sizeof head, head.id_bytes},
                                  head.start,
                                  head.size,
                                  head.known,
                                  head.hash,
                                  (int)head.row};
    *at += sizeof head + head.id_bytes;
    return true;
}

void document_part_print(const struct document_part *part, struct buffer *out) {
    struct document_head head = {.id_bytes = (uint32_t)part->id.size,
                                 .row = (uint32_t)part->row,
                                 .start = part->start,
                                 .size = part->size,
                                 .known = part->known,
                                 .hash = part->hash};
    buffer_append(out, &head, sizeof head);
    buffer_append(out, part->id.text, part->id.size);
}
