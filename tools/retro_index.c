/* tools/retro_index.c: retro-index, which makes collections of documents and looks into them. Command line, and the
 * commands that only read. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "retro/tokenizer.h"
#include "server/embedder_bert.h"
#include "tools/index.h"

enum { DEFAULT_FILE_LIMIT = 64 << 20, LARGEST_FILE_LIMIT = 1 << 30, LARGEST_K = 1000 };

volatile sig_atomic_t index_interrupted;

static const char usage_text[] =
    "usage: retro-index build --out DIR --config FILE [options] PATH...\n"
    "       retro-index search DIR \"text\" [-k N] [--config FILE] [--set key=value]...\n"
    "       retro-index neighbors DIR --out FILE [-k N] [--exclude-same-document] [--queries FILE [--config FILE]]\n"
    "       retro-index stats DIR\n"
    "       retro-index verify DIR [--set key=value]...\n"
    "       retro-index extract FILE\n"
    "\n"
    "build    reads .txt, .md, .rst, .html and man pages under each PATH, cuts them into chunks, embeds the chunks "
    "and\n"
    "         writes a collection. A collection in DIR stays as it is until the new one is complete, then is "
    "replaced.\n"
    "  --out DIR             folder of the collection\n"
    "  --config FILE         model.path (tokenizer) and retrieval.embedder are used\n"
    "  --set key=value       sets one option, after the file\n"
    "  --chunk-length N      tokens of a chunk; default: the model's, else 64\n"
    "  --index FACTORY       FAISS index type, or Exact for search in plain C; default: Flat up to 100000 chunks,\n"
    "                        IVF above. IVF4096,PQ48np keeps 100 million chunks in memory (\"np\" saves minutes)\n"
    "  --max-file-bytes N    larger files are skipped; default 67108864\n"
    "  --verbose             names files of unknown kind and copies\n"
    "search   prints similarity, document, byte range and text of the chunks nearest to a text; default -k 5\n"
    "neighbors writes the -k nearest chunks of every chunk of the collection to a file (docs/training.md), or with\n"
    "         --queries those of each line {\"document\": \"...\", \"text\": \"...\"} of a file;\n"
    "         --exclude-same-document leaves out chunks of the query's own document\n"
    "stats    what is in the collection\n"
    "verify   checks every checksum and every number; exit code 0 when all is well\n"
    "extract  prints the text of a document, which byte ranges refer to\n"
    "\n"
    "exit code: 0 all fine, 1 failed, 2 built but some files were skipped (named on stderr), 130 interrupted\n";

struct arguments {
    struct config config;
    struct build_options build;
    struct neighbors_options neighbors;
    int k;
    char **rest;
    int n_rest;
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
    OPTION_VERBOSE
};

static enum status parse_number(const char *name, const char *text, long min, long max, long *out, struct error *e) {
    char *end;
    long n = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || n < min || n > max)
        return error_set(e, STATUS_INVALID, "%s %s: a number of %ld .. %ld is expected", name, text, min, max);
    *out = n;
    return STATUS_OK;
}

static enum status parse_option(struct arguments *a, int option, const char *value, struct error *e) {
    long n = 0;
    enum status status = STATUS_OK;
    switch (option) {
        case OPTION_OUT: a->build.out = value; break;
        case OPTION_CONFIG: status = config_read(&a->config, value, e); break;
        case OPTION_SET: break; /* after the file, whatever the order: see parse_sets */
        case OPTION_INDEX: a->build.index_factory = value; break;
        case OPTION_QUERIES: a->neighbors.queries = value; break;
        case OPTION_EXCLUDE: a->neighbors.exclude_same_document = true; break;
        case OPTION_VERBOSE: a->build.verbose = true; break;
        case OPTION_CHUNK:
            status = parse_number("--chunk-length", value, 1, 65536, &n, e);
            a->build.chunk_length = (int)n;
            break;
        case OPTION_LIMIT:
            status = parse_number("--max-file-bytes", value, 1, LARGEST_FILE_LIMIT, &n, e);
            a->build.max_file_bytes = (size_t)n;
            break;
        case 'k':
            status = parse_number("-k", value, 1, LARGEST_K, &n, e);
            a->k = (int)n;
            break;
        default: return error_set(e, STATUS_INVALID, "see retro-index --help");
    }
    return status;
}

