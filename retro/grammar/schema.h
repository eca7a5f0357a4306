/* retro/grammar/schema.h: JSON Schema (2020-12) as a grammar of the JSON texts that it allows.
 *
 * Every text of the grammar is valid JSON and valid under the schema. The reverse holds but for the
 * way in which values are written: names of members, and strings under `pattern`, `format`, `enum`
 * and `const`, have no escape where none is needed; integers have neither fraction nor exponent,
 * and numbers with bounds no exponent. A keyword that cannot be compiled is an error that names it;
 * no keyword is passed over but those that say nothing about what is valid. */
#pragma once

#include "retro/grammar/json_rules.h"

struct schema_options {
    bool strict; /* objects that do not say otherwise are closed, and members come in the order of
                    `properties` */
    const struct json *root; /* the schema that `$ref` begins at, which has the one that is
                                compiled; NULL: that one */
};

/* The expression of the schema's texts in *out; it is made of rules of d, and may be set as the
 * root rule. STATUS_UNSUPPORTED or STATUS_INVALID names keyword and place, as "#/properties/a:
 * uniqueItems"; STATUS_TOO_LARGE a limit. */
enum status schema_compile(struct json_rules *rules, const struct json *schema,
                           const struct schema_options *options, int *out, struct error *e);
