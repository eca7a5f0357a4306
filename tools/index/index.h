/* tools/index/index.h: what the files of retro-index share. */
#pragma once

#include <stdatomic.h>

#include "config/base/key_set.h"
#include "config/base/line.h"
#include "retrieval/embedder.h"
#include "retrieval/extract/extract.h"
#include "retrieval/index/index_recall.h"
#include "retrieval/kept/kept_copy.h"
#include "retrieval/store/store.h"
#include "retro/text/tokenizer.h"
#include "server/host/options/config.h"
#include "tools/index/index_estimate.h"

/* Exit codes: all fine, failed, some files were skipped, ended by a signal. */
enum { EXIT_FINE = 0, EXIT_FAILED = 1, EXIT_SKIPPED = 2, EXIT_INTERRUPTED = 130 };

/* Set by SIGINT and SIGTERM, in whatever thread gets them; long loops look at it. */
extern atomic_bool index_interrupted;

struct found_file {
    char *path;           /* to open */
    char *source;         /* the same without links */
    const char *identity; /* in source, to its end: what its documents' ids are made of */
    const char *least;    /* in source, to its end: the shortest name that it may be shown by */
    const char *stored;   /* in source, to its end: the name that it is shown by (index_names.h) */
    char *kept; /* [KEPT_NAME_SIZE] what its documents' `file` says; "" until it is read, and where
                   it cannot be; NULL: nobody asks */
    enum document_kind kind;
    uint64_t size, text_bytes; /* text_bytes: a guess, see survey_texts */
};

/* A bad one. */
struct skipped_file {
    char *source;     /* of the file that was read; NULL: the walk left it out */
    char *why;        /* "PATH: REASON" */
    size_t path_size; /* bytes of PATH in it */
};

struct walk {
    struct found_file *files;
    int n, capacity;
    struct skipped_file *skipped; /* [n_skipped] each named on stderr */
    int n_skipped, skipped_capacity;
    struct skip_reason *reasons; /* [n_reasons] of them */
    int n_reasons, reason_capacity;
    int n_repeated; /* reached a second time: by a link, or named twice */
    char **roots; /* [n_roots] what was walked, without links: what was given, and what links out of
                     it lead to */
    int n_roots, root_capacity;
    char *base; /* documents are known by their path below this folder, which ends with a slash;
                   NULL: by source */
    int n_unknown_files;
    int n_dotted;         /* names that begin with a dot: passed over */
    struct buffer dotted; /* the first of them */
    struct {
        char extension[16];
        int count;
    } unknown[64]; /* kinds of file we do not read */
    int n_unknown;
    bool verbose;
    bool quiet;      /* bad ones are counted only */
    bool incomplete; /* a folder or file could not be looked at: there may be more */
    bool follow;     /* links that lead out of what was given */
    bool pictures;   /* are documents, too */
    bool ocr;        /* likewise, as text */
};

/* Counts one that was skipped; `why` is "PATH: REASON", as errors of files are worded. file: the
 * one that was read; NULL: the walk left it out. */
void walk_count_skipped(struct walk *walk, const struct found_file *file, const char *why);
/* One that an earlier walk has counted, and that is no better now. */
void walk_carry_skipped(struct walk *walk, const struct skipped_file *skipped);
void walk_free_skipped(struct walk *walk);
struct given_roots;
/* Leaves with the collection of that name what was found in the paths that were given, and what was
 * skipped (retrieval/kept/scan_record.h). An obstacle is told, and is no failure. */
void walk_record(const struct walk *walk, const char *collection, const struct given_roots *given);
/* Lists what lies under the n paths, in order of name, each file and folder once. A path that is
 * given is followed where it is a link; a link below it is followed where it stays below, or with
 * `follow`. Other links, a link back to a folder it lies in, and what is no file at all, are
 * reported and skipped; names beginning with a dot and kinds of file that we do not read are
 * counted. base: the folder that documents are known below; NULL: there is none. The names that
 * files are shown by are chosen afterwards. STATUS_INVALID where a path does not lie below the
 * base, STATUS_CANCELLED when interrupted. */
enum status walk_paths(struct walk *walk, char *const *paths, int n, const char *base,
                       struct error *e);
