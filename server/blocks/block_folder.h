/* server/blocks/block_folder.h: the files of a folder that keeps blocks of keys and values from one
 * start to the next. One process at a time has it, and only its owner can read it. Each file is
 * named by its block's address. */
#pragma once

#include "config/base/buffer.h"
#include "retro/run/cache/block_file.h"

struct block_folder {
    const char *path;
    int fd, lock;
};

/* Checks a folder that is there as opening does, but for its lock. Opening makes one that is not.
 */
enum status block_folder_check(const char *path, struct error *e);
/* Makes the folder where there is none, and locks it. STATUS_INVALID where others can read it,
 * STATUS_BUSY where another process has it. */
enum status block_folder_open(struct block_folder *folder, const char *path, struct error *e);
void block_folder_close(struct block_folder *folder);

/* A file as a scan finds it; the head alone. */
typedef void block_taker(void *context, const struct block_file *file, int64_t used);
struct block_scan {
    uint64_t identity; /* files of another one are removed */
    block_taker *take;
    void *context;
    int n_foreign, n_broken; /* files that were removed */
};
/* Removes what is left of files that were being written, and files that do not fit. Files with
 * other names stay, and are none of its own. */
enum status block_folder_scan(const struct block_folder *folder, struct block_scan *scan,
                              struct error *e);

/* Rows are texts of clients: bytes of them are kept in memory that is wiped when it is let go of.
 */
void row_bytes_reserve(struct buffer *bytes, size_t size);
void row_bytes_free(struct buffer *bytes);

/* Puts the file there as a whole; its address has been computed, and `bytes` is what
 * block_file_print has made. */
enum status block_folder_write(const struct block_folder *folder,
                               const struct block_address *address, const struct buffer *bytes,
                               struct error *e);
/* Reads and checks all of the file, whose parts stay in *bytes (row_bytes_free). */
enum status block_folder_read(const struct block_folder *folder,
                              const struct block_address *address, struct buffer *bytes,
                              struct block_file *file, struct error *e);
void block_folder_remove(const struct block_folder *folder, const struct block_address *address);
/* The block was used then, in seconds of the system's clock: what the next scan is told. */
void block_folder_mark(const struct block_folder *folder, const struct block_address *address,
                       int64_t used);
