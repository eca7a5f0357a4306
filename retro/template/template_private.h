/* retro/template/template_private.h: what the files of the template reader share: memory, values,
 * nodes, the run.
 *
 * Everything that a template makes lives in one arena, which ends with the run. A failure leaves by
 * longjmp to where the parse or the run began: nothing in between holds anything but arena memory.
 */
#pragma once

#include <setjmp.h>

#include "config/base/lookup.h"
#include "retro/template/template.h"

/* Memory: template_memory.c. */

struct arena_block;
struct template_memory {
    struct arena_block *blocks;
    size_t taken;
    jmp_buf failed;
    struct error *e;
};
/* Zeroed; fails the run when TEMPLATE_MAX_MEMORY is reached. */
void *memory_take(struct template_memory *memory, size_t bytes);
void memory_release(struct template_memory *memory);
_Noreturn void memory_fail(struct template_memory *memory, enum status status, const char *format,
                           ...) __attribute__((format(printf, 3, 4)));
/* An array with room for one more, as xgrow. */
void *memory_grow(struct template_memory *memory, void *items, int n, int *capacity, size_t size);
/* As lookup_add. */
void memory_lookup_add(struct template_memory *memory, struct lookup_table *table, uint64_t hash,
                       int number);

/* Strings: template_string.c. Valid UTF-8. */

struct template_string {
    const char *text;  /* NUL-terminated only when made by string_of */
    const char *marks; /* [size] 1: from the request; NULL: all the template's */
    size_t size;
    bool safe; /* by the filters `safe` and `escape` */
};
struct text_builder {
    struct template_memory *m;
    char *text, *marks; /* marks NULL: none set yet */
    size_t size, capacity;
};
const struct template_string *string_of(struct template_memory *memory, const char *text,
                                        size_t size, bool foreign);
const struct template_string *string_part(struct template_memory *memory,
                                          const struct template_string *string, size_t from,
                                          size_t to);
