/* server/doors/responses/responses_names.c: functions in namespaces, as Codex groups those of each
 * MCP server. A model is told of one by the namespace and the name as one word, and the client gets
 * the two apart. */
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "server/doors/responses/responses.h"

void responses_name_join(struct buffer *out, struct text_span space, struct text_span name) {
    bool divided = space.size >= 2 && memcmp(space.text + space.size - 2, "__", 2) == 0;
    buffer_append(out, space.text, space.size);
    if (space.size > 0 && !divided) buffer_append_string(out, "__");
    buffer_append(out, name.text, name.size);
}

static int find(const struct responses_names *names, struct text_span told) {
    uint64_t hash = lookup_hash(told.text, told.size);
    size_t at = 0;
    int i = lookup_next(&names->by_told, hash, &at);
    while (i >= 0 && !span_is(told, names->list[i].told))
        i = lookup_next(&names->by_told, hash, &at);
    return i;
}

const char *responses_name_add(struct responses_names *names, struct text_span space,
                               struct text_span name) {
    struct buffer told = {0};
    responses_name_join(&told, space, name);
    int known = find(names, (struct text_span){told.data, told.size});
    if (known >= 0) {
        buffer_free(&told);
        return names->list[known].told;
    }
    names->list = xgrow(names->list, names->n, &names->capacity, sizeof *names->list);
    names->list[names->n] = (struct responses_name){told.data, space, name};
    lookup_add(&names->by_told, lookup_hash(told.data, told.size), names->n);
    names->n++;
    return told.data;
}

const struct responses_name *responses_name_find(const struct responses_names *names,
                                                 const char *told) {
    int i = find(names, (struct text_span){told, strlen(told)});
    return i >= 0 ? &names->list[i] : NULL;
}

void responses_names_free(struct responses_names *names) {
    for (int i = 0; i < names->n; i++) free(names->list[i].told);
    free(names->list);
    lookup_free(&names->by_told);
}
