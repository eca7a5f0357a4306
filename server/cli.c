/* server/cli.c: the command line. See cli.h. */
#include "server/cli.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/line.h"
#include "config/base/nearest.h"
#include "retro/model/generation_config.h"
#include "server/access/keyring.h"
#include "server/cli_check.h"

enum cli_option {
    CLI_CONFIG = 1,
    CLI_SET,
    CLI_CHECK,
    CLI_PRINT,
    CLI_HELP,
    CLI_VERSION,
    CLI_NEW_KEY,
    CLI_HASH_KEY,
    CLI_OPEN
};

static const struct option long_options[] = {
    {"config", required_argument, NULL, CLI_CONFIG},
    {"set", required_argument, NULL, CLI_SET},
    {"check-config", no_argument, NULL, CLI_CHECK},
    {"print-config", no_argument, NULL, CLI_PRINT},
    {"help", no_argument, NULL, CLI_HELP},
    {"version", no_argument, NULL, CLI_VERSION},
    {"new-key", required_argument, NULL, CLI_NEW_KEY},
    {"hash-key", required_argument, NULL, CLI_HASH_KEY},
    {"open", no_argument, NULL, CLI_OPEN},
    {NULL, 0, NULL, 0},
};

struct cli_arguments {
    const char *config;
    const char **sets; /* [argc] */
    int n_sets;
    char **words; /* [n_words] behind the options: a model, and documents */
    int n_words;
    enum cli_option instead; /* 0: serve */
    const char *key_name;
    bool mcp, open;
};

static void print_help(void) {
    printf(
        "retro-server: a language model that reads documents while it writes\n\n"
        "  retro-server MODEL [DOCUMENTS]... [--set KEY=VALUE]...\n"
        "  retro-server --config FILE [--set KEY=VALUE]...\n"
        "  retro-server mcp --config FILE [--set KEY=VALUE]...\n\n"
        "  MODEL             a folder or a GGUF file, which is served\n"
        "  DOCUMENTS         folders and files that it reads: a collection is made of them, and "
        "follows them\n"
        "  mcp               one client of the Model Context Protocol is answered, over standard "
        "input and output\n"
        "  --config FILE     options in JSON, see docs/config.md\n"
        "  --set KEY=VALUE   one option on top of the file; may be repeated\n"
        "  --open            open the page in the desktop's browser once the server listens\n"
        "  --check-config    check the options, the folders they name and whether these go "
        "together, list that, and "
        "exit\n"
        "  --print-config    print the options in effect and exit\n"
        "  --new-key NAME    print a line for server.keys_file, and on stderr the new key that it "
        "is of, and exit\n"
        "  --hash-key NAME   the same of a key that is read from standard input\n"
        "  --help            this text\n"
        "  --version         version, compiler and index library\n\n"
        "Once it listens:\n\n"
        "  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"The fork() system call\", "
        "\"max_tokens\": "
        "32}'\n\n"
        "Options:\n\n");
    config_print_help(stdout);
}

/* Options of the configuration are no words of their own, and the model has none. */
static enum status unknown_option(const char *word, struct error *e) {
    char near[NEAREST_OPTION_SIZE];
    struct buffer keys = {0};
    if (strcmp(word, "-m") == 0 || strcmp(word, "--model") == 0)
        return error_set(e, STATUS_INVALID,
                         "unknown option %s; the model is the first word: retro-server MODEL "
                         "DOCUMENTS",
                         word);
    if (strncmp(word, "--", 2) == 0)
        options_complete(&config_options, (struct text_span){word + 2, strcspn(word + 2, "=")},
                         &keys);
    if (keys.size)
        error_set(e, STATUS_INVALID, "unknown option %s; --set KEY=VALUE sets %s", word, keys.data);
    else
        error_set(e, STATUS_INVALID, "unknown option %s%s; see --help", word,
                  nearest_option(long_options, word, near));
    buffer_free(&keys);
    return e->status;
}

static enum status scan(int argc, char **argv, struct cli_arguments *arguments, struct error *e) {
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":", long_options, NULL)) != -1) {
        switch (option) {
            case CLI_CONFIG: arguments->config = optarg; break;
            case CLI_SET:
                arguments->sets[arguments->n_sets] = optarg;
                arguments->n_sets++;
                break;
            case CLI_NEW_KEY:
            case CLI_HASH_KEY:
                arguments->key_name = optarg;
                arguments->instead = (enum cli_option)option;
                break;
            case CLI_OPEN: arguments->open = true; break;
            case ':':
                return error_set(e, STATUS_INVALID, "%s needs a value; see --help",
                                 argv[optind - 1]);
            case '?': return unknown_option(argv[optind - 1], e);
            default: arguments->instead = (enum cli_option)option;
        }
    }
    arguments->mcp = optind < argc && strcmp(argv[optind], "mcp") == 0;
    if (arguments->mcp) optind++;
    if (arguments->mcp && optind < argc)
        return error_set(e, STATUS_INVALID,
                         "unexpected argument %s behind mcp, which takes --config FILE; see --help",
                         argv[optind]);
    arguments->words = argv + optind;
    arguments->n_words = argc - optind;
    if (arguments->config && arguments->n_words > 0)
        return error_set(e, STATUS_INVALID,
                         "unexpected argument %s beside --config, which names model and documents; "
                         "see --help",
                         argv[optind]);
    return STATUS_OK;
}