void builder_bytes(struct text_builder *builder, const char *text, const char *marks, size_t size);
void builder_words(struct text_builder *builder, const char *words); /* the template's own */
void builder_printf(struct text_builder *builder, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void builder_add(struct text_builder *builder, const struct template_string *string);
void builder_part(struct text_builder *builder, const struct template_string *string, size_t from,
                  size_t to);
/* A character, marked as byte `at` of the string is. */
void builder_character(struct text_builder *builder, int32_t c,
                       const struct template_string *string, size_t at);
const struct template_string *builder_string(const struct text_builder *builder);
/* The same text, marked as safe: what the filter safe gives, and what + then does with other texts.
 */
const struct template_string *string_safe(struct template_memory *memory,
                                          const struct template_string *string);
/* A text whose letters &<>'" are written for HTML. */
const struct template_string *string_escape(struct template_memory *memory,
                                            const struct template_string *string);
bool string_is(const struct template_string *string, const char *words);
bool string_equal(const struct template_string *left, const struct template_string *right);
int string_compare(const struct template_string *left, const struct template_string *right);
int64_t string_length(const struct template_string *string); /* characters */
/* Byte offset of a character, counted from 0; the size when there are fewer. */
size_t string_offset(const struct template_string *string, int64_t character);
/* The first place at or after `from`, or SIZE_MAX. */
size_t string_find(const struct template_string *string, const struct template_string *what,
                   size_t from);
/* Cuts white space, or characters of `set` when it is not NULL, as Python's strip. */
const struct template_string *string_strip(struct template_memory *memory,
                                           const struct template_string *string,
                                           const struct template_string *set, bool left,
                                           bool right);
bool python_is_space(int32_t c);

/* Values: template_value.c. */

enum value_kind {
    VALUE_ABSENT, /* an argument that was not given; never seen by a template */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_LOOP,
    VALUE_CALLABLE
};
struct value {
    enum value_kind kind;
    union {
        const struct template_string *string; /* of VALUE_UNDEFINED: what is undefined, in words */
        bool truth;
        int64_t number;
        double real;
        struct template_list *list;
        struct template_dict *dict; /* of a namespace too */
        struct loop_state *loop;
        const struct template_callable *callable;
    };
};

/* The type that Python would give the list. */
enum list_type {
    LIST_PLAIN,
    LIST_TUPLE,
    LIST_GROUP,
    LIST_RANGE,
    LIST_GENERATOR,
    LIST_KEYS,
    LIST_VALUES,
    LIST_ITEMS
};
struct template_list {
    enum list_type type;
    struct value *items;
    int n, capacity;
    int read;                    /* items of a generator that have been read */
    int64_t start, stop, stride; /* of a range */
};
struct dict_entry {
    struct value key, value;
};
struct template_dict {
    struct dict_entry *entries;
    int n, capacity;
    struct lookup_table places; /* of the first n_placed entries, where there are many */
    int n_placed;
};
struct loop_state {
    const struct template_list *items;
    int at;
    struct value changed; /* the last arguments of loop.changed */
};

struct template_run;
struct call_arguments {
    struct value *items; /* [n] */
    int n;
    struct dict_entry *keywords; /* [n_keywords], keys are strings */
    int n_keywords;
};

enum callable_kind {
    CALLABLE_MACRO,
    CALLABLE_METHOD,
    CALLABLE_GLOBAL,
    CALLABLE_CYCLER,
    CALLABLE_JOINER
};
struct template_callable {
    enum callable_kind kind;
    const struct node *macro; /* a macro, and where it was defined */
    struct template_scope *scope;
    const struct call_row *row; /* a method or a global */
    struct value self;          /* of a method; the list of a cycler; the separator of a joiner */
    int *state;                 /* calls so far, of a cycler and a joiner */
};

struct value value_none(void);
struct value value_bool(bool v);
struct value value_int(int64_t v);
struct value value_float(double v);
struct value value_string(const struct template_string *string);
struct value value_words(struct template_run *run, const char *words);
struct value value_undefined(struct template_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
struct value value_list(struct template_run *run, enum list_type type);
struct value value_dict(struct template_run *run);
struct value value_callable(struct template_run *run, struct template_callable callable);
void list_append(struct template_run *run, struct value list, struct value item);
struct value list_pair(struct template_run *run, struct value first,
                       struct value second); /* a tuple */
/* NULL when it is not there. */
struct value *dict_find(struct template_run *run, const struct template_dict *dict,
                        struct value key);
struct value *dict_find_words(const struct template_dict *dict, const char *key);
void dict_set(struct template_run *run, struct template_dict *dict, struct value key,
              struct value value);
bool value_truth(struct template_run *run, struct value value);
bool value_equal(struct template_run *run, struct value left, struct value right);
/* Below 0, 0, above 0; fails where Python refuses. `sign` is the operator for the message. */
int value_compare(struct template_run *run, struct value left, struct value right,
                  const char *sign);
bool value_is_number(struct value value);   /* int, float or bool */
double value_real(struct value value);      /* of a number */
int64_t value_index(struct value value);    /* of an int or a bool */
const char *value_type(struct value value); /* Python's name of the type */
/* The items that iterating over the value gives; the list may be the value's own and is not to be
 * changed. */
const struct template_list *value_items(struct template_run *run, struct value value);
bool value_contains(struct template_run *run, struct value where, struct value what);
int64_t value_length(struct template_run *run, struct value value);
/* Whether list(value) works. */
bool value_is_iterable(struct value value);

/* Text of values: template_repr.c, template_json.c, template_format.c. */

const struct template_string *value_text(struct template_run *run,
                                         struct value value); /* str(value) */
void value_write(struct template_run *run, struct text_builder *builder,
                 struct value value); /* the same */
void value_repr(struct template_run *run, struct text_builder *builder, struct value value);
void float_write(struct text_builder *builder, double v);
struct json_layout {
    struct value indent, separators;
    bool ascii, sort;
};
const struct template_string *value_json(struct template_run *run, struct value value,
                                         const struct json_layout *layout);
struct value value_from_json(struct template_run *run, const struct json *json, bool foreign);
const struct template_string *format_percent(struct template_run *run,
                                             const struct template_string *format,
                                             struct value arguments);
const struct template_string *format_braces(struct template_run *run,
                                            const struct template_string *format,
                                            const struct call_arguments *arguments);

/* Nodes. */

enum node_kind {
    NODE_TEXT,     /* constant */
    NODE_PRINT,    /* left */
    NODE_IF,       /* left: test, body, other: the list for else */
    NODE_FOR,      /* target, left: what is iterated over, right: the filter or NULL, body, other */
    NODE_SET,      /* target, left */
    NODE_SET_BODY, /* target, left: the filters over NODE_BODY_TEXT or NULL, body */
    NODE_MACRO,    /* name, list: parameters (NODE_PARAMETER), body */
    NODE_CALL_BLOCK,   /* left: the call, right: the caller, a NODE_MACRO */
    NODE_FILTER_BLOCK, /* left: filters over NODE_BODY_TEXT, body */
    NODE_WITH,         /* list: NODE_SET, body */
    NODE_BLOCK,        /* body */
    NODE_BREAK,
    NODE_CONTINUE,
    NODE_CONSTANT,
    NODE_NAME,      /* name */
    NODE_BODY_TEXT, /* the text of the block that a filter is applied to */
    NODE_LIST,      /* list */
    NODE_TUPLE,     /* list */
    NODE_DICT,      /* list: key, value, key, value */
    NODE_ATTRIBUTE, /* left . name */
    NODE_ITEM,      /* left [ right ] */
    NODE_SLICE,     /* left : right : other, each may be NULL */
    NODE_CALL,      /* left ( list, keywords ) */
    NODE_FILTER,    /* left | name ( list, keywords ) */
    NODE_TEST,      /* left is name ( list, keywords ) */
    NODE_UNARY,     /* operator, left */
    NODE_BINARY,    /* left operator right */
    NODE_CONCAT,    /* list */
    NODE_COMPARE,   /* left, list: NODE_OPERAND */
    NODE_OPERAND,   /* operator, left */
    NODE_AND,       /* left, right */
    NODE_OR,
    NODE_CHOICE,   /* left if right else other */
    NODE_KEYWORD,  /* name = left */
    NODE_PARAMETER /* name = left, which may be NULL */
};

enum template_token_kind {
    TOKEN_END,
    TOKEN_TEXT,
    TOKEN_PRINT_BEGIN,
    TOKEN_PRINT_END,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_OPERATOR
};

enum operator_kind {
    OPERATOR_NONE,
    OPERATOR_ADD,
    OPERATOR_SUB,
    OPERATOR_MUL,
    OPERATOR_DIV,
    OPERATOR_FLOORDIV,
    OPERATOR_MOD,
    OPERATOR_POW,
    OPERATOR_TILDE,
    OPERATOR_EQ,
    OPERATOR_NE,
    OPERATOR_LT,
    OPERATOR_LE,
    OPERATOR_GT,
    OPERATOR_GE,
    OPERATOR_IN,
    OPERATOR_NOT_IN,
    OPERATOR_NOT,
    OPERATOR_ASSIGN,
    OPERATOR_PIPE,
    OPERATOR_DOT,
    OPERATOR_COMMA,
    OPERATOR_COLON,
    OPERATOR_SEMICOLON,
    OPERATOR_PAREN_OPEN,
    OPERATOR_PAREN_CLOSE,
    OPERATOR_BRACKET_OPEN,
    OPERATOR_BRACKET_CLOSE,
    OPERATOR_BRACE_OPEN,
    OPERATOR_BRACE_CLOSE
};

struct node {
    enum node_kind kind;
    enum operator_kind operator;
    int line;
    struct node *next; /* in a list */
    const struct template_string *name;
    struct value constant;
    struct node *target, *left, *right, *other;
    struct node *list, *keywords;
    struct node *body;
    const struct call_row *row; /* of a filter or a test; NULL: not known */
};

struct template_token {
    enum template_token_kind kind;
    enum operator_kind operator;
    int line;
    const struct template_string *text; /* of texts, names and strings; digits of numbers */
    int64_t number;
    double real;
};
struct template_tokens {
    struct template_token *tokens; /* [n], the last is TOKEN_END */
    int n, capacity;
};

/* template_lexer.c */
void lexer_read(struct template_memory *memory, struct text_span source,
                struct template_tokens *out);
const char *token_words(const struct template_token *token, char words[64]);

/* template_parse.c, template_parse_expression.c */
struct template_parser {
    struct template_memory *m;
    const struct template_token *at;
    int depth, loops;
};
struct node *parser_template(struct template_parser *parser);
struct node *parser_expression(struct template_parser *parser);
struct node *parser_or(struct template_parser *parser); /* without `if` */
struct node *parser_primary(struct template_parser *parser);
enum { TUPLE_OF_CHOICES = 0, TUPLE_SIMPLE = 1 /* without `if`: the condition of a statement */ };
/* One expression, or a tuple of several without brackets. */
struct node *parser_tuple(struct template_parser *parser, int flags);
struct node *parser_target(struct template_parser *parser, bool attributes);
struct node *parser_filters(struct template_parser *parser, struct node *left, bool first_is_named);
void parser_call_arguments(struct template_parser *parser, struct node *call);
struct node *parser_node(struct template_parser *parser, enum node_kind kind);
bool parser_skip(struct template_parser *parser, enum operator_kind operator);
bool parser_skip_name(struct template_parser *parser, const char *name);
bool parser_is_name(const struct template_parser *parser, const char *name);
void parser_expect(struct template_parser *parser, enum operator_kind operator, const char * what);
const struct template_string *parser_expect_name(struct template_parser *parser);
void parser_enter(struct template_parser *parser);
void parser_leave(struct template_parser *parser);
_Noreturn void parser_fail(const struct template_parser *parser, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
_Noreturn void parser_refuse(const struct template_parser *parser, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

struct template {
    struct template_memory memory;
    struct node *body;
    const char **names; /* [n_names] that are read somewhere */
    int n_names, names_capacity;
    struct text_builder literals;
};

/* The run: template_eval.c, template_eval_expression.c. */

struct scope_entry {
    const struct template_string *name;
    struct value value;
};
struct template_scope {
    struct template_scope *parent;
    struct scope_entry *entries;
    int n, capacity;
    struct lookup_table places; /* of the entries behind the first SCOPE_PLAIN */
    bool held;                  /* by a macro, which reads it later */
};
struct template_run {
    struct template_memory *m;
    struct template_memory memory;
    struct text_builder *out;
    struct template_scope *scope;
    struct value body_text; /* NODE_BODY_TEXT */
    struct tm now;
    int64_t steps;
    int depth;
    int line; /* of the statement or expression in work */
};
void run_step(struct template_run *run, int64_t n);
void run_enter(struct template_run *run);
void run_leave(struct template_run *run);
/* An operation of the template failed: the words get the line put before them. */
_Noreturn void run_fail(struct template_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
_Noreturn void run_refuse(struct template_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Fails when the value is undefined: what Jinja's Undefined does in most operations. */
void run_need_defined(struct template_run *run, struct value value);
struct template_scope *scope_open(struct template_run *run, struct template_scope *parent);
void scope_set(struct template_run *run, const struct template_string *name, struct value value);
struct value scope_get(struct template_run *run, const struct template_string *name);
void run_body(struct template_run *run, const struct node *body);
/* The text that a body writes. */
struct value run_capture(struct template_run *run, const struct node *body);
struct value run_macro(struct template_run *run, const struct template_callable *macro,
                       const struct call_arguments *arguments);
struct value run_expression(struct template_run *run, const struct node *node);

/* template_operators.c */
struct value operator_apply(struct template_run *run, enum operator_kind operator,
                            struct value left, struct value right);
struct value operator_unary(struct template_run *run, enum operator_kind operator,
                            struct value value);
bool operator_compare(struct template_run *run, enum operator_kind operator, struct value left,
                      struct value right);
struct value value_attribute(struct template_run *run, struct value value,
                             const struct template_string *name);
struct value value_item(struct template_run *run, struct value value, struct value key);
struct value value_slice(struct template_run *run, struct value value,
                         const struct value bounds[3]);
const char *operator_words(enum operator_kind operator);

/* Calls: template_call.c. A row of filters, tests, methods or globals. */

enum { CALL_MAX_ARGUMENTS = 6 };
struct bound_call {
    struct value self;
    struct value args[CALL_MAX_ARGUMENTS]; /* VALUE_ABSENT: not given */
    const struct call_arguments *all;      /* as they were given */
    const struct call_row *row;
};
typedef struct value call_function(struct template_run *r, const struct bound_call *c);
struct call_row {
    const char *name;
    call_function *call;
    const char *parameters; /* "a b c": names by position; "a /": no keywords; "*": any, the
                               function looks itself */
    int needed;             /* of them */
};
const struct call_row *call_row_find(const struct call_row *rows, size_t n,
                                     const struct template_string *name);
const struct call_row *filter_find(const struct template_string *name);
const struct call_row *test_find(const struct template_string *name);
const struct call_row *method_find(struct value self, const struct template_string *name);
const struct call_row *global_find(const struct template_string *name);
struct value call_row_apply(struct template_run *run, const struct call_row *row, struct value self,
                            const struct call_arguments *arguments);
struct value call_value(struct template_run *run, struct value value,
                        const struct call_arguments *arguments);
/* Arguments read by type; absent ones give the fallback. */
int64_t argument_int(struct template_run *run, const struct bound_call *call, int i,
                     int64_t fallback);
bool argument_bool(struct template_run *run, const struct bound_call *call, int i, bool fallback);
const struct template_string *argument_text(struct template_run *run, const struct bound_call *call,
                                            int i); /* or NULL */

/* The tables. */
struct call_table {
    const struct call_row *rows;
    size_t n;
};
extern const struct call_table text_filters, list_filters, value_tests, text_methods,
    text_class_methods, dict_methods, list_methods, loop_methods, global_functions;
/* Upper or lower case, capital or title of a text. */
enum letter_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITAL, CASE_SWAP };
bool string_is_cased(const struct template_string *string, bool upper);
const struct template_string *string_case(struct template_run *run,
                                          const struct template_string *string,
                                          enum letter_case how);
/* "a.b.0" of a value, as the argument `attribute` of filters. */
struct value value_path(struct template_run *run, struct value value, struct value path);
const struct template_string *string_replace(struct template_run *run,
                                             const struct template_string *string,
                                             const struct template_string *parts[2], int64_t count);
