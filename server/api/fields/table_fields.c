/* server/api/fields/table_fields.c: see table_fields.h. */
#include "server/api/fields/table_fields.h"

#include <stdlib.h>
#include <string.h>

static bool fail(struct failure *failure, const char *field, const char *why) {
    return failure_set(failure, 400, "invalid_value", field, "%s", why);
}

/* A value as a cell has it; numbers are kept as texts. */
static bool read_value(struct table_request *request, const struct json *json,
                       struct text_span *value) {
    if (json_is_text(json)) {
        *value = json_text(json);
        return true;
    }
    if (!json_is_numeric(json) && json_kind(json) != JSON_KIND_BOOL) return false;
    char shown[JSON_SHOWN_SIZE];
    request->kept =
        xgrow(request->kept, request->n_kept, &request->kept_capacity, sizeof *request->kept);
    struct buffer *kept = &request->kept[request->n_kept];
    *kept = (struct buffer){0};
    request->n_kept++;
    if (json_is_numeric(json))
        cell_print_number(kept, json_double(json));
    else
        buffer_append_string(kept, json_shown(json, shown));
    *value = (struct text_span){kept->data, kept->size};
    return true;
}

static bool read_operator(const struct json *json, enum table_operator *out) {
    static const struct {
        const char *name;
        enum table_operator is;
    } names[] = {
        {"=", OPERATOR_EQUAL},      {"==", OPERATOR_EQUAL},          {"in", OPERATOR_EQUAL},
        {"!=", OPERATOR_UNEQUAL},   {"<>", OPERATOR_UNEQUAL},        {"not in", OPERATOR_UNEQUAL},
        {"<", OPERATOR_LESS},       {"<=", OPERATOR_AT_MOST},        {">", OPERATOR_MORE},
        {">=", OPERATOR_AT_LEAST},  {"contains", OPERATOR_CONTAINS}, {"empty", OPERATOR_EMPTY},
        {"filled", OPERATOR_FILLED}};
    *out = OPERATOR_EQUAL;
    if (json_is_absent(json)) return true;
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (json_text_is(json, names[i].name)) {
            *out = names[i].is;
            return true;
        }
    return false;
}

/* {"column": "Price", "is": ">=", "value": 5} */
static bool read_condition(struct table_request *request, const struct json *json,
                           struct failure *failure) {
    struct table_question *question = &request->question;
    struct table_condition *condition = &question->conditions[question->n_conditions];
    const struct json *value = json_member(json, "value");
    condition->column = json_word(json_member(json, "column"));
    if (condition->column == NULL) return fail(failure, "where", "a condition needs a \"column\"");
    if (!read_operator(json_member(json, "is"), &condition->is))
        return fail(failure, "where",
                    "\"is\" must be =, !=, <, <=, >, >=, in, not in, contains, empty or filled");
    size_t n = json_is_list(value) ? json_count(value) : json_is_absent(value) ? 0 : 1;
    if (n > ARRAY_COUNT(condition->values))
        return fail(failure, "where", "a condition has at most 64 values");
    for (size_t i = 0; i < n; i++) {
        const struct json *item = json_is_list(value) ? json_item(value, i) : value;
        if (!read_value(request, item, &condition->values[i]))
            return fail(failure, "where", "a value must be a text, a number or a boolean");
    }
    condition->n_values = (int)n;
    question->n_conditions++;
    return true;
}

static bool read_where(void *object, const struct json *json, const struct request_limits *limits,
                       struct failure *failure) {
    struct table_request *request = object;
    size_t n = json_is_list(json) ? json_count(json) : 1;
    (void)limits;
    if (n > ASK_MOST_CONDITIONS) return fail(failure, "where", "where has at most 16 conditions");
    for (size_t i = 0; i < n; i++) {
        const struct json *one = json_is_list(json) ? json_item(json, i) : json;
        if (!read_condition(request, one, failure)) return false;
    }
    return true;
}
FIELD_PARSER(parse_where, read_where)

static bool read_names(const struct json *json, const char *names[], int *n, const char *field,
                       struct failure *failure) {
    size_t count = json_is_list(json) ? json_count(json) : 1;
    if (count > ASK_MOST_COLUMNS)
        return failure_set(failure, 400, "invalid_value", field, "%s names at most %d columns",
                           field, ASK_MOST_COLUMNS);
    for (size_t i = 0; i < count; i++) {
        names[i] = json_word(json_is_list(json) ? json_item(json, i) : json);
        if (names[i] == NULL)
            return failure_set(failure, 400, "invalid_type", field, "%s must be names of columns",
                               field);
    }
    *n = (int)count;
    return true;
}

