/* server/cli_check.c: the steps of --check-config. See cli_check.h. */
#include "server/cli_check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/base/line.h"
#include "config/sandbox/sandbox.h"
#include "retrieval/open/collection_open.h"
#include "retro/weights/gguf_folder.h"
#include "server/access/keyring.h"
#include "server/blocks/block_folder.h"
#include "server/host/check.h"
#include "server/http/tls.h"

/* Folders that options name. */

/* Whether a folder is there with the file that makes it what it should be. */
static enum status folder_check(const char *option, const char *folder, const char *file,
                                const char *what, struct error *e) {
    struct buffer path = {0};
    enum status status = STATUS_OK;
    buffer_printf(&path, "%s/%s", folder, file);
    bool there = access(folder, F_OK) == 0;
    if (!there || access(path.data, R_OK) != 0)
        status = error_set(e, STATUS_NOT_FOUND, "%s: %s: %s%s", option, there ? path.data : folder,
                           strerror(errno), there ? what : "");
    buffer_free(&path);
    return status;
}

/* The same of a model, which may be a GGUF file. */
static enum status model_check(const char *option, const char *path, const char *what,
                               struct error *e) {
    struct buffer gguf = {0};
    bool found = gguf_find_file(path, &gguf);
    enum status status = STATUS_OK;
    if (!found)
        status = folder_check(option, path, "config.json", what, e);
    else if (access(gguf.data, R_OK) != 0)
        status = error_set(e, STATUS_NOT_FOUND, "%s: %s: %s", option, gguf.data, strerror(errno));
    buffer_free(&gguf);
    return status;
}

static enum status check_model_folder(const struct config *config, struct error *e) {
    return model_check("model.path", config->model.path, "; this is no model folder", e);
}

static enum status check_collection_folder(const struct config *config, struct error *e) {
    if (collection_name_is_remote(config->retrieval.collection)) return STATUS_OK;
    return folder_check("retrieval.collection", config->retrieval.collection, "CURRENT",
                        "; this is no collection, which retro-index makes", e);
}

static enum status check_embedder_folder(const struct config *config, struct error *e) {
    return model_check("retrieval.embedder", config->retrieval.embedder,
                       "; this is no embedder folder", e);
}

static enum status check_picture_embedder_folder(const struct config *config, struct error *e) {
    return model_check("retrieval.picture_embedder", config->retrieval.picture_embedder,
                       "; this is no embedder folder", e);
}

static enum status check_cache_folder(const struct config *config, struct error *e) {
    if (block_folder_check(config->server.cache_folder, e) == STATUS_OK) return STATUS_OK;
    return error_prefix(e, "server.cache_folder");
}

/* The files that say who may ask, and who the server is. */

static enum status check_keys(const struct config *config, struct error *e) {
    struct keyring *keys = NULL;
    enum status status = keyring_open(&keys, config->server.keys_file, e);
    keyring_close(keys);
    return status;
}

/* A server that everybody reaches, and that answers everybody, is to be meant so. */
enum status cli_check_keys(const struct config *config, const struct http_place *place,
                           struct error *e) {
    const struct server_settings *settings = &config->server;
    if (!settings->require_keys || place->local || settings->keys_file[0]) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "other machines reach %s, and no keys are asked for: set server.keys_file to "
                     "a file of keys (retro-server --new-key makes them), or server.require_keys "
                     "to false to answer everybody",
                     place->text);
}

/* Any free port says who reaches the address. Whether it is this machine's, a start tells. */
static enum status check_reach(const struct config *config, struct error *e) {
    struct http_place place;
    int fd;
    if (!config->server.require_keys || http_bind(config->server.host, 0, &fd, e)) return STATUS_OK;
    enum status status = http_place_of(fd, &place, e);
    close(fd);
    snprintf(place.text, sizeof place.text, "%s:%d", config->server.host, config->server.port);
    return status ? status : cli_check_keys(config, &place, e);
}

static enum status check_certificate(const struct config *config, struct error *e) {
    struct tls *tls = NULL;
    enum status status = tls_open(&tls, config->server.tls_certificate, config->server.tls_key, e);
    tls_close(tls);
    return status;
}

/* The steps. */

static const struct check_step {
    const char *name;
    size_t value; /* of a char * in the configuration; NO_VALUE: none, the step is for every
                     configuration */
    bool folder;  /* all folders are tried, so that all that are missing are told at once */
    enum status (*run)(const struct config *config, struct error *e);
} steps[] = {
#define NO_VALUE SIZE_MAX
    {"model.path", offsetof(struct config, model.path), true, check_model_folder},
    {"retrieval.collection", offsetof(struct config, retrieval.collection), true,
     check_collection_folder},
    {"retrieval.embedder", offsetof(struct config, retrieval.embedder), true,
     check_embedder_folder},
    {"retrieval.picture_embedder", offsetof(struct config, retrieval.picture_embedder), true,
     check_picture_embedder_folder},
    {"server.cache_folder", offsetof(struct config, server.cache_folder), true, check_cache_folder},
    {"server.keys_file", offsetof(struct config, server.keys_file), false, check_keys},
    {"server.host and server.require_keys", NO_VALUE, false, check_reach},
    {"server.tls_certificate", offsetof(struct config, server.tls_certificate), false,
     check_certificate},
    {"what limits, models, collection and embedder say of each other", NO_VALUE, false,
     check_configuration},
};

static const char *step_value(const struct check_step *step, const struct config *config) {
    return step->value == NO_VALUE ? NULL : *(char *const *)((const char *)config + step->value);
}

static enum status step_run(const struct check_step *step, const struct config *config,
                            struct error *e) {
    const char *value = step_value(step, config);
    if (value && value[0] == '\0') {
        line_print(stderr, "not set: %s", step->name);
        return STATUS_OK;
    }
    if (step->run(config, e)) return e->status;
    line_print(stderr, "checked: %s%s%s", step->name, value ? ": " : "", value ? value : "");
    return STATUS_OK;
}

/* The walls around the parsers of foreign files, on this kernel. */
static void tell_sandbox(void) {
    int version = sandbox_landlock_version();
    if (version > 0)
        line_print(
            stderr,
            "foreign files: parsed behind a filter of system calls and Landlock (version %d)",
            version);
    else
        line_print(
            stderr,
            "foreign files: parsed behind a filter of system calls; this kernel has no Landlock");
}

static void name_the_rest(size_t next) {
    for (size_t i = next; i < ARRAY_COUNT(steps); i++)
        line_print(stderr, "not reached: %s", steps[i].name);
}

enum status cli_check(const struct config *config, const char *file, struct error *e) {
    int wrong = 0;
    line_print(stderr, "checked: names, types and ranges of the options%s%s", file ? " in " : "",
               file ? file : "");
    for (size_t i = 0; i < ARRAY_COUNT(steps); i++) {
        if (wrong > 0 && !steps[i].folder) {
            name_the_rest(i);
            return error_set(e, STATUS_NOT_FOUND,
                             "the configuration names %d folder%s that cannot be used", wrong,
                             wrong == 1 ? "" : "s");
        }
        if (step_run(&steps[i], config, e) == STATUS_OK) continue;
        if (!steps[i].folder) {
            name_the_rest(i + 1);
            return e->status;
        }
        line_print(stderr, "failed: %s", e->text);
        wrong++;
    }
    tell_sandbox();
    line_print(stderr,
               "left to a start: whether %s:%d is free, %s there, and enough memory; the bytes of "
               "weights and index",
               config->server.host, config->server.port, config->model.device);
    printf("the configuration is valid\n");
    return STATUS_OK;
}
