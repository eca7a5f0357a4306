/* server/api/documents/jobs.h: uploads that are answered at once, as JSON. */
#pragma once

#include "server/api/api.h"
#include "server/documents/document_jobs.h"

/* The object of a job. `whole`: with "data", which is empty before the end. */
void put_posted_job(struct json_writer *w, const struct posted_view *view, bool whole);