static bool read_group(void *object, const struct json *json, const struct request_limits *limits,
                       struct failure *failure) {
    struct table_question *question = &((struct table_request *)object)->question;
    (void)limits;
    return read_names(json, question->groups, &question->n_groups, "group", failure);
}
FIELD_PARSER(parse_group, read_group)

static bool read_columns(void *object, const struct json *json, const struct request_limits *limits,
                         struct failure *failure) {
    struct table_question *question = &((struct table_request *)object)->question;
    (void)limits;
    return read_names(json, question->columns, &question->n_columns, "columns", failure);
}
FIELD_PARSER(parse_columns, read_columns)

/* {"measure": "sum", "column": "Price"} */
static bool read_measure(struct table_question *question, const struct json *json,
                         struct failure *failure) {
    static const char *const names[] = {"count", "sum", "min", "max", "mean"};
    struct table_measure *measure = &question->measures[question->n_measures];
    const struct json *kind = json_member(json, "measure"), *column = json_member(json, "column");
    bool known = false;
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (json_text_is(kind, names[i])) {
            measure->kind = (enum table_measure_kind)i;
            known = true;
        }
    if (!known)
        return fail(failure, "measures", "a \"measure\" must be count, sum, min, max or mean");
    measure->column = json_word(column);
    if (!json_is_absent(column) && measure->column == NULL)
        return fail(failure, "measures", "the \"column\" of a measure must be a name");
    question->n_measures++;
    return true;
}

static bool read_measures(void *object, const struct json *json,
                          const struct request_limits *limits, struct failure *failure) {
    struct table_question *question = &((struct table_request *)object)->question;
    size_t n = json_is_list(json) ? json_count(json) : 1;
    (void)limits;
    if (n > ASK_MOST_COLUMNS) return fail(failure, "measures", "there are at most 16 measures");
    for (size_t i = 0; i < n; i++)
        if (!read_measure(question, json_is_list(json) ? json_item(json, i) : json, failure))
            return false;
    return true;
}
FIELD_PARSER(parse_measures, read_measures)

/* {"by": "sum of Price", "order": "desc"} */
static bool read_sort(void *object, const struct json *json, const struct request_limits *limits,
                      struct failure *failure) {
    struct table_question *question = &((struct table_request *)object)->question;
    size_t n = json_is_list(json) ? json_count(json) : 1;
    (void)limits;
    if (n > ASK_MOST_COLUMNS) return fail(failure, "sort", "sort has at most 16 columns");
    for (size_t i = 0; i < n; i++) {
        const struct json *one = json_is_list(json) ? json_item(json, i) : json;
        const struct json *order = json_member(one, "order");
        struct table_order *to = &question->orders[question->n_orders];
        to->by = json_is_text(one) ? json_word(one) : json_word(json_member(one, "by"));
        to->descending = json_text_is(order, "desc");
        if (to->by == NULL)
            return fail(failure, "sort", "sort needs \"by\": a column of the answer");
        if (!json_is_absent(order) && !to->descending && !json_text_is(order, "asc"))
            return fail(failure, "sort", "\"order\" must be asc or desc");
        question->n_orders++;
    }
    return true;
}
FIELD_PARSER(parse_sort, read_sort)

#define NAMES_SCHEMA \
    "{\"type\":[\"array\",\"string\",\"null\"],\"items\":{\"type\":\"string\"},\"maxItems\":16}"
#define WHERE_SCHEMA \
    "{\"type\":[\"array\",\"null\"],\"maxItems\":16,\"items\":{\"type\":\"object\",\"required\":[" \
    "\"column\"],\"properties\":{\"column\":{\"type\":\"string\"},\"is\":{\"type\":\"string\"," \
    "\"enum\":[\"=\",\"!=\",\"<\",\"<=\",\">\",\">=\",\"in\",\"not in\",\"contains\",\"empty\"," \
    "\"filled\"]},\"value\":{\"type\":[\"string\",\"number\",\"boolean\",\"array\"],\"items\":{" \
    "\"type\":[\"string\",\"number\",\"boolean\"]}}}}}"
#define MEASURES_SCHEMA \
    "{\"type\":[\"array\",\"null\"],\"maxItems\":16,\"items\":{\"type\":\"object\",\"required\":[" \
    "\"measure\"],\"properties\":{\"measure\":{\"type\":\"string\",\"enum\":[\"count\",\"sum\"," \
    "\"min\",\"max\",\"mean\"]},\"column\":{\"type\":\"string\"}}}}"
