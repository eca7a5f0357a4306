/* retrieval/generation/generation_private.h: the format on disk (docs/index-format.md) and what its
 * reader and its writer share.
 */
#pragma once

#include "retrieval/generation/generation.h"
#include "retrieval/words/words_writer.h"

enum {
    GENERATION_FORMAT = 9,
    COLLECTION_MAX_CHUNK_LENGTH = 65536,
    COLLECTION_MAX_DIM = 65536,
    COLLECTION_MAX_ID = 512,         /* bytes of a document's id */
    COLLECTION_MAX_STRING = 1 << 20, /* bytes of its path, its title, its metadata and its source */
    GENERATION_NAME_SIZE = 32,       /* room for a generation's folder name */
    MANIFEST_LIMIT = 1 << 16         /* bytes of a MANIFEST */
};

/* One row of chunks.offsets, little endian. */
struct chunk_record {
    uint64_t token;      /* of the first token in chunks.tokens */
    uint64_t start, end; /* bytes of the document's text */
    uint32_t document;
    uint32_t n_tokens; /* 1 .. chunk length */
};
_Static_assert(sizeof(struct chunk_record) == 32, "rows are read straight from the file");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "files are little endian and mapped as they are");

/* One entry of `documents`, little endian, followed by id, path, title, metadata, source and
 * file, a NUL behind each, and its marks (retrieval/marks.h); entries are not aligned. */
struct document_record {
    uint64_t first_chunk, n_chunks;
    uint64_t n_tokens;  /* tokens of documents lie back to back in chunks.tokens */
    uint64_t text_size; /* texts lie back to back in documents.text */
    uint32_t id_size, path_size, title_size, metadata_size; /* without the NULs */
    uint32_t n_marks, source_size, file_size, unused;       /* unused: 0 */
};
_Static_assert(sizeof(struct document_record) == 64, "headers are copied straight from the file");

enum generation_file {
    GENERATION_FILE_TOKENS,
    GENERATION_FILE_OFFSETS,
    GENERATION_FILE_DOCUMENTS,
    GENERATION_FILE_TEXT,
    GENERATION_FILE_WORDS,
    GENERATION_FILE_VECTORS,
    GENERATION_FILE_ORIGINALS, /* of an index that compresses */
    GENERATION_FILE_PICTURE_CHUNKS,
    GENERATION_FILE_PICTURES,
    GENERATION_FILE_SPARSE, /* where texts have sparse weights */
    GENERATION_FILE_COUNT
};

struct manifest {
    struct collection_info info; /* strings are owned */
    struct file_facts {
        uint64_t bytes, checksum;
    } files[GENERATION_FILE_COUNT];
    int metric;        /* the only one */
    uint64_t checksum; /* of the MANIFEST itself: CURRENT repeats it */
};

/* The name of a file in a generation; the vectors' depends on the index. */
const char *generation_file_name(enum generation_file file, const struct collection_info *info);
bool generation_is_exact(const char *index_factory);
/* Whether a generation with these indexes and pictures has that file. */
bool generation_has_file(enum generation_file file, const struct collection_info *info);
/* Whether it has unit length; a NaN has not. */
bool vector_is_unit(const float *v, int dim);

/* Whether a collection can be made so: STATUS_INVALID. */
enum status generation_check_options(const struct collection_options *options, struct error *e);

/* Parses and checks a MANIFEST: checksum, format version, every field present, of its type and in
 * range, nothing else. `name` is what errors call it. Release with manifest_free, also after a
 * failure. */
enum status manifest_parse(struct manifest *manifest, const char *text, size_t size,
                           const char *name, struct error *e);
/* Appends the MANIFEST's text to *out and sets manifest->checksum. */
void manifest_print(struct manifest *manifest, struct buffer *out);
void manifest_free(struct manifest *manifest);

/* "gen-000012" and back; false for any other name. */
void generation_name(char name[GENERATION_NAME_SIZE], int generation);
bool generation_parse(const char *name, int *generation);

