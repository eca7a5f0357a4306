/* tests/unit/test_json_table.c: values, places and the table reader: what gets in, and the words
 * for what does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/json/json_table.h"

enum shade { SHADE_LIGHT = 3, SHADE_DARK = 7 };

struct nested {
    int depth;
};

struct sample {
    bool flag;
    int count;
    int64_t wide;
    float ratio;
    double exact;
    char *text;
    enum shade shade;
    struct nested nested;
    struct json_list ids, words;
    const struct json *raw;
    int parsed;
};

struct sample_limits {
    int most;
};

static const struct json_choice shades[] = {
    {"light", SHADE_LIGHT}, {"pale", SHADE_LIGHT}, {"dark", SHADE_DARK}, {NULL, 0}};
static const struct json_field nested_fields[] = {
    {"depth", JSON_INT, JSON_AT(struct nested, depth), .min = 1, .max = 9, .required = true},
};
static const struct json_table nested_table = JSON_TABLE(nested_fields);
static const struct json_field id_item = {"id", JSON_INT, .min = 0, .max = 99};
static const struct json_field word_item = {.name = "word", .type = JSON_TEXT};

static enum status parse_even(struct json_reader *r, const struct json *value, void *object) {
    struct sample *s = object;
    if (json_kind(value) != JSON_KIND_INT) return json_fail_type(r, "an even integer", value);
    if (json_int(value) % 2)
        return json_fail(r, JSON_FAULT_VALUE, "%d is odd", (int)json_int(value));
    s->parsed = (int)json_int(value) + *(const int *)r->context;
    return STATUS_OK;
}

#define AT(member) JSON_AT(struct sample, member)
static const struct json_field sample_fields[] = {
    {"flag", JSON_BOOL, AT(flag), .fallback = 1},
    {"count|n_count|counts", JSON_INT, AT(count), .min = 1, .max = 512, .required = true},
    {"wide", JSON_INT64, AT(wide)},
    {"ratio", JSON_FLOAT, AT(ratio), .min = 0.25, .max = 4, .fallback = 0.5},
    {"exact", JSON_DOUBLE, AT(exact), .min = 0, .option = "most.exact",
     .limit_offset = offsetof(struct sample_limits, most)},
    {"text", JSON_TEXT, AT(text), .text = "none"},
    {"shade", JSON_CHOICE, AT(shade), .choices = shades, .fallback = SHADE_DARK},
    {"nested", JSON_STRUCT, AT(nested), .table = &nested_table},
    {"ids", JSON_LIST, AT(ids), .item = &id_item, .item_size = sizeof(int), .min = 1, .max = 3,
     .or_one = true},
    {"words", JSON_LIST, AT(words), .item = &word_item, .item_size = sizeof(char *)},
    {"raw", JSON_RAW, AT(raw)},
    {"parsed", JSON_PARSED, .parse = parse_even},
    {"neutral", JSON_NEUTRAL, .min = 1},
    {.name = "bias", .type = JSON_MUST_BE_FALSE},
    {.name = "empty", .type = JSON_EMPTY},
    {.name = "ignored", .type = JSON_IGNORED},
};
#undef AT
static const struct json_table sample_table = JSON_TABLE(sample_fields);
static const struct json_table open_table = JSON_TABLE(sample_fields, .open = true);
static const int parse_offset = 100;
static const struct sample_limits limits = {.most = 5};

static struct text_span span(const char *text) { return (struct text_span){text, strlen(text)}; }

static enum status read_with(struct json_reader *r, const struct json_table *t, const char *text,
                             struct sample *s) {
    struct json *root;
    memset(s, 0, sizeof *s);
    assert_int_equal(json_parse(&root, span(text), "sample", r->e), STATUS_OK);
    r->limits = &limits;
    r->context = (void *)(uintptr_t)&parse_offset;
    enum status status = json_table_read(r, t, root, s);
    assert_null(r->place);
    json_close(root);
    return status;
}

static void expect_error(const char *text, enum json_fault fault, const char *field,
                         const char *words) {
    struct error e = {0};
    struct sample s;
    struct json_reader r = {.name = "sample", .text = span(text), .e = &e};
    assert_int_equal(read_with(&r, &sample_table, text, &s),
                     fault == JSON_FAULT_UNSUPPORTED ? STATUS_UNSUPPORTED : STATUS_INVALID);
    assert_int_equal(r.fault, fault);
    assert_string_equal(r.field, field);
    assert_string_equal(e.text, words);
    json_table_free(&sample_table, &s);
}

static void test_all_types(void **state) {
    (void)state;
    struct error e = {0};
    struct sample s;
    struct json_reader r = {.name = "sample", .e = &e};
    const char *text =
        "{\"flag\": false, \"n_count\": 512, \"wide\": 9223372036854775807, \"ratio\": 4, "
        "\"exact\": 5,"
        " \"text\": \"a\\u00e9\", \"shade\": \"pale\", \"nested\": {\"depth\": 9}, \"ids\": [1, "
        "99],"
        " \"words\": [\"x\", \"\"], \"parsed\": 4, \"neutral\": 1.0, \"bias\": false, \"empty\": "
        "[], \"ignored\": {}}";
    assert_int_equal(read_with(&r, &sample_table, text, &s), STATUS_OK);
    assert_false(s.flag);
    assert_int_equal(s.count, 512);
    assert_true(s.wide == INT64_MAX && s.ratio == 4 && s.exact == 5);
    assert_string_equal(s.text, "a\xC3\xA9");
    assert_int_equal(s.shade, SHADE_LIGHT);
    assert_int_equal(s.nested.depth, 9);
    assert_int_equal(s.ids.count, 2);
    assert_int_equal(((int *)s.ids.items)[1], 99);
    assert_int_equal(s.words.count, 2);
    assert_string_equal(((char **)s.words.items)[0], "x");
    assert_int_equal(s.parsed, 104);
    assert_null(s.raw);
    json_table_free(&sample_table, &s);
    assert_null(s.text);
    assert_null(s.words.items);
}

static void test_absent_fields(void **state) {
    (void)state;
    struct error e = {0};
    struct sample s;
    struct json_reader r = {.e = &e};
    assert_int_equal(read_with(&r, &sample_table,
                               "{\"count\": null, \"counts\": 2, \"ratio\": null, \"ids\": 7}", &s),
                     STATUS_OK);
    assert_true(s.flag);
    assert_int_equal(s.count, 2);
    assert_true(s.ratio == 0.5f);
    assert_int_equal(s.shade, SHADE_DARK);
    assert_string_equal(s.text, "none");
    assert_int_equal(s.ids.count, 1);
    assert_int_equal(((int *)s.ids.items)[0], 7);
    json_table_free(&sample_table, &s);
}

/* A row without a fallback leaves what the caller put there; json_table_fallbacks sets everything.
 */
