/* server/http/head.c: whether a request's head is written as RFC 9112 has it. See head.h. */
#include "server/http/head.h"

#include <string.h>
#include <strings.h>

/* RFC 9110, 5.6.2. */
static bool is_token(const char *text, size_t size) {
    static const char marks[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && (c == '\0' || strchr(marks, c) == NULL)) return false;
    }
    return size > 0;
}

static bool is_control(char c) { return (unsigned char)c < ' ' || c == 0x7F; }

size_t target_measure(const char *target) {
    size_t n = 0;
    while (target[n] != ' ' && !is_control(target[n])) n++;
    return n;
}

/* A value may hold blanks, tabs, and bytes above ASCII. */
static bool is_value(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (is_control(text[i]) && text[i] != '\t') return false;
    return true;
}

static bool head_refuse(struct failure *failure, const char *why) {
    return failure_set(failure, 400, "malformed_request", NULL, "%s", why);
}

/* "method target version CRLF", of which *next is what follows. */
static bool request_line_check(const struct head *head, const char **next,
                               struct failure *failure) {
    size_t method = strlen(head->method), version = strlen("HTTP/1.1");
    if (!is_token(head->method, method)) return head_refuse(failure, "the method is not a token");
    if (head->target != head->method + method + 1 ||
        head->version != head->target + head->target_size + 1)
        return head_refuse(
            failure,
            "the request line is not method, target and version with one blank between them");
    if (strcmp(head->version, "HTTP/1.1") != 0 && strcmp(head->version, "HTTP/1.0") != 0)
        return head_refuse(failure, "the version of HTTP is not 1.1 or 1.0");
    *next = head->version + version + 2;
    return true;
}

/* "name: value CRLF" at *next, which moves on. The library has skipped the blanks before the value.
 */
static bool field_check(const struct head_field *field, const char **next,
                        struct failure *failure) {
    if (field->name != *next)
        return head_refuse(failure,
                           "a line of the headers is folded, holds a NUL, or does not end in CRLF");
    if (!is_token(field->name, field->name_size))
        return head_refuse(failure,
                           "the name of a header is not a token with its colon right behind it");
    if (field->value <= field->name + field->name_size)
        return head_refuse(failure, "a line of the headers is folded or holds a NUL");
    if (!is_value(field->value, field->value_size))
        return head_refuse(failure, "the value of a header holds a control character");
    *next = field->value + field->value_size + 2;
    return true;
}

static int field_count(const struct head *head, const char *name, const struct head_field **last) {
    int n = 0;
    for (int i = 0; i < head->n_fields; i++) {
        if (strcasecmp(head->fields[i].name, name) != 0) continue;
        *last = &head->fields[i];
        n++;
    }
    return n;
}

/* Where a body ends must be beyond doubt. The library takes the first of several lengths and
 * ignores codings that it does not know; a proxy that reads them otherwise would take what follows
 * the body for another client's request (RFC 9112, 6.3). */
static bool framing_check(const struct head *head, struct failure *failure) {
    const struct head_field *length = NULL, *coding = NULL;
    int lengths = field_count(head, "Content-Length", &length),
        codings = field_count(head, "Transfer-Encoding", &coding);
    if (lengths + codings == 0) return true;
    bool chunked = coding && strcasecmp(coding->value, "chunked") == 0 &&
                   strcmp(head->version, "HTTP/1.1") == 0;
    if (lengths + codings == 1 && (length || chunked)) return true;
    return failure_set(failure, 400, "ambiguous_body", NULL,
                       "%d Content-Length and %d Transfer-Encoding headers: send one length, or "
                       "the one coding chunked "
                       "(which version 1.0 of HTTP does not know)",
                       lengths, codings);
}

bool head_check(const struct head *head, struct failure *failure) {
    const struct head_field *host = NULL;
    const char *next = NULL;
    if (!request_line_check(head, &next, failure)) return false;
    for (int i = 0; i < head->n_fields; i++)
        if (!field_check(&head->fields[i], &next, failure)) return false;
    if (next + 2 != head->method + head->size)
        return head_refuse(failure,
                           "a line of the headers is folded, holds a NUL, or does not end in CRLF");
    int hosts = field_count(head, "Host", &host);
    if (hosts > 1) return head_refuse(failure, "there is more than one Host header");
    if (hosts == 0 && strcmp(head->version, "HTTP/1.1") == 0)
        return head_refuse(failure, "there is no Host header");
    return framing_check(head, failure);
}
