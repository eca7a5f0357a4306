/* server/quick_start.h: a server from a model and documents alone, without a configuration:
 * retro-server MODEL DOCUMENTS...
 *
 * The collection lies where users' data lies ($XDG_DATA_HOME/retro-server, else
 * ~/.local/share/retro-server), in a folder of its own for each set of documents and embedder. It
 * is built before the server begins, by the program retro-index beside this one, and followed by
 * that program's `watch` for as long as the server lives. */
#pragma once

#include "server/host/options/config.h"

/* Zero-initialise; free when done. */
struct quick_start {
    char **documents; /* [n] borrowed: paths; 0: the model is served alone */
    int n;
    char *index;      /* the program retro-index */
    char *collection; /* the folder; NULL: no documents */
    char *embedder;
    bool opens_page; /* in a browser, once the server listens */
};

/* Sets the options that a model and n documents need. STATUS_NOT_FOUND for a path that is not
 * there, and where no embedder is: the message says how to get one. */
enum status quick_start_configure(struct quick_start *start, struct config *config,
                                  const char *model, char **documents, int n, struct error *e);
/* With the configuration complete: builds the collection where it is not there yet, says where it
 * is, and starts what follows the documents, which ends with this process. To be called before
 * there are threads. STATUS_CANCELLED where building was interrupted. */
enum status quick_start_begin(const struct quick_start *start, const struct config *config,
                              struct error *e);
void quick_start_free(struct quick_start *start);
