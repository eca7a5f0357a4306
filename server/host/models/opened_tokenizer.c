/* server/host/models/opened_tokenizer.c: see opened_tokenizer.h. */
#include "server/host/models/opened_tokenizer.h"

static void *open_it(void *context) {
    struct tokenizer_opening *opening = context;
    opening->status = tokenizer_open(&opening->tokenizer, opening->path, &opening->error);
    return NULL;
}

enum status tokenizer_opening_start(struct tokenizer_opening *opening, const char *path,
                                    struct error *e) {
    opening->path = path;
    if (pthread_create(&opening->thread, NULL, open_it, opening) != 0)
        return error_set(e, STATUS_NO_MEMORY, "no thread to open the tokenizer of %s", path);
    opening->started = true;
    return STATUS_OK;
}

enum status tokenizer_opening_finish(struct tokenizer_opening *opening, struct tokenizer **out,
                                     struct error *e) {
    CHECK(opening->started);
    pthread_join(opening->thread, NULL);
    opening->started = false;
    *out = opening->tokenizer;
    if (opening->status) *e = opening->error;
    return opening->status;
}

void tokenizer_opening_discard(struct tokenizer_opening *opening) {
    struct tokenizer *unwanted;
    struct error ignored;
    if (opening->started && tokenizer_opening_finish(opening, &unwanted, &ignored) == STATUS_OK)
        tokenizer_close(unwanted);
}