static enum status parse(struct arguments *a, int argc, char **argv, struct error *e) {
    static const struct option options[] = {{"out", required_argument, NULL, OPTION_OUT},
                                            {"config", required_argument, NULL, OPTION_CONFIG},
                                            {"set", required_argument, NULL, OPTION_SET},
                                            {"chunk-length", required_argument, NULL, OPTION_CHUNK},
                                            {"index", required_argument, NULL, OPTION_INDEX},
                                            {"max-file-bytes", required_argument, NULL, OPTION_LIMIT},
                                            {"verbose", no_argument, NULL, OPTION_VERBOSE},
                                            {"queries", required_argument, NULL, OPTION_QUERIES},
                                            {"k", required_argument, NULL, 'k'},
                                            {"exclude-same-document", no_argument, NULL, OPTION_EXCLUDE},
                                            {0}};
    const char **sets = xcalloc((size_t)argc + 1, sizeof *sets);
    int option, n_sets = 0;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && (option = getopt_long(argc, argv, "k:", options, NULL)) != -1) {
        if (option == OPTION_SET) sets[n_sets++] = optarg;
        status = parse_option(a, option, optarg, e);
    }
    for (int i = 0; i < n_sets && status == STATUS_OK; i++) status = config_set(&a->config, sets[i], e);
    free(sets);
    a->rest = argv + optind;
    a->n_rest = argc - optind;
    return status ? status : config_check(&a->config, e);
}

static enum status expect_rest(const struct arguments *a, int n, const char *what, struct error *e) {
    return a->n_rest == n ? STATUS_OK : error_set(e, STATUS_INVALID, "expected %s; see retro-index --help", what);
}

static void interrupt(int signal_number) {
    (void)signal_number;
    /* The second one does not wait for the step in progress; the next build removes what is left. */
    if (index_interrupted) _exit(EXIT_INTERRUPTED);
    index_interrupted = 1;
}

static int run_build(struct arguments *a, struct error *e) {
    struct sigaction action = {.sa_handler = interrupt};
    a->build.paths = a->rest;
    a->build.n_paths = a->n_rest;
    if (a->build.out == NULL || a->n_rest == 0) {
        error_set(e, STATUS_INVALID, "build needs --out DIR and at least one PATH; see retro-index --help");
        return EXIT_FAILED;
    }
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return index_build(&a->build, &a->config, e);
}

/* The collection's own embedder and tokenizer, unless the configuration names others; both must be the ones it was
 * built with. */
static enum status open_search(const struct arguments *a, const struct collection_info *info, struct embedder *embedder,
                               struct tokenizer **tokenizer, struct error *e) {
    const struct config *c = &a->config;
    enum status status =
        embedder_bert_open(embedder, c->retrieval.embedder[0] ? c->retrieval.embedder : info->embedder, c, e);
    if (status == STATUS_OK) status = tokenizer_open(tokenizer, c->model.path[0] ? c->model.path : info->tokenizer, e);
    return status;
}

static void print_hit(int rank, const struct chunk *chunk, float similarity, const struct tokenizer *tokenizer) {
    struct buffer text = {0};
    tokenizer_decode(tokenizer, (const int32_t *)(const void *)chunk->tokens, chunk->n_tokens, false, &text);
    printf("%d  %.4f  %s  [%" PRIu64 ", %" PRIu64 ")%s%s\n", rank, similarity, chunk->path, chunk->start, chunk->end,
           chunk->title[0] ? "  " : "", chunk->title);
    /* Indented, so that a line of a document cannot be taken for one of ours. */
    const char *line = text.data ? text.data : "", *end;
    for (; *line; line = end + (*end == '\n')) {
        end = line + strcspn(line, "\n");
        printf("    %.*s\n", (int)(end - line), line);
    }
    buffer_free(&text);
}

static enum status search(const struct arguments *a, const struct collection *c, const struct embedder *embedder,
                          const struct tokenizer *tokenizer, struct error *e) {
    struct text_span query = {a->rest[1], strlen(a->rest[1])};
    const struct collection_info *info = collection_info(c);
    int64_t *ids = xmalloc((size_t)a->k * sizeof *ids);
    float *similarities = xmalloc((size_t)a->k * sizeof *similarities);
    float *vector = xmalloc((size_t)embedder->dim * sizeof *vector);
    enum status status = collection_match(c, embedder->hash, tokenizer_hash(tokenizer), info->chunk_length, e);
    if (status == STATUS_OK) status = embedder->embed(embedder->self, &query, 1, vector, e);
    if (status == STATUS_OK)
        status = index_search(collection_index(c), (struct index_query){.vectors = vector, .n = 1, .k = a->k}, ids,
                              similarities, e);
    for (int i = 0; i < a->k && status == STATUS_OK && ids[i] >= 0; i++) {
        struct chunk chunk = collection_chunk(c, ids[i]);
        print_hit(i + 1, &chunk, similarities[i], tokenizer);
    }
    free(ids);
    free(similarities);
    free(vector);
    return status;
}

static int run_search(struct arguments *a, struct error *e) {
    struct collection *c = NULL;
    struct embedder embedder = {0};
    struct tokenizer *tokenizer = NULL;
    enum status status = expect_rest(a, 2, "search DIR \"text\"", e);
    if (status == STATUS_OK) status = collection_open(&c, a->rest[0], e);
    if (status == STATUS_OK) status = open_search(a, collection_info(c), &embedder, &tokenizer, e);
    if (status == STATUS_OK) status = search(a, c, &embedder, tokenizer, e);
    tokenizer_close(tokenizer);
    embedder_bert_close(&embedder);
    collection_close(c);
    return status ? EXIT_FAILED : EXIT_FINE;
}