/* Prints on stderr, at the end, what was not read and why. */
void walk_report(const struct walk *walk);
void walk_free(struct walk *walk);

/* Progress on stderr: a bar on a terminal, else a line every ten seconds. */
struct index_progress {
    bool terminal, drawn;
    double started, shown;
    const char *unit; /* of what is counted: "files" */
    int files, total_files;
    int64_t chunks, fresh; /* fresh: those that were embedded now */
    struct index_estimate estimate;
};
/* So many of `unit` will be read. */
void progress_begin(struct index_progress *progress, const char *unit, int total);
/* The files that will be read. */
void progress_start(struct index_progress *progress, const struct walk *walk);
/* A document was read: of its file, so many bytes of text had been expected in its place. */
void progress_read(struct index_progress *progress, uint64_t expected, uint64_t text_bytes);
/* A file was read; what was expected of it beyond its documents does not come. */
void progress_read_file(struct index_progress *progress, uint64_t expected);
/* Chunks went into the collection: bytes of their text that were embedded now, and those whose
 * vectors were there. */
void progress_embedded(struct index_progress *progress, int chunks, uint64_t text_bytes,
                       uint64_t kept_bytes);
void progress_show(struct index_progress *progress, bool last);
void progress_clear(struct index_progress *progress); /* before any other line on stderr */

struct build_options {
    const char *out;
    const char *index_factory; /* NULL: by size */
    int chunk_length;          /* 0: as the model has it */
    enum chunk_cut cut;
    int context; /* -1: as is usual for the cut */
    int overlap;
    size_t max_file_bytes;
    const char *passwords; /* that files may be opened with, one a line; NULL: none */
    int max_seconds;       /* for reading a file; 0: as extract_limits_of has it */
    const char *base;      /* as that of walk_paths */
    int threads;           /* that read files at the same time; 0: as many as there are cores */
    bool verbose;
    bool follow; /* links that lead out of the paths */
    bool pictures;
    const struct extract_model *model; /* that reads pages; NULL: none */
    struct extract_ocr ocr; /* but for its pictures: those are read unless `pictures` keeps them */
    bool hidden_sheets;     /* are read too, and hidden rows and columns */
    bool dry_run;
    bool json; /* what is printed on standard output */
    char **paths;
    int n_paths;
};
/* Reads the documents of one file under the limits that the options set, until *cancelled; before
 * that, file->kept. */
enum status read_documents(const struct build_options *options, const struct found_file *file,
                           const atomic_bool *cancelled, const struct document_taker *taker,
                           struct error *e);
/* Prints which documents the files hold, and skips those that cannot be read. STATUS_CANCELLED when
 * interrupted. */
enum status dry_run(struct walk *walk, const struct build_options *options, struct error *e);
/* Guesses how much text each file holds, from its bytes or from a short look at some of them. */
void survey_texts(struct walk *walk, const struct build_options *options);

/* Builds a collection; returns an exit code, with *e filled in for EXIT_FAILED. */
int index_build(const struct build_options *options, const struct config *config, struct error *e);

struct neighbors_options {
    const char *out;
    bool json;           /* what is printed on standard output */
    const char *queries; /* NULL: all chunks of the collection */
    int k;
    bool exclude_same_document;
};
/* Writes the k nearest chunks of every query to a file: "RETRONBR", u32 version 1, u32 k, u64 n
 * queries, u64 chunks of the collection; i64 ids [n, k], best first, -1 where fewer were found; f32
 * similarities [n, k]. Little endian. The queries are the chunks of the collection, by the vectors
 * in its index, or the lines of a file, each {"document", "text"}, which embedder (else not used)
 * embeds. */
enum status index_neighbors(const struct neighbors_options *options,
                            const struct disk_generation *generation,
                            const struct embedder *embedder, struct error *e);

