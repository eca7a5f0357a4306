/* retrieval/extract/extract_child.h: foreign bytes are parsed in a process of their own, under
 * limits on time, memory and output, without files and without a network
 * (config/sandbox/sandbox.h). A file that makes its parser crash, run on or grow is a file that is
 * skipped, and nothing else. */
#pragma once

#include "retrieval/extract/extract.h"

/* The parser's side of the pipe: documents are handed over piece by piece. */
struct child_writer {
    int fd;
};
void child_write_document(struct child_writer *writer, const char *part,
                          const struct document_text *text);
/* A file within the file, as it is: `part` is what follows the file's path in its own,
 * "!/notes/a.md". */
void child_write_member(struct child_writer *writer, const char *part, struct text_span bytes);
void child_write_skipped(struct child_writer *writer, const struct error *why);

struct extract_file;

/* Takes what a parser hands over. */
struct piece_taker {
    const struct document_taker *documents;
    /* NULL: a file of this kind holds no files. */
    enum status (*take_member)(void *context, const char *part, struct text_span bytes,
                               struct error *e);
    void *context; /* of take_member */
};
/* Parses a file in a process of its own, which may hand over so many bytes, and calls the taker,
 * here, for each piece. Fails as the parser does, or as the taker; a piece that was taken before
 * stays taken. */
enum status child_run_parser(const struct extract_file *file, size_t output,
                             const struct piece_taker *taker, struct error *e);
/* A program that prints text. */
struct child_program {
    char *const *argv;
    const char *package;    /* of Debian, that it comes in */
    struct text_span input; /* on its standard input */
    int worst;              /* the largest exit code that is no failure */
};
/* Appends what it prints for a file, of at most limits.bytes. STATUS_UNSUPPORTED where it is not
 * installed. */
enum status child_run_program(const struct extract_file *file, const struct child_program *program,
                              struct buffer *out, struct error *e);
