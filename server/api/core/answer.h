/* server/api/core/answer.h: what HTTP sends back, as it comes to be: a status, headers, bytes that
 * are ready, bytes still awaited, the end. http.c knows answers only through this table; whoever
 * means something by a request makes them. */
#pragma once

#include "config/base/buffer.h"

enum answer_progress {
    ANSWER_WAITING, /* nothing new: the waker that the answer was opened with will be called */
    ANSWER_MORE,    /* bytes were appended, poll again */
    ANSWER_COMPLETE /* bytes may have been appended, they were the last */
};

struct answer_header {
    const char *name; /* constant string */
    char *value;
};

/* The clients that read a failure: each protocol has words of its own for it. */
enum failure_words { WORDS_OPENAI, WORDS_ANTHROPIC, WORDS_OLLAMA };
struct failure_form {
    enum failure_words words;
    const char *request; /* the request's id, borrowed; NULL: it has none */
};

struct answer {
    const struct answer_ops *ops;
    struct failure_form form; /* of a failure that it turns out to be; set by whoever opened it */
    int http;                 /* status code; of a stream at once, else when complete */
    bool stream;     /* sent as it comes, from the poll on that sets it; else all at once, with its
                        length */
    uint64_t length; /* bytes of a stream that are known beforehand; 0: they are not. One that
                        completes with fewer is cut off */
    bool listens;    /* a stream that waits for news for as long as the client likes: no request in
                        work that limits count */
    struct answer_header *headers;
    int n_headers, headers_capacity;
};

struct answer_ops {
    enum answer_progress (*poll)(struct answer *answer, struct buffer *out);
    /* The client left: stop working for it. From any thread, before close. */
    void (*cancel)(struct answer *answer);
    /* Frees the answer; called by answer_close, when its headers are gone. */
    void (*close)(struct answer *answer);
};

/* Status 200, never cached. */
void answer_init(struct answer *answer, const struct answer_ops *ops, const char *content_type);
/* Headers are read when sending begins: of a stream at once, else when complete. */
void answer_add_header(struct answer *answer, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same in place of what the header was; it is there. */
void answer_set_header(struct answer *answer, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void answer_close(struct answer *answer);

/* A body that is complete from the start; takes the buffer. */
struct answer *answer_text(int http, const char *content_type, struct buffer *body);
