/* tools/index/index_options.c: see index_options.h. */
#include "tools/index/index_options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/nearest.h"
#include "config/sandbox/sandbox.h"
#include "retrieval/extract/ocr/tesseract.h"
#include "tools/usage.h"

enum {
    LARGEST_FILE_LIMIT = 1 << 30,
    LARGEST_K = 1000,
    LARGEST_SECONDS = 86400,
    LARGEST_THREADS = 32
};
enum {
    READS = COMMAND_ADD | COMMAND_UPDATE | COMMAND_WATCH | COMMAND_REREAD,
    OPENS_FILES = COMMAND_BUILD | COMMAND_EXTRACT | READS,
    PUTS = COMMAND_ADD | COMMAND_UPDATE | COMMAND_WATCH,
    ALL_OPEN = COMMAND_BUILD | COMMAND_SEARCH | COMMAND_NEIGHBORS | COMMAND_VERIFY | READS |
               COMMAND_LIST | COMMAND_SHOW | COMMAND_STATS | COMMAND_CHANGE | COMMAND_DELETE |
               COMMAND_EMBED
};

enum option_id {
    OPTION_OUT = 256,
    OPTION_CONFIG,
    OPTION_SET,
    OPTION_CHUNK,
    OPTION_CHUNKS,
    OPTION_CONTEXT,
    OPTION_OVERLAP,
    OPTION_INDEX,
    OPTION_LIMIT,
    OPTION_SECONDS,
    OPTION_OCR_LANGUAGES,
    OPTION_NO_OCR,
    OPTION_PASSWORDS,
    OPTION_HIDDEN,
    OPTION_PAGE_SECONDS,
    OPTION_THREADS,
    OPTION_DRY,
    OPTION_QUERIES,
    OPTION_EXCLUDE,
    OPTION_VERBOSE,
    OPTION_FOLLOW,
    OPTION_ONCE,
    OPTION_JSON,
    OPTION_LONG,
    OPTION_META,
    OPTION_FILTER,
    OPTION_EXPLAIN,
    OPTION_OPERATORS,
    OPTION_CONFIDENCE,
    OPTION_PICTURES,
    OPTION_PICTURE_EMBEDDER,
    OPTION_BY_PICTURE,
    OPTION_ID,
    OPTION_BASE,
    OPTION_REPLACE,
    OPTION_REPAIR,
    OPTION_YES,
    OPTION_RECALL,
    OPTION_WITH,
    OPTION_LOAD,
    OPTION_HELP
};

