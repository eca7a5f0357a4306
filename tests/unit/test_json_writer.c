/* tests/unit/test_json_writer.c: the JSON writer against what the parser reads back, and the
 * numbers JSON cannot hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "config/base/text.h"
#include "config/json/json_raw.h"
#include "config/json/json_value.h"
#include "config/json/json_writer.h"

static void test_nesting(void **state) {
    (void)state;
    struct buffer out = {0};
    struct json_writer w;
    put_begin(&w, &out);
    put_object(&w);
    put_key_array(&w, "a");
    put_int(&w, -3);
    put_null(&w);
    put_array(&w);
    put_array_end(&w);
    put_object(&w);
    put_object_end(&w);
    put_array_end(&w);
    put_key_string(&w, "b", "x");
    put_key_int(&w, "c", INT64_MAX);
    put_key_float(&w, "d", 0.5f);
    put_key_object(&w, "e");
    put_key_string(&w, "f", NULL);
    put_key_string_n(&w, "g", NULL, 0);
    put_object_end(&w);
    put_object_end(&w);
    assert_string_equal(out.data,
                        "{\"a\":[-3,null,[],{}],\"b\":\"x\",\"c\":9223372036854775807,\"d\":0.5,"
                        "\"e\":{\"f\":null,\"g\":\"\"}}");
    buffer_free(&out);
}

/* Writes the bytes as one string and reads them back with the parser. */
static void expect_bytes(const char *bytes, size_t size, const char *expected,
                         size_t expected_size) {
    struct buffer out = {0};
    struct json_writer w;
    struct error e;
    struct json *list;
    put_begin(&w, &out);
    put_array(&w);
    put_string_n(&w, bytes, size);
    put_array_end(&w);
    assert_int_equal(json_parse(&list, (struct text_span){out.data, out.size}, "test", &e),
                     STATUS_OK);
    struct text_span text = json_text(json_item(list, 0));
    assert_int_equal(text.size, expected_size);
    assert_memory_equal(text.text, expected, expected_size);
    json_close(list);
    buffer_free(&out);
}

static void test_strings(void **state) {
    (void)state;
    static const char same[] =
        "\"\\/\b\f\n\r\t\x01\x1f\x7f plain \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80 \xF4\x8F\xBF\xBF";
    expect_bytes(same, sizeof same, same, sizeof same); /* the NUL at its end too */
    expect_bytes("", 0, "", 0);
}

static void test_invalid_utf8(void **state) {
    (void)state;
#define BAD "\xEF\xBF\xBD"
    expect_bytes("a\xFF", 2, "a" BAD, 4);
    expect_bytes("\xE2\x82", 2, BAD BAD, 6);                  /* cut */
    expect_bytes("\xC0\xAF", 2, BAD BAD, 6);                  /* overlong */
    expect_bytes("\xED\xA0\x80", 3, BAD BAD BAD, 9);          /* surrogate */
    expect_bytes("\xF4\x90\x80\x80", 4, BAD BAD BAD BAD, 12); /* beyond U+10FFFF */
    expect_bytes("\x80z", 2, BAD "z", 4);
}

static float written_float(float v, char *text, size_t size) {
    struct buffer out = {0};
    struct json_writer w;
    put_begin(&w, &out);
    put_float(&w, v);
    snprintf(text, size, "%s", out.data);
    buffer_free(&out);
    return strtof(text, NULL);
}

static void test_floats(void **state) {
    (void)state;
    char text[64];
    written_float(NAN, text, sizeof text);
    assert_string_equal(text, "null");
    written_float(-INFINITY, text, sizeof text);
    assert_string_equal(text, "-9999");
    written_float(INFINITY, text, sizeof text);
    assert_string_equal(text, "9999");
    written_float(-0.1f, text, sizeof text);
    assert_string_equal(text, "-0.1");
    /* Every float reads back as itself, whatever its bits. */
    uint32_t bits = 12345;
    for (int i = 0; i < 200000; i++) {
        bits = bits * 1664525u + 1013904223u;
        float v, back;
        memcpy(&v, &bits, sizeof v);
        if (!isfinite(v)) continue;
        back = written_float(v, text, sizeof text);
        assert_memory_equal(&v, &back, sizeof v);
    }
}

