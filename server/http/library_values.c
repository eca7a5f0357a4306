/* server/http/library_values.c: arguments and cookies, which the HTTP library is not left to keep.
 *
 * libmicrohttpd 0.9.75, which Debian 12 ships, puts each argument of the query string and each
 * cookie into the 64 KiB that a connection has. Where one does not fit, it refuses the request in
 * the midst of reading it; our refusal (library_words.c) closes the connection, and these bytes are
 * freed. Of the functions that refuse so, all return to the library's table of states at once,
 * which looks whether the connection is closed, but for two: the one that reads the request line
 * decodes the path next and goes on as if nothing were, and the one that reads cookies is followed
 * by a search for headers. Both then read what is freed.
 *
 * So neither may fail. Both go through public functions of the library, which the dynamic linker
 * finds here first: arguments are kept here, in memory of our own, and cookies, which mean nothing
 * here, are not there. Then the library calls text_unescape() for bytes that live: of arguments,
 * which cannot be refused while they are read, and of the path right behind them. */
#include <dlfcn.h>
#include <strings.h>

#include "server/http/exchange.h"

typedef enum MHD_Result set_function(struct MHD_Connection *connection, enum MHD_ValueKind kind,
                                     const char *key, size_t key_size, const char *value,
                                     size_t value_size);
typedef enum MHD_Result lookup_function(struct MHD_Connection *connection, enum MHD_ValueKind kind,
                                        const char *key, size_t key_size, const char **value,
                                        size_t *value_size);

static set_function *set_next;
static lookup_function *lookup_next;
static _Thread_local bool looked; /* without a connection, which only library_values_open() does */

enum status library_values_open(struct error *e) {
    set_next = (set_function *)(uintptr_t)dlsym(RTLD_NEXT, "MHD_set_connection_value_n");
    lookup_next = (lookup_function *)(uintptr_t)dlsym(RTLD_NEXT, "MHD_lookup_connection_value_n");
    looked = false;
    MHD_lookup_connection_value(NULL, MHD_COOKIE_KIND, "");
    if (set_next && lookup_next && looked) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "libmicrohttpd %s calls its own functions directly: it would read freed "
                     "memory where a client "
                     "sends many arguments or cookies; link it with lazy symbols, as Debian does",
                     MHD_get_version());
}

static void argument_keep(struct exchange *exchange, const char *name, const char *value) {
    if (exchange->n_arguments <= QUERY_ARGUMENTS) {
        exchange->arguments = xgrow(exchange->arguments, exchange->n_arguments,
                                    &exchange->arguments_capacity, sizeof *exchange->arguments);
        exchange->arguments[exchange->n_arguments] =
            (struct query_argument){name, value ? value : ""};
        exchange->n_arguments++;
    }
}

/* Names and values lie in the library's bytes as long as the exchange. */
enum MHD_Result MHD_set_connection_value_n(struct MHD_Connection *connection,
                                           enum MHD_ValueKind kind, const char *key,
                                           size_t key_size, const char *value, size_t value_size) {
    if (kind != MHD_GET_ARGUMENT_KIND)
        return set_next(connection, kind, key, key_size, value, value_size);
    struct connection *life =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    argument_keep(connection_request(life), key, value);
    return MHD_YES;
}

enum MHD_Result MHD_lookup_connection_value_n(struct MHD_Connection *connection,
                                              enum MHD_ValueKind kind, const char *key,
                                              size_t key_size, const char **value,
                                              size_t *value_size) {
    static const char cookie[] = "Cookie";
    if (connection == NULL) looked = true;
    if (connection == NULL ||
        (key && key_size == sizeof cookie - 1 && strncasecmp(key, cookie, key_size) == 0))
        return MHD_NO;
    return lookup_next(connection, kind, key, key_size, value, value_size);
}