static const struct index_row {
    const char *name, *value, *help;
    int id; /* enum option_id, or the letter of a short option */
    unsigned commands;
} rows[] = {
    {"--out", "DIR", "folder of the collection", OPTION_OUT, COMMAND_BUILD},
    {"--out", "FILE", "what is written", OPTION_OUT, COMMAND_NEIGHBORS},
    {"--k", "N", "how many chunks (5); -k N is the same", 'k',
     COMMAND_SEARCH | COMMAND_NEIGHBORS | COMMAND_STATS},
    {"--queries", "FILE",
     "lines {\"document\": \"...\", \"text\": \"...\"}, whose neighbours are found instead",
     OPTION_QUERIES, COMMAND_NEIGHBORS},
    {"--recall", NULL,
     "what the index finds of what exact search finds, and how fast (docs/indexing.md)",
     OPTION_RECALL, COMMAND_STATS},
    {"--queries", "FILE", "with --recall: a query a line, in place of 200 chunks of the collection",
     OPTION_QUERIES, COMMAND_STATS},
    {"--exclude-same-document", NULL, "no chunks of the query's own document", OPTION_EXCLUDE,
     COMMAND_NEIGHBORS},
    {"--chunk-length", "N", "tokens of a chunk, at most; else the model's, else 64", OPTION_CHUNK,
     COMMAND_BUILD},
    {"--chunks", "text|grid",
     "where chunks end: with blocks and sentences (text, as it is without the option), or after "
     "--chunk-length\n"
     "tokens, as Megatron's chunk database has them (grid)",
     OPTION_CHUNKS, COMMAND_BUILD},
    {"--context", "N",
     "tokens of title, headings and table head that are embedded before each chunk, at most (32; "
     "of a grid 0)",
     OPTION_CONTEXT, COMMAND_BUILD},
    {"--overlap", "N", "tokens of the text before it that are embedded with each chunk (0)",
     OPTION_OVERLAP, COMMAND_BUILD},
    {"--index", "FACTORY",
     "flat, ivf, ivfsq8 or hnsw; Exact for search in plain C; or a factory string of FAISS. Else "
     "the number of\n"
     "chunks decides (docs/indexing.md)",
     OPTION_INDEX, COMMAND_BUILD},
    {"--with", "FOLDER", "the new embedder", OPTION_WITH, COMMAND_EMBED},
    {"--load", "PERCENT", "works so much of the time and rests in between (100)", OPTION_LOAD,
     COMMAND_EMBED},
    {"--index", "FACTORY", "another kind of index; else as it was asked for", OPTION_INDEX,
     COMMAND_EMBED},
    {"--base", "DIR",
     "documents are known by their path below DIR, wherever DIR lies; else by the file's whole "
     "path\n"
     "(docs/indexing.md)",
     OPTION_BASE, COMMAND_BUILD | PUTS},
    {"--id", "ID", "the document's id, where PATH is one file; else it is made of the path",
     OPTION_ID, COMMAND_ADD | COMMAND_UPDATE},
    {"--replace", NULL,
     "with --base or --id: documents that came from other files are replaced, too", OPTION_REPLACE,
     PUTS},
    {"--meta", "KEY=VALUE", "goes with every document: a number, true, false, or text", OPTION_META,
     PUTS},
    {"--explain", NULL, "prints what put each hit where it stands (docs/search.md)", OPTION_EXPLAIN,
     COMMAND_SEARCH},
    {"--operators", NULL,
     "the query has operators: \"a phrase\" stands in each hit, -word in none, begin* is any word "
     "that\n"
     "begins so (docs/search.md)",
     OPTION_OPERATORS, COMMAND_SEARCH},
    {"--pictures", NULL,
     "reads JPEG, PNG, WebP, GIF and the pages of PDF as pictures too (docs/pictures.md)",
     OPTION_PICTURES, COMMAND_BUILD | COMMAND_EXTRACT | READS},
    {"--picture-embedder", "FOLDER",
     "--pictures, with vectors of an embedder of their own, such as CLIP: "
     "retrieval.picture_embedder",
     OPTION_PICTURE_EMBEDDER, COMMAND_BUILD},
    {"--by-picture", NULL, "TEXT is the file of a picture, and what is like it is found",
     OPTION_BY_PICTURE, COMMAND_SEARCH},
    {"--min-confidence", "N", "no passages of pages that OCR was less sure of, 1 .. 100",
     OPTION_CONFIDENCE, COMMAND_SEARCH},
    {"--filter", "JSON", "the documents that may be found (docs/filters.md)", OPTION_FILTER,
     COMMAND_SEARCH},
    {"--filter", "JSON", "the documents that go, all or those that are named", OPTION_FILTER,
     COMMAND_DELETE},
    {"--yes", NULL, "several documents go without a question", OPTION_YES, COMMAND_DELETE},
    {"--repair", NULL, "cuts damaged changes off the log first, puts them aside, and says so",
     OPTION_REPAIR, COMMAND_VERIFY},
    {"--json", NULL, "an object a line", OPTION_JSON,
     COMMAND_LIST | COMMAND_SHOW | READS | COMMAND_CHANGE | COMMAND_DELETE | COMMAND_STATS |
         COMMAND_COPY | COMMAND_EMBED | COMMAND_VERIFY | COMMAND_SEARCH | COMMAND_BUILD |
         COMMAND_NEIGHBORS | COMMAND_EXTRACT},
    {"--long", NULL, "id and number of chunks before each path, title behind it", OPTION_LONG,
     COMMAND_LIST},
    {"--max-file-bytes", "N", "larger files are skipped (67108864)", OPTION_LIMIT,
     COMMAND_BUILD | COMMAND_EXTRACT | READS},
    {"--max-file-seconds", "N", "files whose reading takes longer are skipped (60)", OPTION_SECONDS,
     COMMAND_BUILD | COMMAND_EXTRACT | READS},
    {"--ocr-languages", "LIST",
     "languages that OCR reads, as eng+deu+fra; else those that are installed, of each page the "
     "one "
     "that fits\n"
     "best (docs/files.md)",
     OPTION_OCR_LANGUAGES, COMMAND_BUILD | COMMAND_EXTRACT | READS},
    {"--no-ocr", NULL, "pages and files that are pictures of text are not read", OPTION_NO_OCR,
     COMMAND_BUILD | COMMAND_EXTRACT | READS},
    {"--hidden-sheets", NULL, "reads the sheets, rows and columns that a spreadsheet hides, too",
     OPTION_HIDDEN, COMMAND_BUILD | COMMAND_EXTRACT | READS},
    {"--max-page-seconds", "N", "pages whose OCR takes longer are not read (30)",
     OPTION_PAGE_SECONDS, COMMAND_BUILD | COMMAND_EXTRACT | READS},
    {"--password-file", "FILE",
     "passwords, one a line, that encrypted PDF files are opened with: retrieval.password_file",
     OPTION_PASSWORDS, COMMAND_BUILD | COMMAND_EXTRACT | READS},
    {"--threads", "N", "files that are read at the same time; else as many as there are cores",
     OPTION_THREADS, COMMAND_BUILD | READS},
    {"--dry-run", NULL,
     "reads everything, lists the documents and what is skipped, and writes nothing", OPTION_DRY,
     COMMAND_BUILD | READS},
    {"--follow", NULL, "follows links that lead out of PATH; else they are skipped", OPTION_FOLLOW,
     COMMAND_BUILD | PUTS},
    {"--once", NULL, "ends when the collection is as the files are, for a timer", OPTION_ONCE,
     COMMAND_WATCH},
    {"--verbose", NULL, "names files of unknown kind, hidden files and copies of texts",
     OPTION_VERBOSE, COMMAND_BUILD | READS},
    {"--config", "FILE", "model.path (tokenizer), retrieval.embedder and extract are used",
     OPTION_CONFIG, ALL_OPEN | COMMAND_EXTRACT},
    {"--set", "KEY=VALUE", "sets one option, after the file", OPTION_SET,
     ALL_OPEN | COMMAND_EXTRACT},
};

