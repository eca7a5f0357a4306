/* tools/index/retro_index.c: retro-index, which makes collections of documents and looks into them.
 * Its commands, their help, and the smallest of them. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/base/nearest.h"
#include "config/base/process.h"
#include "config/json/json_writer.h"
#include "retro/text/tokenizer.h"
#include "server/host/documents/documents.h"
#include "server/host/documents/embedder_model.h"
#include "tools/index/index_color.h"
#include "tools/index/index_options.h"
#include "tools/usage.h"

enum { DEFAULT_FILE_LIMIT = 64 << 20 };

atomic_bool index_interrupted;

static void interrupt(int signal_number) {
    (void)signal_number;
    /* The second one does not wait for the step in progress; the next build removes what is left.
     */
    if (index_interrupted) _exit(EXIT_INTERRUPTED);
    index_interrupted = true;
}

void index_catch_interrupts(void) {
    struct sigaction action = {.sa_handler = interrupt};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static int run_build(struct index_arguments *arguments, struct error *e) {
    arguments->build.paths = arguments->rest;
    arguments->build.n_paths = arguments->n_rest;
    if (arguments->config.retrieval.picture_embedder[0]) arguments->build.pictures = true;
    if ((arguments->build.out == NULL && !arguments->build.dry_run) || arguments->n_rest == 0) {
        error_set(e, STATUS_INVALID,
                  "build needs --out DIR and at least one PATH; --help says more");
        return EXIT_FAILED;
    }
    index_catch_interrupts();
    return index_build(&arguments->build, &arguments->config, e);
}

static int run_neighbors(struct index_arguments *arguments, struct error *e) {
    struct disk_generation *generation = NULL;
    struct embedder embedder = {0};
    struct tokenizer *tokenizer = NULL;
    struct neighbors_options options = arguments->neighbors;
    options.out = arguments->build.out;
    options.k = arguments->k;
    enum status status = index_expect(arguments, 1, "neighbors DIR", e);
    if (status == STATUS_OK && options.out == NULL)
        status = error_set(e, STATUS_INVALID, "neighbors needs --out FILE");
    if (status == STATUS_OK) status = index_expect_folder(arguments, 0, "neighbors", e);
    if (status == STATUS_OK) status = disk_generation_open(&generation, arguments->rest[0], e);
    if (status == STATUS_OK && disk_generation_is_changed(generation))
        status =
            error_set(e, STATUS_INVALID,
                      "%s was changed since its index was built; run retro-index compact first",
                      arguments->rest[0]);
    if (status == STATUS_OK && options.queries)
        status = makers_open(&arguments->config, disk_generation_info(generation), &embedder,
                             &tokenizer, e);
    if (status == STATUS_OK) status = index_neighbors(&options, generation, &embedder, e);
    tokenizer_close(tokenizer);
    embedder_model_close(&embedder);
    disk_generation_close(generation);
    return status ? EXIT_FAILED : EXIT_FINE;
}

struct extraction {
    bool json;
    int n_skipped;
};

static void put_document(const char *part, const struct document_text *document_text) {
    struct buffer text = {0};
    struct json_writer w;
    put_begin(&w, &text);
    put_object(&w);
    put_key_string(&w, "part", part);
    put_key_string(&w, "title", document_text->title.data ? document_text->title.data : "");
    put_key_string_n(&w, "text", document_text->text.data, document_text->text.size);
    put_object_end(&w);
    put_line(&w, stdout);
    buffer_free(&text);
}

/* A document within a file comes behind its name. */
static enum status print_document(void *context, const char *part, const struct document_text *text,
                                  struct error *e) {
    const struct extraction *extraction = context;
    color_notes("", "", text);
    if (extraction->json) {
        put_document(part, text);
        return STATUS_OK;
    }
    if (part[0]) color_line(stdout, COLOR_BOLD, "==> ", "%s <==", part);
    if (fwrite(text->text.data, 1, text->text.size, stdout) != text->text.size)
        return error_errno(e, "standard output");
    return STATUS_OK;
}

static void print_skipped(void *context, const struct error *why) {
    ((struct extraction *)context)->n_skipped++;
    color_line(stderr, COLOR_YELLOW, "skipped:", " %s", why->text);
}

static int run_extract(struct index_arguments *arguments, struct error *e) {
    struct extraction extraction = {.json = arguments->json};
    struct document_taker taker = {
        .context = &extraction, .take = print_document, .skip = print_skipped};
    if (index_expect(arguments, 1, "extract FILE", e)) return EXIT_FAILED;
    struct found_file file = {.path = arguments->rest[0],
                              .kind = document_kind(arguments->rest[0])};
    if (read_documents(&arguments->build, &file, &index_interrupted, &taker, e)) return EXIT_FAILED;
    return extraction.n_skipped > 0 ? EXIT_SKIPPED : EXIT_FINE;
}

static int run_help(struct index_arguments *arguments, struct error *e);

static const struct index_command {
    struct usage usage;
    unsigned bit;
    int (*run)(struct index_arguments *arguments, struct error *e);
    const char *examples; /* lines behind "retro-index " */
} commands[] = {
    {{"build", "--out DIR --config FILE [OPTION...] PATH...",
      "reads the documents under each PATH (docs/files.md), cuts them into chunks, embeds the "
      "chunks and writes a\n"
      "collection; one that is in DIR stays as it is until the new one is complete, then is "
      "replaced"},
     COMMAND_BUILD,
     run_build,
     "build --out notes --config retro.json ~/notes\nbuild --out notes --config retro.json --index "
     "Exact a.md b.md"},
    {{"search", "[OPTION...] DIR TEXT",
      "prints similarity, document, byte range and text of the chunks nearest to a text"},
     COMMAND_SEARCH,
     run_search,
     "search notes \"how are chunks aligned\" -k 3\nsearch --json notes \"steam\" | jq -r .path"},
    {{"neighbors", "--out FILE [OPTION...] DIR",
      "writes the nearest chunks of every chunk of the collection to a file (docs/training.md)"},
     COMMAND_NEIGHBORS,
     run_neighbors,
     "neighbors --out neighbors.bin -k 2 --exclude-same-document notes"},
    {{"add", "[OPTION...] DIR PATH...",
      "adds the documents under each PATH to the collection, or replaces them where they have "
      "changed; prints\n"
      "\"added PATH\" or \"replaced PATH\" when a document is on the disk. A server that has the "
      "collection open finds it "
      "at\n"
      "once"},
     COMMAND_ADD,
     run_add,
     "add notes ~/notes\nadd --id ticket-7 --meta team=ops notes ticket.txt"},
    {{"update", "[OPTION...] DIR PATH...",
      "as add, for documents that are in the collection: others are left out, and named; prints "
      "\"replaced PATH\". Of a\n"
      "file that holds several, new documents are added, and those that it holds no more are "
      "deleted"},
     COMMAND_UPDATE,
     run_update,
     "update notes ~/notes/today.md"},
    {{"watch", "[OPTION...] DIR PATH...",
      "keeps the collection as the files under each PATH are, from now until Ctrl-C: adds new "
      "ones, replaces changed\n"
      "ones, deletes documents whose file is gone; prints \"added PATH\", \"replaced PATH\" or "
      "\"deleted PATH\" when it\n"
      "is on the disk"},
     COMMAND_WATCH,
     run_watch,
     "watch notes ~/notes\n"
     "watch --once notes ~/notes"},
    {{"reread", "[OPTION...] DIR",
      "reads those documents again from their files that are read differently now: by a newer "
      "reader of their kind, by\n"
      "OCR that was missing, or with --hidden-sheets. The options are those that they were read "
      "with. One that was\n"
      "broken off goes on where it ended"},
     COMMAND_REREAD,
     run_reread,
     "reread --dry-run notes\nreread notes"},
    {{"delete", "[OPTION...] DIR DOCUMENT...",
      "deletes documents, each named by its path or id, and all of a FOLDER/ or of a file that "
      "holds several; prints\n"
      "\"deleted PATH\" when it is on the disk"},
     COMMAND_DELETE,
     run_delete,
     "delete notes notes/today.md\ndelete --yes notes notes/2019/\n"
     "delete --yes --filter '{\"eq\": {\"team\": \"ops\"}}' notes"},
    {{"compact", "DIR",
      "writes what was added since into the index, and takes what was deleted off the disk"},
     COMMAND_CHANGE,
     run_compact,
     "compact notes"},
    {{"embed", "--with FOLDER [OPTION...] DIR",
      "turns the collection to the vectors of another embedder while servers search it and change "
      "it: makes them of the\n"
      "stored text, then turns at once. One that was broken off goes on where it ended"},
     COMMAND_EMBED,
     run_embed,
     "embed --with ~/models/bge-small notes\nembed --with ~/models/bge-small --load 50 notes"},
    {{"snapshot", "DIR OUT",
      "copies the collection, with its changes up to now, into the new folder OUT, and verifies "
      "the copy; servers and\n"
      "other commands go on meanwhile"},
     COMMAND_COPY,
     run_snapshot,
     "snapshot notes /backup/notes-monday"},
    {{"copy", "FROM TO",
      "copies the documents of one collection, with their tokens and vectors, into another, which "
      "is made where it is\n"
      "missing; either is a folder or milvus://HOST:PORT/NAME. One that was broken off goes on "
      "where it ended; at the\n"
      "end all documents are read from both and compared"},
     COMMAND_CHANGE,
     run_copy,
     "copy notes milvus://127.0.0.1:19530/notes\ncopy milvus://127.0.0.1:19530/notes "
     "/backup/notes"},
    {{"restore", "OUT DIR",
      "makes the collection in DIR hold what the snapshot OUT does; servers that have DIR open "
      "turn to it"},
     COMMAND_COPY,
     run_restore,
     "restore /backup/notes-monday notes"},
    {{"list", "DIR [TEXT]",
      "the path of each document, or of those with TEXT in it; exit code 1 for none"},
     COMMAND_LIST,
     run_list,
     "list notes\nlist --json notes today"},
    {{"show", "DIR DOCUMENT",
      "the text of the document with that path or id, or with --json all that is known of it"},
     COMMAND_SHOW,
     run_show,
     "show notes notes/today.md\nshow --json notes ticket-7"},
    {{"stats", "[OPTION...] DIR", "how much is in the collection, and what it was made with"},
     COMMAND_STATS,
     run_stats,
     "stats --json notes\nstats --recall -k 2 notes"},
    {{"verify", "[OPTION...] DIR",
      "checks every checksum and every number; exit code 0 when all is well"},
     COMMAND_VERIFY,
     run_verify,
     "verify notes\nverify --repair notes"},
    {{"extract", "[OPTION...] FILE", "prints the text of a document, which byte ranges refer to"},
     COMMAND_EXTRACT,
     run_extract,
     "extract page.html"},
    {{"help", "[COMMAND]", "all commands, or how one of them is called"}, 0, run_help, "help add"},
};

static const struct index_command *find_command(const char *name) {
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++)
        if (strcmp(name, commands[i].usage.name) == 0) return &commands[i];
    return NULL;
}