#define SORT_SCHEMA \
    "{\"type\":[\"array\",\"null\"],\"maxItems\":16,\"items\":{\"type\":\"object\",\"required\":[" \
    "\"by\"],\"properties\":{\"by\":{\"type\":\"string\"},\"order\":{\"type\":\"string\"," \
    "\"enum\":" \
    "[\"asc\",\"desc\"]}}}}"

#define AT(member) JSON_AT(struct table_request, member)
static const struct json_field question_fields[] = {
    {"document", JSON_TEXT, AT(document), .required = true,
     .help = "the id or path of the document that holds the table"},
    {"table", JSON_TEXT, AT(table),
     .help = "the table's number in the document from \"1\", its name, or its sheet's; default: "
             "the only one"},
    {"where", JSON_PARSED, .parse = parse_where, .schema = WHERE_SCHEMA,
     .help = "conditions on columns, all of which hold"},
    {"group", JSON_PARSED, .parse = parse_group, .schema = NAMES_SCHEMA,
     .help = "columns whose values make the groups; of dates also \"Day:month\" and \"Day:year\""},
    {"measures", JSON_PARSED, .parse = parse_measures, .schema = MEASURES_SCHEMA,
     .help = "what is computed of the rows, or of each group"},
    {"columns", JSON_PARSED, .parse = parse_columns, .schema = NAMES_SCHEMA,
     .help = "the columns of rows that are shown where nothing is measured"},
    {"sort", JSON_PARSED, .parse = parse_sort, .schema = SORT_SCHEMA,
     .help = "columns of the answer, such as \"sum of Price\""},
    {"limit", JSON_INT, AT(limit), .min = 1, .max = ASK_MOST_ROWS, .fallback = 100,
     .help = "rows of the answer"},
    {"totals", JSON_BOOL, AT(totals),
     .help = "rows that sum others up (\"Total\") are rows like any"},
};
#undef AT
const struct json_table table_question_table = JSON_TABLE(question_fields);

bool table_request_parse(struct table_request *request, struct text_span body,
                         const struct request_limits *limits, struct failure *failure) {
    *request = (struct table_request){.limit = 0};
    if (!fields_load(&request->json, body.text, body.size, limits, failure)) return false;
    if (!fields_parse(&table_question_table, request, request->json, limits, failure)) return false;
    request->question.limit = request->limit;
    request->question.with_totals = request->totals;
    if (request->document[0] == '\0')
        return failure_set(failure, 400, "invalid_value", "document", "document is empty");
    return true;
}

void table_request_free(struct table_request *request) {
    json_table_free(&table_question_table, request);
    for (int i = 0; i < request->n_kept; i++) buffer_free(&request->kept[i]);
    free(request->kept);
    json_close(request->json);
    *request = (struct table_request){.limit = 0};
}

#define AT(member) JSON_AT(struct table_list_request, member)
static const struct json_field list_fields[] = {
    {"document", JSON_TEXT, AT(document), .help = "the id or path of one document"},
    {"after", JSON_TEXT, AT(after), .help = "the id of the document behind which the list begins"},
    {"limit", JSON_INT64, AT(limit), .min = 1, .max = 1000, .fallback = 100,
     .help = "how many are listed"},
};
#undef AT
const struct json_table table_list_table = JSON_TABLE(list_fields);

bool table_list_parse(struct table_list_request *request, const struct query_argument *arguments,
                      int n, const struct request_limits *limits, struct failure *failure) {
    struct json *json;
    *request = (struct table_list_request){0};
    if (!arguments_load(&json, &table_list_table, arguments, n, failure)) return false;
    bool ok = fields_parse(&table_list_table, request, json, limits, failure);
    json_close(json);
    return ok;
}

void table_list_free(struct table_list_request *request) {
    json_table_free(&table_list_table, request);
}

const char table_tool_json[] =
    "{\"type\":\"function\",\"function\":{\"name\":\"table_query\",\"description\":\"Computes over "
    "one table of the documents: filters rows, groups them, and counts, sums, averages or sorts. "
    "Use it for every question that needs arithmetic over a table. The answer names the cells it "
    "was made from.\",\"parameters\":{\"type\":\"object\",\"required\":[\"document\"],"
    "\"properties\":{\"document\":{\"type\":\"string\",\"description\":\"id or path of the "
    "document "
    "that holds the table\"},\"table\":{\"type\":\"string\",\"description\":\"number, name or "
    "sheet "
    "of the table; not needed where the document has one\"},\"where\":" WHERE_SCHEMA
    ",\"group\":" NAMES_SCHEMA ",\"measures\":" MEASURES_SCHEMA ",\"columns\":" NAMES_SCHEMA
    ",\"sort\":" SORT_SCHEMA
    ",\"limit\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":1000},\"totals\":{\"type\":"
    "\"boolean\"}}}}}";