static int run_neighbors(struct arguments *a, struct error *e) {
    struct collection *c = NULL;
    struct embedder embedder = {0};
    struct tokenizer *tokenizer = NULL;
    struct neighbors_options o = a->neighbors;
    o.out = a->build.out;
    o.k = a->k;
    enum status status = expect_rest(a, 1, "neighbors DIR", e);
    if (status == STATUS_OK && o.out == NULL) status = error_set(e, STATUS_INVALID, "neighbors needs --out FILE");
    if (status == STATUS_OK) status = collection_open(&c, a->rest[0], e);
    if (status == STATUS_OK && o.queries) {
        const struct collection_info *info = collection_info(c);
        status = open_search(a, info, &embedder, &tokenizer, e);
        if (status == STATUS_OK)
            status = collection_match(c, embedder.hash, tokenizer_hash(tokenizer), info->chunk_length, e);
    }
    if (status == STATUS_OK) status = index_neighbors(&o, c, &embedder, e);
    tokenizer_close(tokenizer);
    embedder_bert_close(&embedder);
    collection_close(c);
    return status ? EXIT_FAILED : EXIT_FINE;
}

static int run_stats(struct arguments *a, struct error *e) {
    struct collection *c;
    if (expect_rest(a, 1, "stats DIR", e) || collection_open(&c, a->rest[0], e)) return EXIT_FAILED;
    const struct collection_info *info = collection_info(c);
    printf("generation    %d\ndocuments     %" PRId64 "\nchunks        %" PRId64 "\ntokens        %" PRId64 "\n",
           info->generation, info->n_documents, info->n_chunks, info->n_tokens);
    printf("chunk length  %d\nvectors       %d numbers, inner product\nindex         %s\n", info->chunk_length,
           info->dim, info->index_factory);
    printf("embedder      %s (hash %016" PRIx64 ")\ntokenizer     %s (hash %016" PRIx64 ")\n", info->embedder,
           info->embedder_hash, info->tokenizer, info->tokenizer_hash);
    collection_close(c);
    return EXIT_FINE;
}

/* Says whether the embedder and tokenizer that the collection names are there and still the same. */
static enum status verify_makers(const struct arguments *a, const struct collection *c, struct error *e) {
    const struct collection_info *info = collection_info(c);
    struct embedder embedder = {0};
    struct tokenizer *tokenizer = NULL;
    enum status status = open_search(a, info, &embedder, &tokenizer, e);
    if (status == STATUS_OK)
        status = collection_match(c, embedder.hash, tokenizer_hash(tokenizer), info->chunk_length, e);
    tokenizer_close(tokenizer);
    embedder_bert_close(&embedder);
    return status;
}

static int run_verify(struct arguments *a, struct error *e) {
    struct collection *c;
    if (expect_rest(a, 1, "verify DIR", e) || collection_verify(a->rest[0], e) || collection_open(&c, a->rest[0], e))
        return EXIT_FAILED;
    const struct collection_info *info = collection_info(c);
    enum status status = verify_makers(a, c, e);
    if (status == STATUS_OK)
        printf("%s: generation %d is whole: %" PRId64 " documents, %" PRId64 " chunks, %" PRId64
               " tokens; embedder and tokenizer are the ones it was built with\n",
               a->rest[0], info->generation, info->n_documents, info->n_chunks, info->n_tokens);
    collection_close(c);
    return status ? EXIT_FAILED : EXIT_FINE;
}

static int run_extract(struct arguments *a, struct error *e) {
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

static const struct command {
    const char *name;
    int (*run)(struct arguments *a, struct error *e);
} commands[] = {{"build", run_build}, {"search", run_search}, {"neighbors", run_neighbors},
                {"stats", run_stats}, {"verify", run_verify}, {"extract", run_extract}};

static int run(const struct command *command, int argc, char **argv) {
    struct error e = {0};
    struct arguments a = {.k = 5, .build = {.max_file_bytes = DEFAULT_FILE_LIMIT}};
    config_init(&a.config);
    int code = parse(&a, argc, argv, &e) ? EXIT_FAILED : command->run(&a, &e);
    config_free(&a.config);
    if (code == EXIT_FAILED) fprintf(stderr, "retro-index %s: %s\n", command->name, e.text);
    if (code == EXIT_INTERRUPTED) fprintf(stderr, "retro-index: interrupted; what was there before is unchanged\n");
    if (fflush(stdout) != 0 && code == EXIT_FINE) code = EXIT_FAILED;
    return code;
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++)
        if (strcmp(name, commands[i].name) == 0) return run(&commands[i], argc - 1, argv + 1);
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        fputs(usage_text, stdout);
        return EXIT_FINE;
    }
    if (strcmp(name, "--version") == 0) {
        printf("retro-index " RETRO_VERSION " (%s)\n", HAVE_FAISS ? "FAISS and exact search" : "exact search");
        return EXIT_FINE;
    }
    fprintf(stderr, "retro-index: unknown command \"%s\"\n%s", name, usage_text);
    return EXIT_FAILED;
}