/* "; did you mean list?" into `out`, or "". */
static const char *guess_command(const char *name, char out[64]) {
    struct nearest_name nearest = {0};
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++) {
        const char *known = commands[i].usage.name;
        nearest_offer(&nearest, (struct text_span){name, strlen(name)},
                      (struct text_span){known, strlen(known)});
    }
    out[0] = '\0';
    if (nearest.name.text)
        snprintf(out, 64, "; did you mean %.*s?", (int)nearest.name.size, nearest.name.text);
    return out;
}

static void print_usage(FILE *out) {
    fprintf(out,
            "usage: retro-index COMMAND ...; help COMMAND says more\n"
            "retro-index: makes collections of documents, changes them and looks into them\n");
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++) usage_command(out, &commands[i].usage, 13);
    fprintf(out,
            "exit code: 0 all fine; 1 failed, or nothing found (list), or damage found (verify); 2 "
            "done, but for files "
            "that\n"
            "were skipped and are named on stderr; 130 interrupted by Ctrl-C or SIGTERM. Colours "
            "are for terminals; "
            "NO_COLOR=1\n"
            "in the environment turns them off\n");
}

static void print_examples(const char *line) {
    printf("examples:\n");
    while (line[0] != '\0') {
        int size = (int)strcspn(line, "\n");
        printf("  retro-index %.*s\n", size, line);
        line += size;
        if (line[0] == '\n') line++;
    }
}

