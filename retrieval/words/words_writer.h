/* retrieval/words/words_writer.h: the words of many chunks, in memory that is bounded by a run of
 * them: a full run is sorted into a file without a name, and at the end all runs are joined. Beside
 * that it keeps four bytes a chunk and the dictionary that it writes. */
#pragma once

#include "retrieval/words/words.h"

enum { WORDS_RUN = 1 << 22 };

struct words_writer;

/* folder: where a file for full runs may be made; NULL: all is kept in memory, however much. run:
 * words after which a run is full, usually WORDS_RUN. */
struct words_writer *words_writer_open(const char *folder, size_t run);
/* The text of the next chunk. STATUS_NO_MEMORY, STATUS_IO, STATUS_TOO_LARGE. */
enum status words_writer_add(struct words_writer *writer, struct text_span text, struct error *e);
/* Takes the bytes that words_open reads, in pieces. */
typedef enum status words_sink(void *context, const void *bytes, size_t size, struct error *e);
/* Gives all bytes to the sink, once. */
enum status words_writer_end(struct words_writer *writer, words_sink *sink, void *context,
                             struct error *e);
void words_writer_free(struct words_writer *writer); /* NULL: nothing */
