/* server/api/documents/document_outcome.h: how changes of documents went, as JSON. */
#pragma once

#include "server/api/api.h"

/* Of one document. */
struct document_outcome {
    const char *id, *path; /* path NULL: nobody said it */
    enum change_effect effect;
    enum status status;
    const struct error *error;
};
struct document_outcome document_outcome_of(const struct document_item *item);
void document_outcome_fail(struct failure *failure, const struct document_outcome *outcome);
void put_document_outcome(struct json_writer *w, const struct document_outcome *outcome);
/* Members of the object that is open: "data" with every document of the job, and those of its files
 * that were left out. */
void put_job_outcomes(struct json_writer *w, const struct document_job *job);
/* Whether there are some, and none of them was carried out. */
bool job_has_failed(const struct document_job *job);
