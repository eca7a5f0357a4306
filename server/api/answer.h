/* server/api/answer.h: what HTTP sends back, as it comes to be: bytes that are ready, bytes still awaited, the end.
 * http.c knows answers only through this table; api.c makes them. */
#pragma once

#include "server/api/failure.h"

enum answer_progress {
    ANSWER_WAITING, /* nothing new: the waker that the answer was opened with will be called */
    ANSWER_MORE,    /* bytes were appended, poll again */
    ANSWER_COMPLETE /* bytes may have been appended, they were the last */
};

struct answer {
    const struct answer_ops *ops;
    int http;          /* status code; of a stream at once, else when complete */
    bool stream;       /* server-sent events, sent as they come; else one JSON body */
    const char *allow; /* the Allow header of a 405, else NULL */
};

struct answer_ops {
    enum answer_progress (*poll)(struct answer *a, struct buffer *out);
    /* The client left: stop working for it. From any thread, before close. */
    void (*cancel)(struct answer *a);
    void (*close)(struct answer *a);
};

/* A complete body; takes the buffer. */
struct answer *answer_text(int http, struct buffer *body);
struct answer *answer_failure(const struct failure *f);
