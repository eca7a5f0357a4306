/* server/documents/document_sweep.h: copies of uploads go with their documents, whoever deletes
 * these (retrieval/kept/kept_copy.h). A sweep reads the list of all documents, so sweeps take a
 * small part of the time at most. */
#pragma once

#include "retrieval/collection.h"

struct document_sweeper {
    struct collection *collection;
    const char *folder; /* of copies; NULL: there are none */
    int64_t version;    /* of the snapshot that was swept for; -1: none was */
    int64_t n_written;  /* copies that had been written then */
    double next;        /* of time_now: not before */
};

/* Sweeps where the collection has changed since, or another copy was written: the document that it
 * is for may be refused. n_written: copies of this process. One thread. */
void document_sweep(struct document_sweeper *sweeper, int64_t n_written);
