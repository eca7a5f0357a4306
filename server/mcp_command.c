/* server/mcp_command.c: see mcp_command.h. A client that begins asks at once what the server can,
 * and gives up on one that says nothing: the documents are opened beside. */
#include "server/mcp_command.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "server/api/core/traffic.h"
#include "server/doors/mcp/stdio.h"
#include "server/host/check.h"
#include "server/served_decoder.h"
#include "server/served_models.h"

struct command {
    const struct config *config;
    struct decoder_part part; /* of which there are the documents alone */
    struct served_model model;
    struct api api;
    int wake;
    pthread_t opener;
    bool opening;
    atomic_int documents; /* enum mcp_documents */
    struct error error;   /* of opening them */
};

/* Fills in all that the configuration says by itself. */
static void describe(struct command *command) {
    const struct config *config = command->config;
    command->model = (struct served_model){
        .id = "documents",
        .has_collection = documents_wanted(config),
        .documents = served_documents_access(config, true),
        .upload_bytes = config->server.max_upload_text,
        .limits = {.retrieval = {.max_k = config->retrieval.max_k,
                                 .max_filter_bytes = config->retrieval.max_filter_bytes},
                   .metadata = {config->retrieval.max_metadata_values,
                                config->retrieval.max_metadata_bytes}},
        .choice = config->retrieval.choice,
        .rerank_candidates = rerank_candidates_of(&config->retrieval),
        .usual_passages = usual_passages(config)};
    command->model.choice.mode = RETRIEVAL_PROMPT;
    command->api = (struct api){
        .models = &command->model, .n_models = 1, .local = true, .traffic = traffic_open()};
}

static void *open_documents(void *context) {
    struct command *command = context;
    struct decoder_part *part = &command->part;
    enum status status = STATUS_OK;
    uint64_t one = 1;
    if (documents_wanted(command->config))
        status = decoder_part_open_documents(part, command->config, &command->error);
    if (status == STATUS_OK) {
        command->model.retrieval = part->retrieval;
        command->model.retriever = part->documents.retriever;
        command->model.collection = part->documents.collection;
        command->model.document_thread = part->changes;
        command->model.files = part->files;
        command->model.filter = part->documents.filter;
    } else {
        log_error("%s", command->error.text);
    }
    atomic_store(&command->documents, status ? MCP_DOCUMENTS_FAILED : MCP_DOCUMENTS_OPEN);
    ssize_t n = write(command->wake, &one, sizeof one);
    (void)n;
    return NULL;
}

/* Nothing but messages may stand in the output: what libraries print goes where the log goes. */
static enum status take_output(int *output, struct error *e) {
    *output = dup(STDOUT_FILENO);
    if (*output < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return error_errno(e, "standard output");
    return STATUS_OK;
}

static enum status start(struct command *command, struct error *e) {
    const struct server_settings *settings = &command->config->server;
    struct mcp_options options = {.api = &command->api,
                                  .max_listeners = max_int(2, settings->max_listeners),
                                  .max_sessions = 1,
                                  .session_seconds = INT32_MAX};
    command->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (command->wake < 0) return error_errno(e, "waiting for answers");
    if (mcp_open(&command->api.mcp, &options, e)) return e->status;
    command->opening = pthread_create(&command->opener, NULL, open_documents, command) == 0;
    return command->opening ? STATUS_OK
                            : error_set(e, STATUS_NO_MEMORY, "the documents cannot be opened");
}

static void run(struct command *command, int output, int stop) {
    struct principal who = principal_open(0);
    struct mcp_stdio stdio = {.mcp = command->api.mcp,
                              .who = &who,
                              .input = STDIN_FILENO,
                              .output = output,
                              .stop = stop,
                              .wake = command->wake,
                              .most = (size_t)command->config->server.max_body_bytes,
                              .documents = &command->documents,
                              .problem = command->error.text};
    mcp_stdio_run(&stdio);
    principal_release(&who);
}

/* Documents that are still being opened end with the process. */
static void finish(struct command *command) {
    if (command->opening && atomic_load(&command->documents) == MCP_DOCUMENTS_OPENING)
        _exit(EXIT_SUCCESS);
    if (command->opening) pthread_join(command->opener, NULL);
    mcp_close(command->api.mcp);
    retrieval_thread_stop(command->part.retrieval);
    document_thread_stop(command->part.changes);
    page_thread_stop(command->part.pages);
    decoder_part_close(&command->part);
    traffic_close(command->api.traffic);
    if (command->wake >= 0) close(command->wake);
}

enum status mcp_command(const struct config *config, int stop, struct error *e) {
    struct command command = {.config = config, .wake = -1};
    int output;
    if (take_output(&output, e)) return e->status;
    describe(&command);
    enum status status = start(&command, e);
    if (status == STATUS_OK) run(&command, output, stop);
    if (status == STATUS_OK && atomic_load(&command.documents) == MCP_DOCUMENTS_FAILED) {
        *e = command.error;
        status = e->status;
    }
    close(output);
    finish(&command);
    return status;
}
