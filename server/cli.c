/* server/cli.c: the command line. See cli.h. */
#include "server/cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/base/line.h"
#include "retro/model/generation_config.h"
#include "retro/weights/gguf_folder.h"
#include "server/host/check.h"

enum cli_option { CLI_CONFIG = 1, CLI_SET, CLI_CHECK, CLI_PRINT, CLI_HELP, CLI_VERSION };

static const struct option long_options[] = {
    {"config", required_argument, NULL, CLI_CONFIG},
    {"set", required_argument, NULL, CLI_SET},
    {"check-config", no_argument, NULL, CLI_CHECK},
    {"print-config", no_argument, NULL, CLI_PRINT},
    {"help", no_argument, NULL, CLI_HELP},
    {"version", no_argument, NULL, CLI_VERSION},
    {NULL, 0, NULL, 0},
};

struct cli_arguments {
    const char *config;
    const char **sets; /* [argc] */
    int n_sets;
    enum cli_option instead; /* 0: serve */
};

static void print_help(void) {
    printf(
        "retro-server: a language model that reads documents while it writes\n\n"
        "  retro-server --config FILE [--set KEY=VALUE]...\n\n"
        "  --config FILE     options in JSON, see docs/config.md\n"
        "  --set KEY=VALUE   one option on top of the file; may be repeated\n"
        "  --check-config    check the options, the folders they name and whether these go together, and exit\n"
        "  --print-config    print the options in effect and exit\n"
        "  --help            this text\n"
        "  --version         version, compiler and index library\n\n"
        "Once it listens:\n\n"
        "  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"The fork() system call\", \"max_tokens\": "
        "32}'\n\n"
        "Options:\n\n");
    config_print_help(stdout);
}

static enum status scan(int argc, char **argv, struct cli_arguments *a, struct error *e) {
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":", long_options, NULL)) != -1) {
        switch (option) {
            case CLI_CONFIG: a->config = optarg; break;
            case CLI_SET:
                a->sets[a->n_sets] = optarg;
                a->n_sets++;
                break;
            case ':': return error_set(e, STATUS_INVALID, "%s needs a value; see --help", argv[optind - 1]);
            case '?': return error_set(e, STATUS_INVALID, "unknown option %s; see --help", argv[optind - 1]);
            default: a->instead = (enum cli_option)option;
        }
    }
    if (optind < argc) return error_set(e, STATUS_INVALID, "unexpected argument %s; see --help", argv[optind]);
    return STATUS_OK;
}

/* Whether an option's folder, where one is given, is there with the file that makes it what it should be; else says so.
 */
static bool folder_ready(const char *option, const char *folder, const char *file, const char *what) {
    struct buffer path = {0};
    if (folder[0] == '\0') return true;
    buffer_printf(&path, "%s/%s", folder, file);
    bool there = access(folder, F_OK) == 0, ready = there && access(path.data, R_OK) == 0;
    if (!ready)
        line_print(stderr, "retro-server: %s: %s: %s%s", option, there ? path.data : folder, strerror(errno),
                   there ? what : "");
    buffer_free(&path);
    return ready;
}

/* The same for a model, which may be a GGUF file. */
static bool model_ready(const char *option, const char *path, const char *what) {
    struct buffer gguf = {0};
    bool found = gguf_find_file(path, &gguf), ready = found && access(gguf.data, R_OK) == 0;
    if (found && !ready) line_print(stderr, "retro-server: %s: %s: %s", option, gguf.data, strerror(errno));
    buffer_free(&gguf);
    return found ? ready : folder_ready(option, path, "config.json", what);
}

/* All that is missing is told at once. */
static enum status check_folders(const struct config *c, struct error *e) {
    int wrong = !model_ready("model.path", c->model.path, "; this is no model folder");
    wrong += !folder_ready("retrieval.collection", c->retrieval.collection, "CURRENT",
                           "; this is no collection, which retro-index makes");
    wrong += !folder_ready("retrieval.embedder", c->retrieval.embedder, "config.json", "; this is no embedder folder");
    if (wrong == 0) return STATUS_OK;
    return error_set(e, STATUS_NOT_FOUND, "the configuration names %d folder%s that cannot be used", wrong,
                     wrong == 1 ? "" : "s");
}

/* Sampling that the options leave to the model goes to stderr, so that standard output stays a configuration. */
static enum status print_sampling(const struct config *c, struct error *e) {
    struct generation_config model;
    struct buffer text = {0};
    if (c->model.path[0] == '\0' || !c->model.sampling_defaults) return STATUS_OK;
    if (generation_config_read(c->model.path, &model, e)) return e->status;
    sampling_defaults_print(&model.sampling, &text);
    if (text.size > 0)
        line_print(stderr, "retro-server: requests that do not say get %s, from %s/generation_config.json", text.data,
                   c->model.path);
    buffer_free(&text);
    return STATUS_OK;
}

static enum status print_config(const struct config *c, struct error *e) {
    config_print_json(c, stdout);
    return print_sampling(c, e);
}

static enum status apply(const struct cli_arguments *a, struct config *c, enum cli_action *action, struct error *e) {
    *action = a->instead ? CLI_EXIT : CLI_SERVE;
    if (a->instead == CLI_HELP) {
        print_help();
        return STATUS_OK;
    }
    if (a->instead == CLI_VERSION) {
        printf("retro-server " RETRO_VERSION ", compiler %s, %s\n", __VERSION__,
               HAVE_FAISS ? "FAISS and exact search" : "exact search");
        return STATUS_OK;
    }
    if (a->config && config_read(c, a->config, e)) return e->status;
    for (int i = 0; i < a->n_sets; i++)
        if (config_set(c, a->sets[i], e)) return e->status;
    if (config_check(c, e)) return e->status;
    if (a->instead == CLI_PRINT && print_config(c, e)) return e->status;
    if (a->instead == CLI_CHECK && (check_folders(c, e) || check_configuration(c, e))) return e->status;
    if (a->instead == CLI_CHECK) printf("the configuration is valid\n");
    return STATUS_OK;
}

enum status cli_parse(int argc, char **argv, struct config *c, enum cli_action *action, struct error *e) {
    struct cli_arguments a = {.sets = xcalloc((size_t)argc, sizeof(const char *))};
    enum status status = scan(argc, argv, &a, e);
    if (status == STATUS_OK) status = apply(&a, c, action, e);
    free(a.sets);
    return status;
}
