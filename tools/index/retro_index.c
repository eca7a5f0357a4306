/* tools/index/retro_index.c: retro-index, which makes collections of documents and looks into them. Command line, and
 * the commands that only read. */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/base/process.h"
#include "retrieval/retriever_local.h"
#include "retro/text/tokenizer.h"
#include "server/host/documents.h"
#include "server/host/embedder_model.h"
#include "tools/index/index.h"
#include "tools/usage.h"

enum { DEFAULT_FILE_LIMIT = 64 << 20, LARGEST_FILE_LIMIT = 1 << 30, LARGEST_K = 1000 };

atomic_bool index_interrupted;

struct index_arguments {
    struct config config;
    struct build_options build;
    struct neighbors_options neighbors;
    int k;
    char **rest;
    int n_rest;
    bool help; /* is all that is asked for */
};

/* Commands, as bits: which of them have an option. */
enum {
    BUILD = 1 << 0,
    SEARCH = 1 << 1,
    NEIGHBORS = 1 << 2,
    STATS = 1 << 3,
    VERIFY = 1 << 4,
    EXTRACT = 1 << 5,
    LIST = 1 << 6
};

enum option_id {
    OPTION_OUT = 256,
    OPTION_CONFIG,
    OPTION_SET,
    OPTION_CHUNK,
    OPTION_INDEX,
    OPTION_LIMIT,
    OPTION_QUERIES,
    OPTION_EXCLUDE,
    OPTION_VERBOSE,
    OPTION_FOLLOW,
    OPTION_HELP
};

static const struct index_row {
    const char *name, *value, *help;
    int id; /* enum option_id, or the letter of a short option */
    unsigned commands;
} rows[] = {
    {"--out", "DIR", "folder of the collection", OPTION_OUT, BUILD},
    {"--out", "FILE", "what is written", OPTION_OUT, NEIGHBORS},
    {"--k", "N", "how many chunks (5); -k N is the same", 'k', SEARCH | NEIGHBORS},
    {"--queries", "FILE", "lines {\"document\": \"...\", \"text\": \"...\"}, whose neighbours are found instead",
     OPTION_QUERIES, NEIGHBORS},
    {"--exclude-same-document", NULL, "no chunks of the query's own document", OPTION_EXCLUDE, NEIGHBORS},
    {"--chunk-length", "N", "tokens of a chunk; else the model's, else 64", OPTION_CHUNK, BUILD},
    {"--index", "FACTORY",
     "FAISS index type, or Exact for search in plain C; else Flat up to 100000 chunks, IVF above.\n"
     "IVF4096,PQ48np keeps 100 million chunks in memory (\"np\" saves minutes)",
     OPTION_INDEX, BUILD},
    {"--max-file-bytes", "N", "larger files are skipped (67108864)", OPTION_LIMIT, BUILD | EXTRACT},
    {"--follow", NULL, "follows links that lead out of PATH; else they are skipped", OPTION_FOLLOW, BUILD},
    {"--verbose", NULL, "names files of unknown kind, hidden files and copies", OPTION_VERBOSE, BUILD},
    {"--config", "FILE", "model.path (tokenizer) and retrieval.embedder are used", OPTION_CONFIG,
     BUILD | SEARCH | NEIGHBORS | VERIFY},
    {"--set", "KEY=VALUE", "sets one option, after the file", OPTION_SET, BUILD | SEARCH | NEIGHBORS | VERIFY},
};

static enum status parse_option(struct index_arguments *a, int option, const char *value, struct error *e) {
    long long n = 0;
    enum status status = STATUS_OK;
    switch (option) {
        case OPTION_OUT: a->build.out = value; break;
        case OPTION_CONFIG: status = config_read(&a->config, value, e); break;
        case OPTION_SET: break; /* after the file, whatever the order: see parse */
        case OPTION_INDEX: a->build.index_factory = value; break;
        case OPTION_QUERIES: a->neighbors.queries = value; break;
        case OPTION_EXCLUDE: a->neighbors.exclude_same_document = true; break;
        case OPTION_VERBOSE: a->build.verbose = true; break;
        case OPTION_FOLLOW: a->build.follow = true; break;
        case OPTION_CHUNK:
            status = usage_number("--chunk-length", value, 1, 65536, &n, e);
            a->build.chunk_length = (int)n;
            break;
        case OPTION_LIMIT:
            status = usage_number("--max-file-bytes", value, 1, LARGEST_FILE_LIMIT, &n, e);
            a->build.max_file_bytes = (size_t)n;
            break;
        case 'k':
            status = usage_number("-k", value, 1, LARGEST_K, &n, e);
            a->k = (int)n;
            break;
        case OPTION_HELP: a->help = true; break;
        default: return error_set(e, STATUS_INVALID, "--help lists the options");
    }
    return status;
}