/* An unnoticed NaN must not shorten an array: clients index into it. */
static void test_nan_keeps_its_place(void **state) {
    (void)state;
    struct buffer out = {0};
    struct json_writer w;
    put_begin(&w, &out);
    put_array(&w);
    put_float(&w, 1);
    put_float(&w, NAN);
    put_float(&w, 2);
    put_array_end(&w);
    assert_string_equal(out.data, "[1,null,2]");
    buffer_free(&out);
}

static void put_sample(struct json_writer *w) {
    put_object(w);
    put_key_array(w, "a");
    put_int(w, 1);
    put_object(w);
    put_object_end(w);
    put_array_end(w);
    put_key_object(w, "b");
    put_key(w, "c");
    put_object_line(w);
    put_key_bool(w, "d", true);
    put_key_array(w, "e");
    put_double(w, 2);
    put_double(w, 1e300);
    put_array_end(w);
    put_object_end(w);
    put_key_hex(w, "f", 0xABC);
    put_object_end(w);
    put_key_array(w, "g");
    put_rounded(w, 2.0 / 3, 3);
    put_rounded(w, INFINITY, 3);
    put_array_end(w);
    put_object_end(w);
}

static void test_layouts(void **state) {
    (void)state;
    struct buffer out = {0};
    struct json_writer w;
    put_begin(&w, &out);
    put_sample(&w);
    assert_string_equal(out.data,
                        "{\"a\":[1,{}],\"b\":{\"c\":{\"d\":true,\"e\":[2.0,1e+300]},"
                        "\"f\":\"0000000000000abc\"},\"g\":[0.667,null]}");
    buffer_clear(&out);
    put_begin_spaced(&w, &out);
    put_sample(&w);
    assert_string_equal(out.data,
                        "{\"a\": [1, {}], \"b\": {\"c\": {\"d\": true, \"e\": [2.0, 1e+300]}, "
                        "\"f\": \"0000000000000abc\"}, \"g\": [0.667, null]}");
    buffer_clear(&out);
    put_begin_indented(&w, &out, 2);
    put_sample(&w);
    assert_string_equal(
        out.data,
        "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": {\n"
        "    \"c\": {\"d\": true, \"e\": [2.0, 1e+300]},\n    \"f\": \"0000000000000abc\"\n  },\n"
        "  \"g\": [\n    0.667,\n    null\n  ]\n}");
    buffer_free(&out);
}

/* Lines into a file, one document after the other. */
static void test_lines(void **state) {
    (void)state;
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    struct buffer out = {0};
    struct json_writer w;
    put_begin(&w, &out);
    for (int i = 0; i < 2; i++) {
        put_array(&w);
        put_int(&w, i);
        put_array_end(&w);
        put_line(&w, file);
        assert_int_equal(out.size, 0);
    }
    fclose(file);
    assert_string_equal(text, "[0]\n[1]\n");
    free(text);
    buffer_free(&out);
}

static void put_levels(struct buffer *out, int n) {
    for (int i = 0; i < n; i++) buffer_append_string(out, "[");
    for (int i = 0; i < n; i++) buffer_append_string(out, "]");
}

/* All that the parser lets in is written again within levels of our own. */
static void test_levels(void **state) {
    (void)state;
    struct buffer text = {0}, out = {0}, wanted = {0};
    struct json_writer w;
    struct error e;
    struct json *json;
    put_levels(&text, JSON_DEPTH_LIMIT);
    assert_int_equal(json_parse(&json, (struct text_span){text.data, text.size}, "test", &e),
                     STATUS_OK);
    put_begin(&w, &out);
    for (int i = 0; i < JSON_DEPTH_LIMIT; i++) put_array(&w);
    put_json(&w, json);
    for (int i = 0; i < JSON_DEPTH_LIMIT; i++) put_array_end(&w);
    put_levels(&wanted, 2 * JSON_DEPTH_LIMIT);
    assert_int_equal(out.size, wanted.size);
    assert_memory_equal(out.data, wanted.data, wanted.size);
    json_close(json);
    buffer_free(&text);
    buffer_free(&out);
    buffer_free(&wanted);
}

static struct text_span span_of(const char *text) { return (struct text_span){text, strlen(text)}; }

/* Numbers of any size and doubled names are JSON; what is none stays none. */
static void test_check(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum json_kind kind;
    } cases[] = {
        {"123456789012345678901", JSON_KIND_INT},
        {"-9223372036854775809", JSON_KIND_INT},
        {"1e99999", JSON_KIND_REAL},
        {"-12345678901234567890.5E-99999", JSON_KIND_REAL},
        {"{\"a\": 1, \"a\": [1e999]}", JSON_KIND_OBJECT},
        {" \"\\\"0123456789\" ", JSON_KIND_TEXT},
        {"null", JSON_KIND_NULL},
        {"0123456789", JSON_KIND_ABSENT},
        {"1.", JSON_KIND_ABSENT},
        {"1e", JSON_KIND_ABSENT},
        {"--1", JSON_KIND_ABSENT},
        {"[1, 2", JSON_KIND_ABSENT},
        {"{\"a\": 1} x", JSON_KIND_ABSENT},
        {"\"\x01\"", JSON_KIND_ABSENT},
        {"\"\xff\"", JSON_KIND_ABSENT},
        {"", JSON_KIND_ABSENT},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        if (json_check(span_of(cases[i].text)) != cases[i].kind) fail_msg("%s", cases[i].text);
    for (int depth = JSON_DEPTH_LIMIT; depth <= JSON_DEPTH_LIMIT + 1; depth++) {
        struct buffer text = {0};
        put_levels(&text, depth);
        assert_int_equal(json_check((struct text_span){text.data, text.size}),
                         depth > JSON_DEPTH_LIMIT ? JSON_KIND_ABSENT : JSON_KIND_LIST);
        buffer_free(&text);
    }
}

static void test_walk(void **state) {
    (void)state;
    static const char text[] =
        " { \"a\" : [1, {\"b\":\"}\\\"\"}], \"\\u0061\":-1e999 ,\"c\":null}\n";
    static const char *const names[] = {"a", "a", "c"}, *const values[] = {"[1, {\"b\":\"}\\\"\"}]",
                                                                           "-1e999", "null"};
    struct json_walk walk = json_walk_begin(span_of(text));
    struct text_span name, value;
    struct buffer out = {0};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        assert_true(json_walk_next(&walk, &name, &value));
        assert_true(json_token_is(name, names[i]));
        assert_true(span_is(value, values[i]));
    }
    assert_false(json_walk_next(&walk, &name, &value));
    walk = json_walk_begin(span_of(" [] "));
    assert_false(json_walk_next(&walk, &name, &value));
    walk = json_walk_begin(span_of("12"));
    assert_false(json_walk_next(&walk, &name, &value));
    json_respace(span_of(text), &out);
    buffer_append(&out, "", 1);
    assert_string_equal(out.data,
                        "{\"a\": [1, {\"b\": \"}\\\"\"}], \"\\u0061\": -1e999, \"c\": null}");
    buffer_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),  cmocka_unit_test(test_check),
        cmocka_unit_test(test_walk),    cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_strings), cmocka_unit_test(test_invalid_utf8),
        cmocka_unit_test(test_floats),  cmocka_unit_test(test_nan_keeps_its_place),
        cmocka_unit_test(test_layouts), cmocka_unit_test(test_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