/* Sampling that the options leave to the model goes to stderr, so that standard output stays a
 * configuration. */
static enum status print_sampling(const struct config *config, struct error *e) {
    struct generation_config model;
    struct buffer text = {0};
    if (config->model.path[0] == '\0' || !config->model.sampling_defaults) return STATUS_OK;
    if (generation_config_read(config->model.path, &model, e)) return e->status;
    sampling_defaults_print(&model.sampling, &text);
    if (text.size > 0)
        line_print(stderr, "retro-server: requests that do not say get %s, from %s%s", text.data,
                   config->model.path,
                   model.from_keys ? ": general.sampling" : "/generation_config.json");
    buffer_free(&text);
    return STATUS_OK;
}

static enum status print_config(const struct config *config, struct error *e) {
    config_print_json(config, stdout);
    return print_sampling(config, e);
}

/* Keys. */

/* The first line of standard input. */
static enum status read_secret(struct buffer *out, struct error *e) {
    char line[KEY_MAX_BYTES + 2];
    if (fgets(line, sizeof line, stdin) == NULL) line[0] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    size_t size = strlen(line);
    if (size < KEY_MIN_BYTES || size > KEY_MAX_BYTES)
        return error_set(e, STATUS_INVALID,
                         "standard input holds a key of %zu bytes, allowed is %d .. %d: a short "
                         "key can be guessed, as "
                         "its hash is not salted",
                         size, KEY_MIN_BYTES, KEY_MAX_BYTES);
    buffer_append(out, line, size);
    return STATUS_OK;
}

/* The line is printed if the file of keys would take it. */
static enum status print_key_line(const char *name, const struct buffer *secret, struct error *e) {
    struct buffer line = {0};
    struct key_list list;
    key_line_write(name, (struct text_span){secret->data, secret->size}, &line);
    enum status status =
        key_list_parse(&list, (struct text_span){line.data, line.size}, "the new line", e);
    if (status == STATUS_OK) {
        key_list_free(&list);
        fputs(line.data, stdout);
    }
    buffer_free(&line);
    return status;
}

static enum status print_key(const struct cli_arguments *arguments, struct error *e) {
    struct buffer secret = {0};
    bool made = arguments->instead == CLI_NEW_KEY;
    enum status status = made ? key_make(&secret, e) : read_secret(&secret, e);
    if (status == STATUS_OK) status = print_key_line(arguments->key_name, &secret, e);
    if (status == STATUS_OK && made)
        line_print(stderr, "the key, which is shown only here: %s", secret.data);
    buffer_free(&secret);
    return status;
}

static enum status apply_sets(const struct cli_arguments *arguments, struct config *config,
                              struct error *e) {
    for (int i = 0; i < arguments->n_sets; i++)
        if (config_set(config, arguments->sets[i], e)) return e->status;
    return STATUS_OK;
}

/* An option that is set goes before the model and the documents, which look at it, and again
 * behind. */
static enum status apply_options(const struct cli_arguments *arguments, struct config *config,
                                 struct quick_start *start, struct error *e) {
    if (arguments->config && config_read(config, arguments->config, e)) return e->status;
    if (apply_sets(arguments, config, e)) return e->status;
    if (arguments->n_words == 0) return config_check(config, e);
    if (quick_start_configure(start, config, arguments->words[0], arguments->words + 1,
                              arguments->n_words - 1, e) ||
        apply_sets(arguments, config, e))
        return e->status;
    return config_check(config, e);
}

static enum status apply(const struct cli_arguments *arguments, struct config *config,
                         struct quick_start *start, enum cli_action *action, struct error *e) {
    *action = arguments->instead ? CLI_EXIT : arguments->mcp ? CLI_MCP : CLI_SERVE;
    if (arguments->instead == CLI_HELP) {
        print_help();
        return STATUS_OK;
    }
    if (arguments->instead == CLI_VERSION) {
        printf("retro-server " RETRO_VERSION ", compiler %s, %s\n", __VERSION__,
               HAVE_FAISS ? "FAISS and exact search" : "exact search");
        return STATUS_OK;
    }
    if (arguments->key_name) return print_key(arguments, e);
    if (apply_options(arguments, config, start, e)) return e->status;
    if (arguments->instead == CLI_PRINT && print_config(config, e)) return e->status;
    return arguments->instead == CLI_CHECK ? cli_check(config, arguments->config, e) : STATUS_OK;
}

enum status cli_parse(int argc, char **argv, struct config *config, struct quick_start *start,
                      enum cli_action *action, struct error *e) {
    struct cli_arguments arguments = {.sets = xcalloc((size_t)argc, sizeof(const char *))};
    enum status status = scan(argc, argv, &arguments, e);
    start->opens_page = arguments.open;
    if (status == STATUS_OK) status = apply(&arguments, config, start, action, e);
    free(arguments.sets);
    return status;
}