/* The rows of a command for getopt, and --help. */
static void list_options(unsigned command, struct option long_options[ARRAY_COUNT(rows) + 2]) {
    int n = 0;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        if ((rows[i].commands & command) == 0 || strncmp(rows[i].name, "--", 2) != 0) continue;
        long_options[n] =
            (struct option){rows[i].name + 2, rows[i].value ? required_argument : no_argument, NULL, rows[i].id};
        n++;
    }
    long_options[n] = (struct option){"help", no_argument, NULL, OPTION_HELP};
    n++;
    long_options[n] = (struct option){0};
}

static enum status parse(struct index_arguments *a, unsigned command, int argc, char **argv, struct error *e) {
    struct option options[ARRAY_COUNT(rows) + 2];
    list_options(command, options);
    const char **sets = xcalloc((size_t)argc + 1, sizeof *sets);
    int option, n_sets = 0;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && !a->help &&
           (option = getopt_long(argc, argv, command & (SEARCH | NEIGHBORS) ? "k:" : "", options, NULL)) != -1) {
        if (option == OPTION_SET) {
            sets[n_sets] = optarg;
            n_sets++;
        }
        status = parse_option(a, option, optarg, e);
    }
    for (int i = 0; i < n_sets && status == STATUS_OK; i++) status = config_set(&a->config, sets[i], e);
    free(sets);
    a->rest = argv + optind;
    a->n_rest = argc - optind;
    return status ? status : config_check(&a->config, e);
}

static enum status expect_rest(const struct index_arguments *a, int n, const char *what, struct error *e) {
    return a->n_rest == n ? STATUS_OK : error_set(e, STATUS_INVALID, "expected %s; --help says more", what);
}

static void interrupt(int signal_number) {
    (void)signal_number;
    /* The second one does not wait for the step in progress; the next build removes what is left. */
    if (index_interrupted) _exit(EXIT_INTERRUPTED);
    index_interrupted = true;
}

static int run_build(struct index_arguments *a, struct error *e) {
    struct sigaction action = {.sa_handler = interrupt};
    a->build.paths = a->rest;
    a->build.n_paths = a->n_rest;
    if (a->build.out == NULL || a->n_rest == 0) {
        error_set(e, STATUS_INVALID, "build needs --out DIR and at least one PATH; --help says more");
        return EXIT_FAILED;
    }
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return index_build(&a->build, &a->config, e);
}

/* The collection's own embedder and tokenizer, unless the configuration names others; both must be the ones it was
 * built with. */
static enum status open_makers(const struct index_arguments *a, const struct collection *collection,
                               struct embedder *embedder, struct tokenizer **tokenizer, struct error *e) {
    const struct config *c = &a->config;
    const struct collection_info *info = collection_info(collection);
    if (embedder_model_open(embedder, documents_embedder(c, info->embedder), c, e) ||
        tokenizer_open(tokenizer, c->model.path[0] ? c->model.path : info->tokenizer, e))
        return e->status;
    if (collection_match_embedder(info, embedder, e)) return e->status;
    return collection_match_tokens(info, tokenizer_hash(*tokenizer), info->chunk_length, e);
}

static void print_hit(int rank, const struct hit *hit) {
    line_print(stdout, "%d  %.4f  %s  [%" PRIu64 ", %" PRIu64 ")%s%s", rank, hit->similarity, hit->path, hit->start,
               hit->end, hit->title[0] ? "  " : "", hit->title);
    /* Indented, so that a line of a document cannot be taken for one of ours. */
    const char *line = hit->text.text, *text_end = line + hit->text.size;
    while (line < text_end) {
        const char *newline = memchr(line, '\n', (size_t)(text_end - line)), *end = newline ? newline : text_end;
        line_print(stdout, "    %.*s", (int)(end - line), line);
        line = end + 1;
    }
}

static enum status search(const struct index_arguments *a, struct collection *c, const struct embedder *embedder,
                          struct error *e) {
    struct retriever *retriever;
    struct hits hits;
    struct retriever_query query = {.text = {a->rest[1], strlen(a->rest[1])}, .k = a->k, .min_similarity = -1};
    if (retriever_local_open(&retriever, c, embedder, a->k, e)) return e->status;
    enum status status = retriever_search(retriever, &query, 1, &hits, e);
    if (status == STATUS_OK) {
        for (int i = 0; i < hits.n; i++) print_hit(i + 1, &hits.list[i]);
        hits_free(&hits);
    }
    retriever_close(retriever);
    return status;
}