static void test_fallbacks(void **state) {
    (void)state;
    struct error e = {0};
    struct sample s = {.wide = 5, .ratio = 3};
    struct json_reader r = {.e = &e, .limits = &limits};
    struct json *root;
    assert_int_equal(json_parse(&root, span("{\"count\": 1}"), "sample", &e), STATUS_OK);
    assert_int_equal(json_table_read(&r, &sample_table, root, &s), STATUS_OK);
    assert_true(s.wide == 5 && s.ratio == 0.5f);
    s.ratio = 1;
    json_table_fallbacks(&sample_table, &s);
    assert_true(s.wide == 0 && s.ratio == 0.5f && s.count == 0);
    json_table_free(&sample_table, &s);
    json_close(root);
}

static void test_wrong_values(void **state) {
    (void)state;
    expect_error("[]", JSON_FAULT_TYPE, "", "sample: expected an object, not an array");
    expect_error("{}", JSON_FAULT_MISSING, "count", "sample: \"count\" is missing");
    expect_error("{\n\"count\": 0}", JSON_FAULT_VALUE, "count",
                 "sample:2: \"count\" is 0, allowed is 1 .. 512");
    expect_error("{\"counts\": 513}", JSON_FAULT_VALUE, "counts",
                 "sample:1: \"counts\" is 513, allowed is 1 .. 512");
    expect_error("{\"count\": 1.5}", JSON_FAULT_TYPE, "count",
                 "sample:1: \"count\" is 1.5, expected an integer");
    expect_error("{\"count\": true}", JSON_FAULT_TYPE, "count",
                 "sample:1: \"count\" is true, expected an integer");
    expect_error("{\"count\": 1, \"flag\": 1}", JSON_FAULT_TYPE, "flag",
                 "sample:1: \"flag\" is 1, expected true or false");
    expect_error("{\"count\": 1, \"ratio\": \"1\"}", JSON_FAULT_TYPE, "ratio",
                 "sample:1: \"ratio\" is \"1\", expected a number");
    expect_error("{\"count\": 1, \"exact\": 6}", JSON_FAULT_VALUE, "exact",
                 "sample:1: \"exact\" is 6, allowed is 0 .. 5 (option most.exact)");
    expect_error("{\"count\": 1, \"text\": \"a\\u0000b\"}", JSON_FAULT_VALUE, "text",
                 "sample:1: \"text\" holds a NUL character");
    expect_error("{\"count\": 1, \"shade\": \"grey\"}", JSON_FAULT_VALUE, "shade",
                 "sample:1: \"shade\" is \"grey\", allowed is light, pale, dark");
    expect_error("{\"count\": 1, \"shade\": 3}", JSON_FAULT_TYPE, "shade",
                 "sample:1: \"shade\" is 3, expected one of light, pale, dark");
    expect_error("{\"count\": 1, \"parsed\": 3}", JSON_FAULT_VALUE, "parsed", "sample:1: 3 is odd");
    expect_error("{\"count\": 1, \"parsed\": []}", JSON_FAULT_TYPE, "parsed",
                 "sample:1: \"parsed\" is a list, expected an even integer");
}

