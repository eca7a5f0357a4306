/* server/api/fields/guide_fields.h: the fields that say what an answer must be a text of: a
 * grammar, a JSON Schema, a regular expression, one of several texts. One request has one of them
 * at most. */
#pragma once

#include "server/api/fields/fields.h"

enum guide_kind {
    GUIDE_NONE,
    GUIDE_GBNF,   /* a grammar in llama.cpp's words */
    GUIDE_OBJECT, /* any JSON object */
    GUIDE_SCHEMA, /* a JSON Schema, as JSON */
    GUIDE_REGEX,
    GUIDE_CHOICE, /* an array of texts, as JSON */
    GUIDE_QUOTES, /* text whose quotation marks have quotes between them (retrieval.quotes) */
    GUIDE_CALLS   /* calls of tools (call_grammar.h); no field gives it by itself */
};

struct request_guide {
    enum guide_kind kind;
    bool
        strict; /* GUIDE_SCHEMA: objects are closed, and their members come in the schema's order */
    struct buffer text; /* owned */
    char field[48];     /* that gives it */
};
void request_guide_free(struct request_guide *guide);

extern const struct json_table guide_table;
