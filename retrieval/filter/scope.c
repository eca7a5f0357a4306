/* retrieval/filter/scope.c: ids within filters. See scope.h. */
#include "retrieval/filter/scope.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/base/hash.h"

/* "@", the digits of a hash and "/". */
enum { SCOPE_DIGITS = 16, SCOPE_LENGTH = SCOPE_DIGITS + 2 };

static void scope_print(const struct filter *filter, char scope[SCOPE_LENGTH + 1]) {
    const char *text = filter_text(filter_known(filter));
    snprintf(scope, SCOPE_LENGTH + 1, "@%016" PRIx64 "/", hash_bytes(text, strlen(text), 0));
}

char *scope_id(const struct filter *filter, const char *id) {
    char scope[SCOPE_LENGTH + 1];
    struct buffer whole = {0};
    if (filter_known(filter) == NULL) return NULL;
    scope_print(filter, scope);
    buffer_printf(&whole, "%s%s", scope, id);
    return whole.data;
}

const char *scope_own(const char *stored) {
    bool scoped = stored[0] == '@' && strspn(stored + 1, "0123456789abcdef") == SCOPE_DIGITS &&
                  stored[1 + SCOPE_DIGITS] == '/' && stored[SCOPE_LENGTH] != '\0';
    return scoped ? stored + SCOPE_LENGTH : stored;
}

const char *scope_show(const struct filter *filter, const char *stored) {
    char scope[SCOPE_LENGTH + 1];
    const char *own = scope_own(stored);
    if (filter_known(filter) == NULL || own == stored) return stored;
    scope_print(filter, scope);
    return strncmp(stored, scope, SCOPE_LENGTH) == 0 ? own : stored;
}