static void test_nested_places(void **state) {
    (void)state;
    expect_error("{\"count\": 1,\n \"nested\": 5}", JSON_FAULT_TYPE, "nested",
                 "sample:2: \"nested\" is 5, expected an object");
    expect_error("{\"count\": 1,\n \"nested\": {}}", JSON_FAULT_MISSING, "nested.depth",
                 "sample:2: \"nested.depth\" is missing");
    expect_error(
        "{\"count\": 1,\n \"raw\": {\"nested\": {\"depth\": 1}},\n \"nested\": {\n\"d\\u0065pth\": "
        "10}}",
        JSON_FAULT_VALUE, "nested.depth", "sample:4: \"nested.depth\" is 10, allowed is 1 .. 9");
    expect_error("{\"count\": 1, \"nested\": {\n\"depth\": 1,\n \"detph\": 2}}", JSON_FAULT_UNKNOWN,
                 "nested.detph",
                 "sample:3: unknown key \"nested.detph\"; did you mean \"nested.depth\"?");
    expect_error("{\"count\": 1, \"ids\": [1,\n [\"]\"],\n 3]}", JSON_FAULT_TYPE, "ids[1]",
                 "sample:2: \"ids[1]\" is a list, expected an integer");
    expect_error("{\"count\": 1, \"ids\": []}", JSON_FAULT_VALUE, "ids",
                 "sample:1: \"ids\" has 0 items, allowed is 1 .. 3");
    expect_error("{\"count\": 1, \"ids\": \"x\"}", JSON_FAULT_TYPE, "ids",
                 "sample:1: \"ids\" is \"x\", expected an integer");
    expect_error("{\"count\": 1, \"words\": [\"a\", 2]}", JSON_FAULT_TYPE, "words[1]",
                 "sample:1: \"words[1]\" is 2, expected a string");
}

static void test_unknown_and_unsupported(void **state) {
    (void)state;
    expect_error("{\"count\": 1, \"n_cuont\": 2}", JSON_FAULT_UNKNOWN, "n_cuont",
                 "sample:1: unknown key \"n_cuont\"; did you mean \"n_count\"?");
    expect_error("{\"count\": 1, \"quite-unlike\": 2}", JSON_FAULT_UNKNOWN, "quite-unlike",
                 "sample:1: unknown key \"quite-unlike\"; known are flag, count, wide, ratio, "
                 "exact, text, shade, "
                 "nested, ids, words, raw, parsed");
    expect_error("{\"count\": 1, \"neutral\": 2}", JSON_FAULT_UNSUPPORTED, "neutral",
                 "sample:1: \"neutral\" is not supported: leave it out or send 1");
    expect_error("{\"count\": 1, \"neutral\": true}", JSON_FAULT_UNSUPPORTED, "neutral",
                 "sample:1: \"neutral\" is not supported: leave it out or send 1");
    expect_error("{\"count\": 1, \"bias\": 0}", JSON_FAULT_UNSUPPORTED, "bias",
                 "sample:1: \"bias\" is not supported: must be false");
    expect_error("{\"count\": 1, \"empty\": [0]}", JSON_FAULT_UNSUPPORTED, "empty",
                 "sample:1: \"empty\" is not supported: leave it out");
    struct error e = {0};
    struct sample s;
    struct json_reader r = {.e = &e};
    assert_int_equal(read_with(&r, &open_table, "{\"count\": 1, \"cuont\": 2}", &s), STATUS_OK);
    json_table_free(&open_table, &s);
}

