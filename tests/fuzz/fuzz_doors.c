/* tests/fuzz/fuzz_doors.c: bytes of a request to each door of other protocols: either a chat's
 * request within the limits, or a failure with words. And any text as an answer with numbers in
 * brackets: cut as it comes, it is whole. */
#include <stdlib.h>
#include <string.h>

#include "server/api/core/traffic.h"
#include "server/api/text/cited_numbers.h"
#include "server/doors/kept/kept.h"
#include "server/doors/messages/messages.h"
#include "server/doors/ollama/ollama.h"
#include "server/doors/responses/responses.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct collection collection;
static const struct served_model model = {
    .id = "m",
    .collection = &collection, /* that there is one is all that reading asks */
    .limits = {
        .vocab = 100,
        .context = 64,
        .max_prompts = 3,
        .max_choices = 6,
        .max_stops = 4,
        .max_biases = 3,
        .max_logprobs = 5,
        .retrieval = {.max_k = 4, .min_every = 4, .max_excluded = 3, .max_filter_bytes = 4096},
        .metadata = {100, 4096},
        .max_prompts_option = "server.max_prompts"}};

static struct api *api(void) {
    static struct api one;
    if (one.traffic == NULL) {
        one = (struct api){.models = &model, .n_models = 1, .largest = model.limits};
        one.traffic = traffic_open();
        one.responses = kept_open((struct kept_limits){4, 1 << 20, 3600});
    }
    return &one;
}

typedef bool door_reader(struct chat_answer *answer, struct api *api,
                         const struct api_request *request, struct failure *failure);

static void try_door(door_reader *read, void (*release)(struct chat_answer *answer), size_t bytes,
                     struct text_span body) {
    struct chat_answer *answer = xcalloc(1, bytes);
    struct api_request request = {
        .method = "POST", .path = "/", .body = body.text, .size = body.size};
    struct failure f = {0};
    struct buffer out = {0};
    if (read(answer, api(), &request, &f)) {
        CHECK(json_is_list(json_member(answer->request.body, "messages")));
    } else {
        CHECK(f.http >= 400 && f.http < 500 && f.code != NULL && f.message[0] != '\0');
        f.form.words = WORDS_ANTHROPIC;
        failure_write(&f, &out);
    }
    buffer_free(&out);
    failure_free(&f);
    if (release) release(answer);
    chat_request_free(&answer->request);
    free(answer);
}

/* Pieces follow each other without gaps, and are the same whether more is to come or not. */
static void check_cuts(struct text_span text) {
    struct cited_piece piece;
    size_t at = 0, n = 0;
    while (n <= text.size) {
        struct text_span part = {text.text, n};
        while (cited_cut(part, at, n == text.size, &piece)) {
            CHECK(piece.start == at && piece.end > at && piece.end <= n);
            CHECK(!piece.names || cited_end(text, at) == piece.end);
            at = piece.end;
        }
        n++;
    }
    CHECK(at == text.size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct text_span text = {(const char *)data, size};
    try_door(messages_read, messages_free, sizeof(struct messages_answer), text);
    try_door(messages_read_counted, messages_free, sizeof(struct messages_answer), text);
    try_door(responses_read, responses_free, sizeof(struct responses_answer), text);
    try_door(responses_read_counted, responses_free, sizeof(struct responses_answer), text);
    try_door(ollama_read_chat, ollama_free, sizeof(struct ollama_answer), text);
    try_door(ollama_read_generate, ollama_free, sizeof(struct ollama_answer), text);
    if (size < 2048) check_cuts(text);
    return 0;
}
