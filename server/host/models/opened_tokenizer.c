/* server/host/models/opened_tokenizer.c: see opened_tokenizer.h. */
#include "server/host/models/opened_tokenizer.h"

static void *open_it(void *context) {
    struct tokenizer_opening *o = context;
    o->status = tokenizer_open(&o->tokenizer, o->path, &o->error);
    return NULL;
}

enum status tokenizer_opening_start(struct tokenizer_opening *o, const char *path, struct error *e) {
    o->path = path;
    if (pthread_create(&o->thread, NULL, open_it, o) != 0)
        return error_set(e, STATUS_NO_MEMORY, "no thread to open the tokenizer of %s", path);
    o->started = true;
    return STATUS_OK;
}

enum status tokenizer_opening_finish(struct tokenizer_opening *o, struct tokenizer **out, struct error *e) {
    CHECK(o->started);
    pthread_join(o->thread, NULL);
    o->started = false;
    *out = o->tokenizer;
    if (o->status) *e = o->error;
    return o->status;
}

void tokenizer_opening_discard(struct tokenizer_opening *o) {
    struct tokenizer *unwanted;
    struct error ignored;
    if (o->started && tokenizer_opening_finish(o, &unwanted, &ignored) == STATUS_OK) tokenizer_close(unwanted);
}