static void test_style(void **state) {
    (void)state;
    static const struct json_style style = {.status = STATUS_CORRUPT,
                                            .quote = "",
                                            .member = "parameter",
                                            .document = "the request body",
                                            .kinds = true};
    static const char *const cases[][2] = {
        {"[]", "the request body must be an object, not an array"},
        {"{\"count\": \"secret\"}", "count must be an integer, not a string"},
        {"{\"count\": 1, \"nested\": {\"detph\": 1, \"depth\": 1}}",
         "unknown parameter nested.detph; known are depth"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct error e = {0};
        struct sample s;
        struct json_reader r = {.style = &style, .e = &e};
        assert_int_equal(read_with(&r, &sample_table, cases[i][0], &s), STATUS_CORRUPT);
        assert_string_equal(e.text, cases[i][1]);
        json_table_free(&sample_table, &s);
    }
}

static void expect_no_json_bytes(struct text_span text, const char *words) {
    struct error e = {0};
    struct json *root;
    assert_int_equal(json_parse(&root, text, "x", &e), STATUS_INVALID);
    assert_null(root);
    assert_non_null(strstr(e.text, words));
}

static void expect_no_json(const char *text, const char *words) {
    expect_no_json_bytes(span(text), words);
}

static void test_hostile_text(void **state) {
    (void)state;
    struct error e = {0};
    struct json *root;
    expect_no_json("", "x:");
    expect_no_json("{\"a\": 1, \"a\": 2}", "duplicate");
    expect_no_json("{\"a\": 99999999999999999999}", "x:1:");
    expect_no_json("{\"a\\u0000b\": 1}", "NUL byte in object key");
    expect_no_json("\"text\"", "x:1:");
    expect_no_json("[1] 2", "x:1:");
    static const char after_number[] = "{\"a\":\n1.5\0}";
    expect_no_json_bytes((struct text_span){after_number, sizeof after_number - 1},
                         "x:2: not JSON: a NUL byte");
    char deep[2 * (JSON_DEPTH_LIMIT + 1) + 1] = "";
    memset(deep, '[', JSON_DEPTH_LIMIT + 1);
    memset(deep + JSON_DEPTH_LIMIT + 1, ']', JSON_DEPTH_LIMIT + 1);
    expect_no_json(deep, "nested deeper than 64 levels");
    struct text_span allowed = {deep + 1, 2 * JSON_DEPTH_LIMIT};
    assert_int_equal(json_parse(&root, allowed, "x", &e), STATUS_OK);
    json_close(root);
    assert_int_equal(json_count_values(span("[1,2,\"a,[\\\"{\",{}]")), 5);
}

/* Hugging Face writes 10^30 where nobody knows a limit, and Infinity; in a request such a number is
 * an error (above). */
static void test_numbers_of_files(void **state) {
    (void)state;
    struct error e = {0};
    struct json *root;
    static const char text[] =
        "{\"a\": 1000000000000000019884624838656, \"b\": [-1000000000000000000000, "
        "1234567890123456789e2],\n"
        "\"c\\\"1000000000000000000000\": 999999999999999999, \"d\": 0.1000000000000000000000, "
        "\"e\": [Infinity, -Infinity, NaN, \"Infinity\", {\"f\": -Infinity}]}";
    char path[] = "/tmp/retro-json-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, sizeof text - 1) == (ssize_t)(sizeof text - 1) &&
                close(fd) == 0);
    if (json_parse_file(&root, path, &e)) fail_msg("%s", e.text);
    unlink(path);
    assert_true(json_double(json_member(root, "a")) == 1e30);
    assert_true(json_double(json_item(json_member(root, "b"), 0)) == -1e21);
    assert_true(json_double(json_item(json_member(root, "b"), 1)) == 1234567890123456789e2);
    assert_int_equal(json_int(json_member(root, "c\"1000000000000000000000")), 999999999999999999);
    assert_true(json_double(json_member(root, "d")) == 0.1);
    const struct json *words = json_member(root, "e");
    assert_true(json_text_is(json_item(words, 0), "Infinity"));
    assert_true(json_text_is(json_item(words, 1), "-Infinity"));
    assert_true(json_text_is(json_item(words, 2), "NaN"));
    assert_true(json_text_is(json_item(words, 3), "Infinity"));
    assert_true(json_text_is(json_member(json_item(words, 4), "f"), "-Infinity"));
    json_close(root);
}

