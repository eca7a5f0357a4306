/* retro/grammar/schema_private.h: what the compiler of schemas consists of.
 *
 *   schema.c         lists of schemas that hold together, references, alternatives
 *   schema_types.c   keywords, types, and when two lists can hold of no value both
 *   schema_values.c  enum and const
 *   schema_text.c    strings and numbers
 *   schema_nested.c  arrays and objects */
#pragma once

#include "config/base/lookup.h"
#include "retro/grammar/schema.h"

enum {
    TYPE_NULL = 1,
    TYPE_BOOL = 2,
    TYPE_INTEGER = 4,
    TYPE_FRACTION = 8, /* a number that is no integer */
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_NUMBER = TYPE_INTEGER | TYPE_FRACTION,
    TYPE_ALL = 127
};

/* Schemas that hold together: allOf and references are flattened. An item that is a list is an
 * anyOf or oneOf of which one alternative is among the items too. */
struct schema_list {
    const struct json **items;
    int n, capacity;
    bool never; /* `false` is among them */
};

struct schema_rule {
    struct schema_list list;
    int around; /* levels around its values, where these count (json_rules.shallow) */
    int rule;
};

struct schema_compiler {
    struct json_rules *rules;
    struct grammar_draft *d;
    const struct json *root;
    struct schema_options o;
    struct schema_rule *done;
    int n_done, done_capacity;
    struct lookup_table done_by_list;
    int depth, steps;
    int64_t work; /* done by schema_charge */
    struct error *e;
};

/* Sets the error, which names the place of the schema in the root; EXPR_NOTHING. */
int schema_fail(struct schema_compiler *compiler, const struct json *schema, enum status status,
                const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Counts n steps of work that may not grow linearly with the schema. False once a limit is passed,
 * or another error is set: whoever asks goes on no more. */
bool schema_charge(struct schema_compiler *compiler, const struct json *schema, size_t n);

void schema_list_add(struct schema_compiler *compiler, struct schema_list *list,
                     const struct json *schema);
void schema_list_copy(struct schema_list *to, const struct schema_list *from);
void schema_list_free(struct schema_list *list);
/* The expression of the values of which all of the list holds. */
int schema_list_compile(struct schema_compiler *compiler, const struct schema_list *list);
/* The same for one schema; NULL: any value. */
int schema_value(struct schema_compiler *compiler, const struct json *schema);

/* schema_types.c */

/* Refuses keywords that are not supported. */
void schema_check_keywords(struct schema_compiler *compiler, const struct json *schema);
/* The types of the keyword that a schema of the list has and that says something about values of
 * these types; NULL: none does. */
const char *schema_keyword_of(const struct schema_list *list, int types);
int schema_types_of(struct schema_compiler *compiler, const struct schema_list *list);
/* Whether no value is in both, as far as can be seen. */
bool schema_disjoint(struct schema_compiler *compiler, const struct schema_list *left,
                     const struct schema_list *right);
/* The largest of a keyword's numbers over the list, or the smallest; false: no schema has it. */
bool schema_bound(struct schema_compiler *compiler, const struct schema_list *list,
                  const char *keyword, bool largest, double *out);
/* The same for a count, which is a whole number and not negative; `fallback` where there is none.
 */
int schema_count(struct schema_compiler *compiler, const struct schema_list *list,
                 const char *keyword, bool largest, int fallback);

/* schema_values.c */

/* The values that enum and const leave; false: the list has neither. */
struct value_list {
    const struct json **items;
    int n, capacity;
};
bool schema_values(struct schema_compiler *compiler, const struct schema_list *list,
                   struct value_list *out);
/* Whether a value is in two of the lists; their numbers. */
bool schema_values_meet(struct schema_compiler *compiler, const struct value_list *lists, int n,
                        int *first, int *second);
int schema_compile_values(struct schema_compiler *compiler, const struct schema_list *list,
                          const struct value_list *values);
bool json_same(const struct json *left, const struct json *right);
int json_type_bit(const struct json *json);

/* schema_text.The compiler */
int schema_string(struct schema_compiler *compiler, const struct schema_list *list);
int schema_number(struct schema_compiler *compiler, const struct schema_list *list, int types);
/* A pattern or a named format, between quotation marks or as the name of a member. */
int schema_pattern(struct schema_compiler *compiler, const struct json *schema,
                   struct text_span pattern);

/* schema_bounds.c: numbers from low to high, each a decimal without exponent; NULL: no bound. */
struct number_bounds {
    const char *low, *high;
    bool low_excluded, high_excluded;
    bool fractions; /* else integers */
};
int number_range(struct grammar_draft *draft, const struct number_bounds *bounds);

/* schema_nested.The compiler */
int schema_array(struct schema_compiler *compiler, const struct schema_list *list);
int schema_object(struct schema_compiler *compiler, const struct schema_list *list);
/* The schemas of a member of this name; whether it may be there at all. */
bool schema_member(struct schema_compiler *compiler, const struct schema_list *list,
                   struct text_span name, struct schema_list *out);
bool schema_requires(struct schema_compiler *compiler, const struct schema_list *list,
                     struct text_span name);
