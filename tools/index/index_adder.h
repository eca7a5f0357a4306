/* tools/index/index_adder.h: files into a collection that changes: what add, update and watch
 * share. */
#pragma once

#include "server/host/documents/document_group.h"
#include "server/host/documents/documents.h"
#include "tools/index/index_names.h"
#include "tools/index/index_reader.h"

struct adder {
    struct index_arguments *arguments;
    struct collection *collection;
    struct embedder embedder, pictures; /* the latter zeroed: pictures have none of their own */
    struct embedder_follower follower;  /* of these, where the collection turns to another one */
    struct snapshot *snapshot;          /* whose embedder the cutter has */
    struct tokenizer *tokenizer;
    struct document_cutter cutter;
    struct document_group group;
    struct known_texts texts;
    bool gathers; /* documents of several files are put together; else those of each file are put
                     when it was read */
    struct walk walk;
    struct file_reader *reader;    /* of the walk's files; NULL: each is read when it is put */
    const struct found_file *file; /* that is read */
    enum status failed;            /* of the collection, which ends the command */
    struct key_set *seen;     /* gets the ids of the documents that were read; NULL: nobody asks */
    struct known_files known; /* what the collection had when the walk ended */
    const char *id;           /* of the documents that are put; NULL: ids are made of identities */
    bool keeps_metadata;      /* a document that is there keeps what it has */
    bool only_there; /* update: documents that are not there are left out, but for parts of known
                        files */
    int n_unchanged;
};

/* Opens the collection that the command line names first, its embedder and its tokenizer. */
enum status adder_open(struct adder *adder, struct error *e);
/* Puts the documents of the walk's file of that number, or adds them to the group; one that is bad
 * is reported. *read: its documents are known now. They are not where it could not be read; neither
 * are they where it may hold several and is damaged, which it is while it is copied. */
enum status adder_put_file(struct adder *adder, int number, bool *read, struct error *e);
void adder_close(struct adder *adder);
struct printed_effect {
    enum change_effect effect;
    const char *id;
    const char *path; /* NULL: not known */
    int n_embedded;   /* chunks; -1: none could have been */
};
/* Prints the line of a change. */
void index_print_effect(const struct index_arguments *arguments,
                        const struct printed_effect *effect);

/* Reads what the collection has, and chooses names for the walk's files. STATUS_INVALID where a
 * document would be replaced by that of another file: nothing has been changed then. */
enum status adder_plan(struct adder *adder, struct error *e);

/* Documents to delete: those of a file that is gone, and those that a file holds no more. */
enum { GONE_FILE_THERE = 1, GONE_FILE_READ = 2 };
struct gone_search {
    struct adder *adder;
    bool whole; /* documents without a file go, too, where the walk would have come upon it */
    struct key_set files; /* sources of files that are there: one of the numbers above */
    struct key_set ids;   /* of documents that were read */
    struct gone_document {
        char *id, *path;
    } * found;
    int n, capacity;
};
void gone_set_file(struct gone_search *search, const char *source, int what);
/* Deletes and prints them. Documents with an id that is neither of their path nor of the command
 * line stay. */
enum status gone_delete(struct gone_search *search, struct error *e);
void gone_free(struct gone_search *search);
