/* tools/index/index_adder.h: files into a collection that changes: what add, update and watch share. */
#pragma once

#include "server/host/document_cutter.h"
#include "tools/index/index.h"

struct adder {
    struct index_arguments *arguments;
    struct living *collection;
    struct embedder embedder;
    struct tokenizer *tokenizer;
    struct document_cutter cutter;
    struct walk walk;
    const struct found_file *file; /* that is read */
    enum status failed;            /* of the collection, which ends the command */
    struct key_set *seen;          /* gets the ids of the documents that were read; NULL: nobody asks */
    bool only_there;               /* update: documents that are not there are left out */
    int n_unchanged;
};

/* Opens the collection that the command line names first, its embedder and its tokenizer. */
enum status adder_open(struct adder *a, struct error *e);
/* Puts the documents of a file; one that is bad is reported. *read: whether the file could be read. */
enum status adder_put_file(struct adder *a, const struct found_file *file, bool *read, struct error *e);
void adder_close(struct adder *a);
/* Prints the line of a change; path NULL: not known. */
void index_print_effect(const struct index_arguments *a, enum change_effect effect, const char *id, const char *path);
