/* server/api/core/failure.h: why a request was not answered, in the words and the shape that the
 * clients of its path read (failure_words.c). */
#pragma once

#include "server/api/core/answer.h"

#define JSON_TYPE "application/json"

/* Zero-initialised: nothing has failed. */
struct failure {
    int http;         /* status code */
    const char *code; /* constant string, or NULL */
    char *param;      /* the field at fault, or "" */
    char *message;
    int retry_after; /* seconds after which the same request may succeed; 0: not known to */
    struct failure_form form; /* failure_set makes it OpenAI's; whoever answers knows the path */
};

/* Fills in an empty failure. Always returns false, so that a check that fails is one line: return
 * failure_set(f, ...). param may be NULL. */
bool failure_set(struct failure *failure, int http, const char *code, const char *param,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));
/* The one place where a status becomes an HTTP code. */
bool failure_from_error(struct failure *failure, const struct error *e);
void failure_free(struct failure *failure); /* empty again */
/* The words that the clients of a path read. */
enum failure_words failure_words_of(const char *path);
/* The HTTP code in these words. */
int failure_status(const struct failure *failure);
/* Appends the JSON body. */
void failure_write(const struct failure *failure, struct buffer *out);
/* The failure as an answer that is still to be sent, in the answer's form: its status, headers and
 * body; frees it. */
void failure_answer(struct failure *failure, struct answer *answer, struct buffer *body);
/* An answer made of a failure; frees it. */
struct answer *answer_failure(struct failure *failure);