/* An option of the command line that is one of the configuration. */
static enum status set_config(struct index_arguments *arguments, const char *name,
                              const char *value, struct error *e) {
    struct buffer option = {0};
    buffer_printf(&option, "%s=%s", name, value);
    enum status status = config_set(&arguments->config, option.data, e);
    buffer_free(&option);
    return status;
}

static enum status set_ocr_languages(struct index_arguments *arguments, const char *list,
                                     struct error *e) {
    struct ocr_languages languages;
    arguments->build.ocr.languages = list;
    if (ocr_languages_parse(&languages, list, e)) return error_prefix(e, "--ocr-languages");
    return STATUS_OK;
}

static enum status set_cut(struct build_options *build, const char *name, struct error *e) {
    for (const struct json_choice *choice = chunk_cuts; choice->name; choice++)
        if (strcmp(choice->name, name) == 0) {
            build->cut = (enum chunk_cut)choice->value;
            return STATUS_OK;
        }
    return error_set(e, STATUS_INVALID, "--chunks %.40s: text or grid", name);
}

static enum status parse_number(struct index_arguments *arguments, int option, const char *value,
                                struct error *e) {
    struct build_options *build = &arguments->build;
    const struct {
        int id;
        const char *name;
        int least, most, *to;
    } numbers[] = {
        {OPTION_CHUNK, "--chunk-length", 1, 65536, &build->chunk_length},
        {OPTION_CONTEXT, "--context", 0, CHUNK_MAX_CONTEXT, &build->context},
        {OPTION_OVERLAP, "--overlap", 0, CHUNK_MAX_CONTEXT, &build->overlap},
        {OPTION_SECONDS, "--max-file-seconds", 1, LARGEST_SECONDS, &build->max_seconds},
        {OPTION_PAGE_SECONDS, "--max-page-seconds", 1, LARGEST_SECONDS, &build->ocr.page_seconds},
        {OPTION_THREADS, "--threads", 1, LARGEST_THREADS, &build->threads},
        {OPTION_CONFIDENCE, "--min-confidence", 1, 100,
         &arguments->config.retrieval.choice.min_confidence},
        {OPTION_LOAD, "--load", 1, 100, &arguments->load},
        {'k', "-k", 1, LARGEST_K, &arguments->k}};
    for (size_t i = 0; i < ARRAY_COUNT(numbers); i++) {
        long long n = 0;
        if (numbers[i].id != option) continue;
        if (usage_number(numbers[i].name, value, numbers[i].least, numbers[i].most, &n, e))
            return e->status;
        *numbers[i].to = (int)n;
        return STATUS_OK;
    }
    return error_set(e, STATUS_INVALID, "--help lists the options");
}

