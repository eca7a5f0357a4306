/* retrieval/generation/generation_parts.h: what an open generation holds. Private to generation.c,
 * which opens and reads it, and generation_documents.c, which checks what is in it. */
#pragma once

#include "retrieval/generation/generation_private.h"
#include "retrieval/words/words.h"

struct document {
    const char *id, *path, *title, *metadata, *source, *file; /* in the map */
    struct mark_span marks;                                   /* the same */
    uint64_t first_chunk, n_chunks;
    uint64_t token, n_tokens; /* in chunks.tokens */
    uint64_t text, text_size; /* in documents.text */
    size_t facts, facts_size; /* in the collection's */
};

struct disk_generation {
    atomic_int holders;
    char *folder; /* of its generation */
    struct manifest manifest;
    struct file_map maps[GENERATION_FILE_COUNT]; /* of vectors only while they are verified */
    const uint32_t *tokens;
    const struct chunk_record *chunks;
    struct document *documents;
    struct buffer facts;         /* of all metadata */
    struct words *words;         /* over the map */
    struct sparse_index *sparse; /* the same; NULL: texts have no sparse weights */
    struct index *index;
    struct index *pictures;         /* by their own embedder; NULL: there are none */
    const uint64_t *picture_chunks; /* [n] in the map */
};

/* Reads the table of documents, whose files are mapped, and checks that documents, chunks and
 * pictures follow each other and stay within their files. STATUS_CORRUPT names the first that does
 * not; what was read is the generation's. */
enum status generation_read_documents(struct disk_generation *generation, struct error *e);