/* CURRENT: which generation, and its MANIFEST's checksum. STATUS_NOT_FOUND without the file,
 * STATUS_CORRUPT when it is not one line as written. */
enum status current_read(const char *dir, int *generation, uint64_t *manifest_checksum,
                         struct error *e);
/* Makes CURRENT name a generation, by CURRENT.tmp and a rename; the caller syncs dir. */
enum status current_write(const char *dir, struct generation_origin origin, struct error *e);

/* Opens one generation, which CURRENT need not name. */
enum status disk_generation_open_one(struct disk_generation **out, const char *dir,
                                     struct generation_origin origin, struct error *e);

/* Verified against its own checksum and the one that CURRENT has of it. Release with manifest_free,
 * also after a failure. */
enum status manifest_read(struct manifest *manifest, const char *folder,
                          struct generation_origin origin, struct error *e);
/* Maps a file of a generation whose length and checksum are the MANIFEST's; on failure too it is to
 * be closed. */
enum status file_map_verified(struct file_map *map, const char *path,
                              const struct file_facts *facts, struct error *e);

/* A builder of a generation whose files the caller writes, in builder_folder. The facts are those
 * of m, whose strings it takes over; the number is new. It holds the lock, unless the caller does.
 */
enum status builder_adopt(struct generation_builder **out, const char *dir,
                          struct manifest *manifest, bool locked, struct error *e);
const char *builder_folder(const struct generation_builder *builder);
/* Writes MANIFEST, and puts the folder on the disk: what builder_prepare ends with. */
enum status builder_seal(struct generation_builder *builder, struct error *e);
struct generation_origin builder_origin(
    const struct generation_builder *builder); /* once it is sealed */

/* Builds the indexes of the vectors that wait in a generation's folder, by the facts of info, which
 * get the indexes' names; `asked` is for the chunks' (NULL: by size). */
#define VECTORS_WAITING "vectors.tmp"
#define PICTURES_WAITING "pictures.tmp"
enum status vectors_build(const char *folder, struct collection_info *info, const char *asked,
                          struct error *e);

/* Completes the sparse weights of a generation's chunks, which lie in their file; their ends wait
 * in another, u64 each. */
#define SPARSE_WAITING "sparse.tmp"
enum status sparse_write(const char *folder, int64_t n_chunks, struct error *e);

/* Writes the words of a generation's chunks, which have all been added, into its folder. */
enum status words_write(const char *folder, struct words_writer *writer, struct error *e);

/* A builder's steps on the disk, one at a time; each announces itself to
 * disk_step_hook first, where a test can end the process. The hook is NULL outside tests. */
extern void (*disk_step_hook)(const char *step);
enum status disk_create(int *fd, const char *path,
                        struct error *e); /* a new file; never through a link */
enum status disk_write(int fd, const char *path, const void *bytes, size_t size, struct error *e);
enum status disk_sync(const char *path, struct error *e); /* a file or a folder */
enum status disk_sync_open(int fd, const char *path, struct error *e);
enum status disk_sync_name(const char *path,
                           struct error *e); /* the folder that holds the name of path */
enum status disk_truncate(const char *path, uint64_t size, struct error *e);
/* A new file with this content, on the disk; its name is not. */
enum status disk_write_whole(const char *path, const struct buffer *text, struct error *e);
enum status disk_rename(const char *from, const char *to, struct error *e);
enum status disk_remove(const char *path, struct error *e);
/* Removes the files in a folder, then the folder, where it is there. It holds no folders. */
enum status disk_remove_folder(const char *folder, struct error *e);
enum status disk_remove_generation(const char *dir, int generation, struct error *e);
/* mkdir with parents; an existing folder is fine. */
enum status disk_make_folder(const char *path, struct error *e);
/* Generations present under dir, ascending, into a new array; returns how many there are. */
int disk_list_generations(const char *dir, int **generations);
/* dir/name, and dir/gen-000012, in new memory. */
char *disk_path(const char *dir, const char *name);
char *disk_generation_path(const char *dir, int generation);