static enum status parse_option(struct index_arguments *arguments, int option, const char *value,
                                struct error *e) {
    long long n = 0;
    enum status status = STATUS_OK;
    switch (option) {
        case OPTION_OUT: arguments->build.out = value; break;
        case OPTION_CONFIG: status = config_read(&arguments->config, value, e); break;
        case OPTION_SET: break; /* after the file, whatever the order: see index_options_parse */
        case OPTION_INDEX: arguments->build.index_factory = value; break;
        case OPTION_QUERIES: arguments->neighbors.queries = value; break;
        case OPTION_EXCLUDE: arguments->neighbors.exclude_same_document = true; break;
        case OPTION_VERBOSE: arguments->build.verbose = true; break;
        case OPTION_DRY: arguments->build.dry_run = true; break;
        case OPTION_FOLLOW: arguments->build.follow = true; break;
        case OPTION_ONCE: arguments->watch_once = true; break;
        case OPTION_JSON:
            arguments->json = arguments->build.json = arguments->neighbors.json = true;
            break;
        case OPTION_LONG: arguments->list_long = true; break;
        case OPTION_FILTER: arguments->filter = value; break;
        case OPTION_EXPLAIN: arguments->explain = true; break;
        case OPTION_OPERATORS: arguments->operators = true; break;
        case OPTION_PICTURES: arguments->build.pictures = true; break;
        case OPTION_PICTURE_EMBEDDER:
            status = set_config(arguments, "retrieval.picture_embedder", value, e);
            break;
        case OPTION_PASSWORDS:
            status = set_config(arguments, "retrieval.password_file", value, e);
            break;
        case OPTION_BY_PICTURE: arguments->by_picture = true; break;
        case OPTION_WITH: arguments->with = value; break;
        case OPTION_ID: arguments->id = value; break;
        case OPTION_BASE: arguments->build.base = value; break;
        case OPTION_REPLACE: arguments->replace = true; break;
        case OPTION_YES: arguments->yes = true; break;
        case OPTION_REPAIR: arguments->repair = true; break;
        case OPTION_RECALL: arguments->recall = true; break;
        case OPTION_META: status = metadata_add(&arguments->metadata, value, e); break;
        case OPTION_CHUNKS: status = set_cut(&arguments->build, value, e); break;
        case OPTION_LIMIT:
            status = usage_number("--max-file-bytes", value, 1, LARGEST_FILE_LIMIT, &n, e);
            arguments->build.max_file_bytes = (size_t)n;
            break;
        case OPTION_OCR_LANGUAGES: status = set_ocr_languages(arguments, value, e); break;
        case OPTION_NO_OCR: arguments->build.ocr.off = true; break;
        case OPTION_HIDDEN: arguments->build.hidden_sheets = true; break;
        case OPTION_HELP: arguments->help = true; break;
        default: return parse_number(arguments, option, value, e);
    }
    return status;
}