static int run_search(struct index_arguments *a, struct error *e) {
    struct collection *c = NULL;
    struct embedder embedder = {0};
    struct tokenizer *tokenizer = NULL;
    enum status status = expect_rest(a, 2, "search DIR \"text\"", e);
    if (status == STATUS_OK) status = collection_open(&c, a->rest[0], e);
    if (status == STATUS_OK) status = open_makers(a, c, &embedder, &tokenizer, e);
    if (status == STATUS_OK) status = search(a, c, &embedder, e);
    tokenizer_close(tokenizer);
    embedder_model_close(&embedder);
    collection_close(c);
    return status ? EXIT_FAILED : EXIT_FINE;
}

static int run_neighbors(struct index_arguments *a, struct error *e) {
    struct collection *c = NULL;
    struct embedder embedder = {0};
    struct tokenizer *tokenizer = NULL;
    struct neighbors_options o = a->neighbors;
    o.out = a->build.out;
    o.k = a->k;
    enum status status = expect_rest(a, 1, "neighbors DIR", e);
    if (status == STATUS_OK && o.out == NULL) status = error_set(e, STATUS_INVALID, "neighbors needs --out FILE");
    if (status == STATUS_OK) status = collection_open(&c, a->rest[0], e);
    if (status == STATUS_OK && o.queries) status = open_makers(a, c, &embedder, &tokenizer, e);
    if (status == STATUS_OK) status = index_neighbors(&o, c, &embedder, e);
    tokenizer_close(tokenizer);
    embedder_model_close(&embedder);
    collection_close(c);
    return status ? EXIT_FAILED : EXIT_FINE;
}

static int run_stats(struct index_arguments *a, struct error *e) {
    struct collection *c;
    if (expect_rest(a, 1, "stats DIR", e) || collection_open(&c, a->rest[0], e)) return EXIT_FAILED;
    const struct collection_info *info = collection_info(c);
    printf("generation    %d\ndocuments     %" PRId64 "\nchunks        %" PRId64 "\ntokens        %" PRId64 "\n",
           info->generation, info->n_documents, info->n_chunks, info->n_tokens);
    printf("chunk length  %d\nvectors       %d numbers, inner product\n", info->chunk_length, info->dim);
    line_print(stdout, "index         %s", info->index_factory);
    line_print(stdout, "embedder      %s (hash %016" PRIx64 ")", info->embedder, info->embedder_hash);
    if (info->query_prompt[0]) line_print(stdout, "query prompt  %s", info->query_prompt);
    if (info->document_prompt[0]) line_print(stdout, "doc. prompt   %s", info->document_prompt);
    line_print(stdout, "tokenizer     %s (hash %016" PRIx64 ")", info->tokenizer, info->tokenizer_hash);
    collection_close(c);
    return EXIT_FINE;
}

/* Documents whose name holds a text, or all. */
static int run_list(struct index_arguments *a, struct error *e) {
    struct collection *c;
    const char *part = a->n_rest == 2 ? a->rest[1] : "";
    if (a->n_rest != 2 && expect_rest(a, 1, "list DIR [TEXT]", e)) return EXIT_FAILED;
    if (collection_open(&c, a->rest[0], e)) return EXIT_FAILED;
    int64_t n_chunks = collection_info(c)->n_chunks, first = 0, n_found = 0;
    while (first < n_chunks) {
        struct chunk chunk = collection_chunk(c, first);
        int64_t next = first + 1;
        while (next < n_chunks && collection_chunk(c, next).document == chunk.document) next++;
        if (strstr(chunk.path, part)) {
            line_print(stdout, "%6" PRId64 "  %s%s%s", next - first, chunk.path, chunk.title[0] ? "  " : "",
                       chunk.title);
            n_found++;
        }
        first = next;
    }
    if (n_found == 0) error_set(e, STATUS_NOT_FOUND, "%s: no document has \"%s\" in its name", a->rest[0], part);
    collection_close(c);
    return n_found ? EXIT_FINE : EXIT_FAILED;
}

/* Says whether the embedder and tokenizer that the collection names are there and still the same. */
static enum status verify_makers(const struct index_arguments *a, const struct collection *c, struct error *e) {
    struct embedder embedder = {0};
    struct tokenizer *tokenizer = NULL;
    enum status status = open_makers(a, c, &embedder, &tokenizer, e);
    tokenizer_close(tokenizer);
    embedder_model_close(&embedder);
    return status;
}

static int run_verify(struct index_arguments *a, struct error *e) {
    struct collection *c;
    if (expect_rest(a, 1, "verify DIR", e) || collection_verify(a->rest[0], e) || collection_open(&c, a->rest[0], e))
        return EXIT_FAILED;
    const struct collection_info *info = collection_info(c);
    enum status status = verify_makers(a, c, e);
    if (status == STATUS_OK)
        line_print(stdout,
                   "%s: generation %d is whole: %" PRId64 " documents, %" PRId64 " chunks, %" PRId64
                   " tokens; embedder and tokenizer are the ones it was built with",
                   a->rest[0], info->generation, info->n_documents, info->n_chunks, info->n_tokens);
    collection_close(c);
    return status ? EXIT_FAILED : EXIT_FINE;
}

