/* server/host/options/config.h: the configuration of the programs: every room's options in one
 * struct. The rows are beside what they set; this file joins them, in the order in which they are
 * printed. */
#pragma once

#include "config/options/log_options.h"
#include "server/host/options/extract_options.h"
#include "server/host/options/host_options.h"
#include "server/host/options/server_options.h"
#include "server/host/options/tool_options.h"

struct config {
    struct model_settings model;
    struct parallel_settings parallel;
    struct retrieval_settings retrieval;
    struct extract_settings extract;
    struct server_settings server;
    struct tool_settings tools;
    struct log_settings log;
};
/* The sections of struct config. */
extern const struct option_set config_options;

/* Defaults for every option; then config_read and config_set on top; then config_check once. */
void config_init(struct config *config);
void config_free(struct config *config);
enum status config_read(struct config *config, const char *path, struct error *e);
/* The text of a file, for tests and the fuzzer; `name` is what errors call it, `base` resolves
 * relative paths. */
enum status config_parse(struct config *config, const char *text, size_t size, const char *name,
                         const char *base, struct error *e);
/* "retrieval.k=4" */
enum status config_set(struct config *config, const char *assignment, struct error *e);
/* Cross-option rules that no single range expresses. */
enum status config_check(const struct config *config, struct error *e);

void config_print_json(const struct config *config,
                       FILE *out);     /* the effective values, as a file config_read accepts */
void config_print_help(FILE *out);     /* one option a line */
void config_print_markdown(FILE *out); /* docs/config.md */