/* The file is read once: a password that is added later counts for the next start. */
static enum status read_passwords(struct index_arguments *arguments, struct error *e) {
    enum { MOST_BYTES = 2000 };
    const char *path = arguments->config.retrieval.password_file;
    if (path[0] == '\0') return STATUS_OK;
    if (file_read(path, MOST_BYTES, &arguments->passwords, e))
        return error_prefix(e, "--password-file");
    arguments->build.passwords = arguments->passwords.data;
    return STATUS_OK;
}

/* Parsers are begun by a process that was forked before. */
static enum status read_secrets(struct index_arguments *arguments, struct error *e) {
    const struct config *config = &arguments->config;
    bool any = config->retrieval.password_file[0] || config->extract.model_key_file[0];
    enum status status = any ? sandbox_start(NULL, e) : STATUS_OK;
    if (status == STATUS_OK) status = read_passwords(arguments, e);
    if (status == STATUS_OK) status = opened_reader_open(&arguments->reader, &config->extract, e);
    arguments->build.model = opened_reader_model(&arguments->reader);
    return status;
}

/* The rows of a command for getopt, and --help. */
static void list_options(unsigned command, struct option long_options[ARRAY_COUNT(rows) + 2]) {
    int n = 0;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        if ((rows[i].commands & command) == 0 || strncmp(rows[i].name, "--", 2) != 0) continue;
        long_options[n] = (struct option){
            rows[i].name + 2, rows[i].value ? required_argument : no_argument, NULL, rows[i].id};
        n++;
    }
    long_options[n] = (struct option){"help", no_argument, NULL, OPTION_HELP};
    n++;
    long_options[n] = (struct option){0};
}

/* The words for an option that is not there, or that has no value. */
static enum status refuse_option(const struct option *options, int kind, const char *word,
                                 struct error *e) {
    char near[NEAREST_OPTION_SIZE];
    if (kind == ':')
        return error_set(e, STATUS_INVALID, "%s needs a value; --help lists the options", word);
    return error_set(e, STATUS_INVALID, "unknown option %s%s; --help lists the options", word,
                     nearest_option(options, word, near));
}

enum status index_options_parse(struct index_arguments *arguments, unsigned command, int argc,
                                char **argv, struct error *e) {
    struct option options[ARRAY_COUNT(rows) + 2];
    list_options(command, options);
    const char **sets = xcalloc((size_t)argc + 1, sizeof *sets);
    int option, n_sets = 0;
    bool has_k = command & (COMMAND_SEARCH | COMMAND_NEIGHBORS | COMMAND_STATS);
    enum status status = STATUS_OK;
    opterr = 0;
    while (status == STATUS_OK && !arguments->help &&
           (option = getopt_long(argc, argv, has_k ? ":k:" : ":", options, NULL)) != -1) {
        if (option == OPTION_SET) {
            sets[n_sets] = optarg;
            n_sets++;
        }
        status = option == '?' || option == ':'
                     ? refuse_option(options, option, argv[optind - 1], e)
                     : parse_option(arguments, option, optarg, e);
    }
    for (int i = 0; i < n_sets && status == STATUS_OK; i++)
        status = config_set(&arguments->config, sets[i], e);
    free(sets);
    arguments->rest = argv + optind;
    arguments->n_rest = argc - optind;
    if (status == STATUS_OK) status = config_check(&arguments->config, e);
    if (status || (command & OPENS_FILES) == 0) return status;
    return read_secrets(arguments, e);
}

void index_options_print(unsigned command) {
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        if (rows[i].commands & command)
            usage_option(stdout, rows[i].name, rows[i].value, rows[i].help);
}
