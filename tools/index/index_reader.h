/* tools/index/index_reader.h: files are read by several threads ahead of the one that takes their
 * documents, which it does in the order of the files: everything is as if they were read one after
 * the other. */
#pragma once

#include "tools/index/index.h"

struct file_reader;

/* To be called while the program has one thread: where files are to be read by several, the process
 * is forked here that begins the parsers (config/sandbox/sandbox.h). */
enum status reader_prepare(const struct build_options *options, int n_files, struct error *e);
/* Begins to read the n files. With one thread a file is read when it is taken. All is borrowed. */
struct file_reader *reader_open(const struct build_options *options, const struct found_file *files,
                                int n);
/* As read_documents, of the file of that number: each once, in rising order. STATUS_CANCELLED when
 * interrupted. After that, and after the taker failed, the reader can be closed only. */
enum status reader_take(struct file_reader *reader, int number, const struct document_taker *taker,
                        struct error *e);
void reader_close(struct file_reader *reader); /* NULL: nothing */
