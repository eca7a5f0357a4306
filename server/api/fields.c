/* server/api/fields.c: what the table reader says, as failures of requests. See fields.h. */
#include "server/api/fields.h"

/* Values that a request may hold beside its prompts' token ids. */
enum { OTHER_VALUES = 4096 };

/* Values are not repeated in messages: they may be anybody's text. */
static const struct json_style request_style = {
    .status = STATUS_INVALID, .quote = "", .member = "parameter", .document = "the request body", .kinds = true};

static const char *code_of(enum json_fault fault) {
    switch (fault) {
        case JSON_FAULT_TYPE: return "invalid_type";
        case JSON_FAULT_MISSING: return "missing_parameter";
        case JSON_FAULT_UNKNOWN: return "unknown_parameter";
        case JSON_FAULT_UNSUPPORTED: return "unsupported_parameter";
        default: return "invalid_value";
    }
}

bool fields_parse(const struct json_table *t, void *object, const struct json *json, const struct request_limits *l,
                  struct failure *f) {
    struct error e;
    struct json_reader r = {.style = &request_style, .limits = l, .context = f, .e = &e};
    f->http = 0;
    if (json_table_read(&r, t, json, object) == STATUS_OK) return true;
    if (f->http != 0) return false;
    return failure_set(f, 400, code_of(r.fault), r.field[0] ? r.field : NULL, "%s", e.text);
}

bool fields_load(struct json **out, const char *text, size_t size, const struct request_limits *l, struct failure *f) {
    struct error e;
    struct text_span body = {text, size};
    size_t values = json_count_values(body), most = (size_t)l->max_prompts * (size_t)l->context + OTHER_VALUES;
    *out = NULL;
    if (values > most)
        return failure_set(f, 400, "too_many_values", NULL,
                           "the body holds %zu JSON values, the limit is %zu (server.max_prompts %d times the context "
                           "of %d tokens, and %d)",
                           values, most, l->max_prompts, l->context, OTHER_VALUES);
    if (json_parse(out, body, "request", &e)) return failure_set(f, 400, "invalid_json", NULL, "%s", e.text);
    return true;
}