static int run_extract(struct index_arguments *a, struct error *e) {
    struct buffer text = {0}, title = {0};
    enum status status = expect_rest(a, 1, "extract FILE", e);
    if (status == STATUS_OK)
        status = document_extract(a->rest[0], document_kind(a->rest[0]), a->build.max_file_bytes, &text, &title, e);
    if (status == STATUS_OK && fwrite(text.data, 1, text.size, stdout) != text.size)
        status = error_errno(e, "standard output");
    buffer_free(&text);
    buffer_free(&title);
    return status ? EXIT_FAILED : EXIT_FINE;
}

static int run_help(struct index_arguments *a, struct error *e);

static const struct index_command {
    struct usage usage;
    unsigned bit;
    int (*run)(struct index_arguments *a, struct error *e);
} commands[] = {
    {{"build", "--out DIR --config FILE [OPTION...] PATH...",
      "reads .txt, .md, .rst, .html and man pages under each PATH, cuts them into chunks, embeds the chunks and writes "
      "a\n"
      "collection; one that is in DIR stays as it is until the new one is complete, then is replaced"},
     BUILD,
     run_build},
    {{"search", "[OPTION...] DIR TEXT",
      "prints similarity, document, byte range and text of the chunks nearest to a text"},
     SEARCH,
     run_search},
    {{"neighbors", "--out FILE [OPTION...] DIR",
      "writes the nearest chunks of every chunk of the collection to a file (docs/training.md)"},
     NEIGHBORS,
     run_neighbors},
    {{"stats", "DIR", "how much is in the collection, and what it was made with"}, STATS, run_stats},
    {{"list", "DIR [TEXT]",
      "number of chunks, name and title of each document, or of those with TEXT in the name; exit code 1 for none"},
     LIST,
     run_list},
    {{"verify", "[OPTION...] DIR", "checks every checksum and every number; exit code 0 when all is well"},
     VERIFY,
     run_verify},
    {{"extract", "[OPTION...] FILE", "prints the text of a document, which byte ranges refer to"},
     EXTRACT,
     run_extract},
    {{"help", "[COMMAND]", "all commands, or how one of them is called"}, 0, run_help},
};

static const struct index_command *find_command(const char *name) {
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++)
        if (strcmp(name, commands[i].usage.name) == 0) return &commands[i];
    return NULL;
}

static void print_usage(FILE *out) {
    fprintf(out, "usage: retro-index COMMAND ...; help COMMAND says more\n");
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++) usage_command(out, &commands[i].usage, 13);
    fprintf(
        out,
        "exit code: 0 all fine, 1 failed, 2 built but some files were skipped (named on stderr), 130 interrupted\n");
}

static int print_help(const struct index_command *c) {
    usage_print(stdout, "retro-index", &c->usage);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        if (rows[i].commands & c->bit) usage_option(stdout, rows[i].name, rows[i].value, rows[i].help);
    return EXIT_FINE;
}

static int run_help(struct index_arguments *a, struct error *e) {
    if (a->n_rest == 0) {
        print_usage(stdout);
        return EXIT_FINE;
    }
    const struct index_command *command = find_command(a->rest[0]);
    if (command) return print_help(command);
    error_set(e, STATUS_INVALID, "unknown command \"%s\"; retro-index help lists them", a->rest[0]);
    return EXIT_FAILED;
}

static int run(const struct index_command *command, int argc, char **argv) {
    struct error e = {0};
    struct index_arguments a = {.k = 5, .build = {.max_file_bytes = DEFAULT_FILE_LIMIT}};
    config_init(&a.config);
    int code = parse(&a, command->bit, argc, argv, &e) ? EXIT_FAILED
               : a.help                                ? print_help(command)
                                                       : command->run(&a, &e);
    config_free(&a.config);
    if (code == EXIT_FAILED) line_print(stderr, "retro-index %s: %s", command->usage.name, e.text);
    if (code == EXIT_INTERRUPTED) fprintf(stderr, "retro-index: interrupted; what was there before is unchanged\n");
    return code;
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    const struct index_command *command = find_command(name);
    openmp_wait_passively(argv);
    standard_streams_open();
    if (command) return process_end(run(command, argc - 1, argv + 1));
    if (strcmp(name, "--help") == 0) {
        print_usage(stdout);
        return process_end(EXIT_FINE);
    }
    if (strcmp(name, "--version") == 0) {
        printf("retro-index " RETRO_VERSION " (%s)\n", HAVE_FAISS ? "FAISS and exact search" : "exact search");
        return process_end(EXIT_FINE);
    }
    line_print(stderr, "retro-index: unknown command \"%s\"", name);
    print_usage(stderr);
    return process_end(EXIT_FAILED);
}