/* A command line. */
struct index_arguments {
    struct config config;
    struct build_options build;
    struct neighbors_options neighbors;
    int k;
    bool json, list_long, repair, watch_once, recall;
    bool yes;           /* what is asked before several documents go is answered */
    const char *filter; /* of a search, or of what is deleted; NULL: none */
    bool by_picture;    /* a search is by the picture in a file */
    bool explain;       /* what put each hit where it stands is printed */
    bool operators;     /* the query has operators */
    const char *with;   /* folder of the embedder that embed turns to; NULL: not said */
    int load;           /* percent of the time in which embed may work */
    const char *id;     /* of the document added; NULL: made of its path */
    bool replace;       /* a document may be replaced by that of another file */
    struct buffer
        metadata; /* of the documents added: a JSON object, without its end; empty: none */
    struct buffer passwords;     /* what build.passwords points to */
    struct opened_reader reader; /* of build.model */
    char **rest;
    int n_rest;
    bool help; /* is all that is asked for */
};
/* Whether n words follow the options; `what` is how they should. */
enum status index_expect(const struct index_arguments *arguments, int n, const char *what,
                         struct error *e);
/* Whether the i-th of them is a folder; `command` cannot do without one. */
enum status index_expect_folder(const struct index_arguments *arguments, int i, const char *command,
                                struct error *e);
/* Opens the collection that the command line names first, and its newest snapshot. On failure
 * too they are to be closed. */
enum status index_open_first(const struct index_arguments *arguments,
                             struct collection **collection, struct snapshot **snapshot,
                             struct error *e);
void index_close_first(struct collection *collection, struct snapshot *snapshot);
/* Removes copies of uploads (retrieval/kept/kept_copy.h) whose documents went. `name` is the
 * collection's. An obstacle is told, and is no failure. */
void index_sweep_files(struct collection *collection, const char *name);
/* Copies these into another collection in a folder, which has the same documents. */
enum status index_copy_files(const char *from, const char *to, struct error *e);
/* From now on SIGINT and SIGTERM set index_interrupted. */
void index_catch_interrupts(void);
/* The collection's own embedder and tokenizer, unless the configuration names others; both must be
 * the ones that it was built with. On failure too they are to be closed. */
enum status makers_open(const struct config *config, const struct collection_info *info,
                        struct embedder *embedder, struct tokenizer **tokenizer, struct error *e);
/* A line, or with --json an object: what was done to the collection in dir, and what it holds now.
 */
void index_print_state(const struct index_arguments *arguments, const char *effect, const char *dir,
                       const struct snapshot *snapshot);
/* "key=value" as one more member of an object without its end. */
enum status metadata_add(struct buffer *metadata, const char *text, struct error *e);
/* All metadata of a file that was read as `text`: `given`, an object or empty; FILE.meta.json;
 * front matter. Empty where there is none. STATUS_INVALID for a FILE.meta.json that is no object,
 * STATUS_TOO_LARGE beyond the limits. */
enum status metadata_of_file(struct buffer *out, const struct buffer *given,
                             const struct found_file *file, struct text_span text,
                             const struct metadata_limits *limits, struct error *e);
struct metadata_limits index_metadata_limits(const struct config *config);

/* The share that the index of the generation in use finds of what exact search finds. */
struct recall_report {
    struct recall_figures figures;
    int n, k;
    bool own; /* the n queries are chunks of the collection, else lines of a file */
};
/* Asks a sample of chunks, or the lines of neighbors.queries, for k neighbours. STATUS_CANCELLED
 * when interrupted. */
enum status index_measure_recall(const struct index_arguments *arguments, struct recall_report *out,
                                 struct error *e);

/* Commands: each returns an exit code, with *e filled in for EXIT_FAILED. */
int run_search(struct index_arguments *arguments, struct error *e);
int run_stats(struct index_arguments *arguments, struct error *e);
int run_list(struct index_arguments *arguments, struct error *e);
int run_show(struct index_arguments *arguments, struct error *e);
int run_verify(struct index_arguments *arguments, struct error *e);
int run_add(struct index_arguments *arguments, struct error *e);
int run_delete(struct index_arguments *arguments, struct error *e);
int run_update(struct index_arguments *arguments, struct error *e);
int run_reread(struct index_arguments *arguments, struct error *e);
int run_watch(struct index_arguments *arguments, struct error *e);
int run_snapshot(struct index_arguments *arguments, struct error *e);
int run_restore(struct index_arguments *arguments, struct error *e);
int run_copy(struct index_arguments *arguments, struct error *e);
int run_compact(struct index_arguments *arguments, struct error *e);
int run_embed(struct index_arguments *arguments, struct error *e);