static int print_help(const struct index_command *command) {
    usage_print(stdout, "retro-index", &command->usage);
    index_options_print(command->bit);
    print_examples(command->examples);
    return EXIT_FINE;
}

static int run_help(struct index_arguments *arguments, struct error *e) {
    if (arguments->n_rest == 0) {
        print_usage(stdout);
        return EXIT_FINE;
    }
    const struct index_command *command = find_command(arguments->rest[0]);
    if (command) return print_help(command);
    char meant[64];
    error_set(e, STATUS_INVALID, "unknown command \"%s\"%s; retro-index help lists them",
              arguments->rest[0], guess_command(arguments->rest[0], meant));
    return EXIT_FAILED;
}

static const char *tell_interrupted(const struct index_command *command,
                                    const struct index_arguments *arguments) {
    if (command->bit & (COMMAND_ADD | COMMAND_UPDATE | COMMAND_REREAD))
        return "what was printed is kept";
    if (command->bit == COMMAND_EMBED)
        return "the collection is as it was, and the next embed goes on from here";
    if (command->bit == COMMAND_BUILD && !arguments->build.dry_run)
        return "what was there before is unchanged, and the next build goes on from here";
    return "what was there before is unchanged";
}

static int run(const struct index_command *command, int argc, char **argv) {
    struct error e = {0};
    struct index_arguments arguments = {
        .k = 5, .load = 100, .build = {.max_file_bytes = DEFAULT_FILE_LIMIT, .context = -1}};
    config_init(&arguments.config);
    int code = index_options_parse(&arguments, command->bit, argc, argv, &e) ? EXIT_FAILED
               : arguments.help                                              ? print_help(command)
                                : command->run(&arguments, &e);
    if (code == EXIT_FAILED)
        color_line(stderr, COLOR_RED, "retro-index", " %s: %s", command->usage.name, e.text);
    if (code == EXIT_INTERRUPTED)
        fprintf(stderr, "retro-index: interrupted; %s\n", tell_interrupted(command, &arguments));
    config_free(&arguments.config);
    buffer_free(&arguments.metadata);
    if (arguments.passwords.size > 0)
        explicit_bzero(arguments.passwords.data, arguments.passwords.size);
    buffer_free(&arguments.passwords);
    opened_reader_close(&arguments.reader);
    return code;
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    const struct index_command *command = find_command(name);
    openmp_wait_passively(argv);
    standard_streams_open();
    bus_errors_explain();
    if (command) return process_end(run(command, argc - 1, argv + 1));
    if (strcmp(name, "--help") == 0) {
        print_usage(stdout);
        return process_end(EXIT_FINE);
    }
    if (strcmp(name, "--version") == 0) {
        printf("retro-index " RETRO_VERSION " (%s)\n",
               HAVE_FAISS ? "FAISS and exact search" : "exact search");
        return process_end(EXIT_FINE);
    }
    char meant[64];
    if (name[0] != '\0' && guess_command(name, meant)[0]) {
        line_print(stderr, "retro-index: unknown command \"%s\"%s", name, meant);
        return process_end(EXIT_FAILED);
    }
    if (name[0] == '\0')
        line_print(stderr, "retro-index: a command is missing");
    else
        line_print(stderr, "retro-index: unknown command \"%s\"", name);
    print_usage(stderr);
    return process_end(EXIT_FAILED);
}
