/* server/host/models/opened_tokenizer.h: a tokenizer that is opened on a thread of its own while
 * weights are loaded: a vocabulary of 128k tokens takes half a second to read. */
#pragma once

#include <pthread.h>

#include "retro/text/tokenizer.h"

/* Zero-initialise. */
struct tokenizer_opening {
    pthread_t thread;
    bool started;
    const char *path; /* borrowed until the end */
    struct tokenizer *tokenizer;
    enum status status;
    struct error error;
};

/* Begins to open the tokenizer of `path`. STATUS_NO_MEMORY when there is no thread. */
enum status tokenizer_opening_start(struct tokenizer_opening *opening, const char *path,
                                    struct error *e);
/* Waits for it; the tokenizer belongs to the caller. Call it once after a start. */
enum status tokenizer_opening_finish(struct tokenizer_opening *opening, struct tokenizer **out,
                                     struct error *e);
/* The same where nobody wants it any more; does nothing where nothing was started. */
void tokenizer_opening_discard(struct tokenizer_opening *opening);
