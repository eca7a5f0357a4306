/* server/documents/document_upload.h: files that requests bring, read as their names say. An
 * archive, a table, lines of JSON or a message may be any number of documents, which are known when
 * it was read. */
#pragma once

#include "retrieval/extract/extract.h"
#include "retrieval/kept/kept_copy.h"
#include "retrieval/store/store.h"

/* A document of a file that may hold several. */
struct upload_part {
    char *id, *path;
    struct document_text read;
    enum change_effect effect;
    enum status status;
    struct error error;
};

struct document_upload {
    /* Of the asker. */
    const char *name; /* its end says the kind */
    struct text_span bytes;
    size_t limit;     /* bytes of its text */
    int max_parts;    /* documents that it may hold */
    const char *id;   /* what ids of its documents begin with; NULL: they are made of their paths */
    const char *path; /* what their paths begin with */
    const struct filter *filter; /* as of document_id_within */
    /* Of the reading thread. */
    struct kept_copy copy;                  /* of its bytes, until it was put */
    int seconds;                            /* that reading all of it may take */
    struct extract_ocr ocr;                 /* as of extract_limits */
    const struct extract_model *model;      /* likewise */
    const atomic_bool *cancelled, *stopped; /* as of extract_limits */
    /* Of a file that is one document. */
    struct document_text read;
    /* Of one that may hold several. */
    struct upload_part *parts; /* [n_parts] */
    int n_parts, part_capacity;
    struct buffer skipped; /* struct error[]: documents that are left out, the first of them */
    int n_skipped;
};
enum { UPLOAD_SKIPPED = 100 }; /* that are told */

/* The id of a document that is known by its name: clients that see other documents get other ids of
 * the same name. */
void document_id_within(const struct filter *filter, const char *name, char id[DOCUMENT_ID_SIZE]);

static inline bool upload_holds_several(const struct document_upload *upload) {
    return document_kind_holds_several(document_kind(upload->name));
}
/* Reads the text into `read`, or the documents into `parts`. STATUS_TOO_LARGE for more text,
 * documents or time than the limits; then there are none. One time is for all files within the
 * file, those that are skipped too. */
enum status upload_read(struct document_upload *upload, struct error *e);
/* Adds the text of a file that was read to *bytes, that of all files of a request.
 * STATUS_TOO_LARGE where these are more than `most`. */
enum status upload_count(const struct document_upload *upload, int64_t most, int64_t *bytes,
                         struct error *e);
void upload_free(struct document_upload *upload);
