/* server/host/options/config.c: joins the rooms' options, and the rules between them. See config.h.
 */
#include "server/host/options/config.h"

#include <stdio.h>
#include <string.h>

#include "kernels/comm/comm_tcp.h"
#include "retrieval/filter/filter.h"
#include "server/access/hosts.h"
#include "server/host/prompt/passages.h"

static const struct option_part parts[] = {
    {&model_section, offsetof(struct config, model)},
    {&parallel_section, offsetof(struct config, parallel)},
    {&retrieval_choice_section, offsetof(struct config, retrieval.choice)},
    {&retrieval_section, offsetof(struct config, retrieval)},
    {&extract_section, offsetof(struct config, extract)},
    {&server_section, offsetof(struct config, server)},
    {&tools_section, offsetof(struct config, tools)},
    {&log_section, offsetof(struct config, log)},
};
const struct option_set config_options = {parts, (int)ARRAY_COUNT(parts)};

void config_init(struct config *config) {
    memset(config, 0, sizeof *config);
    options_init(&config_options, config);
}

void config_free(struct config *config) {
    options_free(&config_options, config);
    memset(config, 0, sizeof *config);
}

enum status config_read(struct config *config, const char *path, struct error *e) {
    return options_read(&config_options, config, path, e);
}

enum status config_parse(struct config *config, const char *text, size_t size, const char *name,
                         const char *base, struct error *e) {
    return options_parse(&config_options, config, (struct text_span){text, size}, name, base, e);
}

enum status config_set(struct config *config, const char *assignment, struct error *e) {
    return options_assign(&config_options, config, assignment, e);
}

static enum status check_rendezvous(const struct config *config, struct error *e) {
    bool sockets = config->parallel.comm == COMM_SOCKETS,
         given = config->parallel.rendezvous[0] != '\0';
    int ranks = config->parallel.tensor * config->parallel.pipeline;
    if (!given && (sockets || config->parallel.rank > 0))
        return error_set(e, STATUS_INVALID, "%s needs parallel.rendezvous, host:port of rank 0",
                         sockets ? "parallel.comm sockets" : "parallel.rank");
    if (given && !sockets && config->parallel.comm != COMM_AUTO &&
        config->parallel.comm != COMM_NCCL)
        return error_set(e, STATUS_INVALID,
                         "parallel.rendezvous is for parallel.comm sockets, nccl or auto");
    if (given && config->parallel.rank >= ranks)
        return error_set(e, STATUS_INVALID,
                         "parallel.rank is %d; parallel.tensor times parallel.pipeline is %d",
                         config->parallel.rank, ranks);
    struct seat leader;
    return given ? endpoint_parse(&leader, config->parallel.rendezvous, e) : STATUS_OK;
}

static enum status check_hosts(const struct json_list *texts, const char *option, struct error *e) {
    struct host_rules hosts;
    if (host_rules_open(&hosts, texts->items, texts->count, e))
        return error_prefix(e, "%s", option);
    host_rules_free(&hosts);
    return STATUS_OK;
}

static enum status check_access(const struct config *config, struct error *e) {
    char *const *networks = config->server.allow.items;
    if ((config->server.tls_certificate[0] == '\0') != (config->server.tls_key[0] == '\0'))
        return error_set(e, STATUS_INVALID,
                         "server.tls_certificate and server.tls_key need each other");
    if (config->server.operations == OPERATIONS_KEY && config->server.keys_file[0] == '\0')
        return error_set(e, STATUS_INVALID,
                         "server.operations is key, which needs server.keys_file");
    for (size_t i = 0; i < config->server.allow.count; i++) {
        struct network network;
        if (network_parse(&network, networks[i], e)) return error_prefix(e, "server.allow");
    }
    if (check_hosts(&config->server.hosts, "server.hosts", e)) return e->status;
    return check_hosts(&config->server.image_urls, "server.image_urls", e);
}

static enum status check_filter(const struct config *config, struct error *e) {
    struct filter *filter;
    enum status status = filter_parse(&filter, config->retrieval.filter, "retrieval.filter", e);
    filter_release(filter);
    return status;
}

enum status config_check(const struct config *config, struct error *e) {
    if (config->retrieval.choice.k > config->retrieval.max_k)
        return error_set(e, STATUS_INVALID,
                         "retrieval.k is %d, more than retrieval.max_k, which is %d",
                         config->retrieval.choice.k, config->retrieval.max_k);
    if (passages_check(config->retrieval.template, config->retrieval.again, e) ||
        check_filter(config, e))
        return e->status;
    if (config->retrieval.reranker_instruction[0] && config->retrieval.reranker[0] == '\0')
        return error_set(e, STATUS_INVALID,
                         "retrieval.reranker_instruction is for a reranker: set "
                         "retrieval.reranker, or leave the instruction out");
    if (config->model.device[0] == '\0')
        return error_set(e, STATUS_INVALID, "model.device is empty; \"cpu\" is the default");
    if (config->server.host[0] == '\0')
        return error_set(e, STATUS_INVALID,
                         "server.host is empty; \"0.0.0.0\" listens on every address");
    if (check_access(config, e) || tool_settings_check(&config->tools, e) ||
        extract_settings_check(&config->extract, e))
        return e->status;
    return check_rendezvous(config, e);
}

void config_print_json(const struct config *config, FILE *out) {
    options_print_json(&config_options, config, out);
}

void config_print_help(FILE *out) {
    struct config defaults;
    config_init(&defaults);
    options_print_help(&config_options, &defaults, out);
    config_free(&defaults);
}

void config_print_markdown(FILE *out) {
    struct config defaults;
    config_init(&defaults);
    fputs(
        "# Configuration\n\n"
        "Generated from the rooms' option tables (`*_options.c`) by `make docs/config.md`; do not "
        "edit.\n\n"
        "Options come from a JSON file (`--config retro.json`), then from `--set "
        "section.name=value`, the last one\n"
        "wins. In the file they nest: `{\"retrieval\": {\"k\": 2}}`. `--check-config` checks them, "
        "and that the\n"
        "folders they name are what they should be, and exits; `--print-config` shows the values "
        "in effect. A\n"
        "relative path in a file is relative to the file's folder, one in `--set` to the working "
        "directory; `~` and\n"
        "`$HOME` are not replaced. A list is an array in the file; `--set x=[\"a\",\"b\"]` takes "
        "the list's place,\n"
        "`--set x=a` adds one item to it.\n",
        out);
    options_print_markdown(&config_options, &defaults, out);
    config_free(&defaults);
}
