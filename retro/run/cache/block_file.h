/* retro/run/cache/block_file.h: the rows of one block of keys and values on disk.
 *
 * A file has two parts. The head says what the rows were computed from, and can be read alone; the
 * image has the rows (session_block_get). Little-endian:
 *
 *   head    a mark of 8 bytes; whose rows they are, 8; the address of the rows before, 32, and of
 *           these, 32; what all rows depend on beside ids, 8; the number of ids, 4, and of what
 *           else they read, 4; the bytes of the documents, 8, and of the image, 8; then the ids and
 *           what else they read, 4 each, as a prefix_node has them; the documents; the XXH3 of all
 *           this; zeros up to a multiple of 64
 *   image   and its XXH3
 *
 * Documents are records one behind the other: the bytes of the id, 4; the row of the text from
 * which on it was read, 4; what the document was known by, 8 each (document_part); the id. */
#pragma once

#include "config/base/buffer.h"
#include "config/base/sha256.h"

/* A text up to the end of a block, with all that its rows were computed from: SHA-256 over the
 * address of the text before. The first one stands for whoever may take over the rows. */
struct block_address {
    uint8_t bytes[SHA256_BYTES];
};

/* The part of a document whose text rows were computed from. */
struct document_part {
    struct text_span id;  /* that it is stored under */
    uint64_t start, size; /* bytes of the text from which on it was read; bytes of all its text */
    uint64_t known;       /* bytes from there on that the hash is of: all that was read, or more */
    uint64_t hash;        /* of these and of how the document is called */
    int row;              /* that reads it first */
};

struct block_file {
    uint64_t identity; /* of the model, the program and the device that computed the rows */
    struct block_address before, address;
    uint64_t base;       /* as a prefix_node's root has it, without the scope */
    const int32_t *ids;  /* [n] */
    const int32_t *read; /* [n_read] */
    int n, n_read;
    struct text_span documents;
    uint64_t image_bytes;
    const char *image; /* NULL: the head alone was read */
};

/* The address of these rows from that of the rows before. */
void block_file_address(const struct block_file *file, struct block_address *address);

/* Reads what is the beginning of a file of `size` bytes; pointers stay in these bytes, which begin
 * at a multiple of 8. Where all of the file is there, its image is checked too. STATUS_CORRUPT,
 * with `name` in the text; STATUS_TOO_LARGE when the head is longer than the bytes: *wanted says
 * how long. */
enum status block_file_parse(struct block_file *file, struct text_span bytes, uint64_t size,
                             const char *name, size_t *wanted, struct error *e);
/* The bytes of all of the file. */
uint64_t block_file_bytes(const struct block_file *file);
/* The file's bytes, its address computed. */
void block_file_print(struct block_file *file, struct buffer *out);

/* The document at *at, which moves on; false behind the last one. Of a file that was parsed. */
bool block_file_next_document(struct text_span documents, size_t *at, struct document_part *out);
void document_part_print(const struct document_part *part, struct buffer *out);