static void test_values(void **state) {
    (void)state;
    struct error e = {0};
    struct json *root;
    char shown[JSON_SHOWN_SIZE];
    assert_int_equal(
        json_parse(&root, span("{\"ab\": [1, 2.5, \"x\", null], \"c\": true}"), "x", &e),
        STATUS_OK);
    const struct json *list = json_member_n(root, (struct text_span){"abc", 2});
    assert_int_equal(json_count(list), 4);
    assert_int_equal(json_int(json_item(list, 0)), 1);
    assert_true(json_double(json_item(list, 0)) == 1 && json_double(json_item(list, 1)) == 2.5);
    assert_true(json_is_absent(json_item(list, 3)) && json_is_absent(json_item(list, 4)));
    assert_int_equal(json_kind(json_item(list, 4)), JSON_KIND_ABSENT);
    assert_string_equal(json_word(json_item(list, 2)), "x");
    assert_null(json_word(json_item(list, 1)));
    assert_null(json_text(json_member(json_item(root, 0), "no")).text);
    struct json_entry it = {0};
    assert_true(json_next(root, &it));
    assert_int_equal(it.name.size, 2);
    assert_true(json_next(root, &it));
    assert_true(json_bool(it.value));
    assert_false(json_next(root, &it));
    assert_string_equal(json_shown(json_item(list, 1), shown), "2.5");
    assert_string_equal(json_shown(list, shown), "a list");
    json_close(root);

    /* A long text is cut between characters. */
    char text[200] = "[\"x";
    for (int i = 0; i < 60; i++) strcat(text, "\xC3\xA9");
    strcat(text, "\"]");
    assert_int_equal(json_parse(&root, span(text), "x", &e), STATUS_OK);
    json_shown(json_item(root, 0), shown);
    assert_string_equal(shown + strlen(shown) - 6, "\xC3\xA9...\"");
    json_close(root);
}

struct sharer {
    int own;
    struct nested shared;
};

static const struct json_field sharer_fields[] = {
    {"own", JSON_INT, JSON_AT(struct sharer, own)},
    {.type = JSON_ROWS, JSON_AT(struct sharer, shared), .table = &nested_table},
};
static const struct json_table sharer_table = JSON_TABLE(sharer_fields);

/* Rows of another table are members of the same object, required ones too, and are named among the
 * known. */
static void test_rows_of_another_table(void **state) {
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"{\"own\": 3, \"depth\": 5}", NULL},
        {"{\"own\": 3}", "\"depth\" is missing"},
        {"{\"depth\": 10}", "\"depth\" is 10, allowed is 1 .. 9"},
        {"{\"depth\": 1, \"deptx\": 1}", "did you mean \"depth\""},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct error e = {0};
        struct json *root;
        struct sharer s = {0};
        struct json_reader r = {.e = &e};
        assert_int_equal(
            json_parse(&root, (struct text_span){cases[i].text, strlen(cases[i].text)}, "text", &e),
            0);
        enum status status = json_table_read(&r, &sharer_table, root, &s);
        assert_int_equal(status != STATUS_OK, cases[i].words != NULL);
        if (cases[i].words && strstr(e.text, cases[i].words) == NULL)
            fail_msg("%s: %s", cases[i].text, e.text);
        if (cases[i].words == NULL) assert_true(s.own == 3 && s.shared.depth == 5);
        json_close(root);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_another_table),
        cmocka_unit_test(test_all_types),
        cmocka_unit_test(test_absent_fields),
        cmocka_unit_test(test_fallbacks),
        cmocka_unit_test(test_wrong_values),
        cmocka_unit_test(test_nested_places),
        cmocka_unit_test(test_unknown_and_unsupported),
        cmocka_unit_test(test_style),
        cmocka_unit_test(test_hostile_text),
        cmocka_unit_test(test_numbers_of_files),
        cmocka_unit_test(test_values),
    };
    return cmocka_run_group_tests_name("json_table", tests, NULL, NULL);
}
