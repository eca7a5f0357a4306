/* tests/unit/test_milvus.c: what stands between a collection in Milvus and the network: addresses,
 * protobuf, answers, and filters as expressions. tests/http/test_milvus.py has the rest. */
#include <string.h>

#include "config/base/base64.h"
#include "retrieval/milvus/client/address.h"
#include "retrieval/milvus/client/answers.h"
#include "retrieval/milvus/labels.h"
#include "tests/folder.h"

static struct text_span span(const struct buffer *b) {
    return (struct text_span){b->data, b->size};
}

static void test_base64(void **state) {
    static const char *const texts[] = {"",         "Zg==",     "Zm8=",    "Zm9v",
                                        "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    struct buffer out = {0}, back = {0};
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        buffer_clear(&out);
        buffer_clear(&back);
        base64_encode((struct text_span){"foobar", i}, &out);
        assert_int_equal(out.size, strlen(texts[i]));
        assert_true(out.size == 0 || memcmp(out.data, texts[i], out.size) == 0);
        assert_true(base64_decode(span(&out), &back));
        assert_true(back.size == i && (i == 0 || memcmp(back.data, "foobar", i) == 0));
    }
    buffer_free(&out);
    buffer_free(&back);
}

static void test_addresses(void **state) {
    static const struct {
        const char *text, *server;
    } rows[] = {
        {"milvus://localhost/docs", "http://localhost:19530"},
        {"milvuss://db.example:443/docs", "https://db.example:443"},
        {"milvus://[::1]:1/docs", "http://[::1]:1"},
        {"milvus://[::1]/docs", "http://[::1]:19530"},
        {"milvus://::1/docs", NULL},
        {"milvus://h:0/docs", NULL},
        {"milvus://h:65536/docs", NULL},
        {"milvus://h:1x/docs", NULL},
        {"milvus://h/", NULL},
        {"milvus://h", NULL},
        {"milvus:///docs", NULL},
        {"milvus://h/9docs", NULL},
        {"milvus://h/a/b", NULL},
        {"milvus://a:b@h/docs", NULL},
        {"milvus://h\r\n/docs", NULL},
        {"http://h/docs", NULL},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct milvus_address address;
        struct error e = {0};
        enum status status = milvus_address_parse(&address, rows[i].text, &e);
        assert_int_equal(status, rows[i].server ? STATUS_OK : STATUS_INVALID);
        if (rows[i].server) assert_string_equal(address.server, rows[i].server);
        if (rows[i].server) assert_string_equal(address.collection, "docs");
    }
}

/* Status at field 1: code 3, old code 1, retriable 4. */
static enum status read_status(int old, int code, int retriable, bool *again) {
    struct buffer answer = {0};
    struct error e = {0};
    size_t status = wire_begin(&answer, 1);
    wire_put_int(&answer, 1, old);
    wire_put_string(&answer, 2, "words");
    wire_put_int(&answer, 3, code);
    wire_put_int(&answer, 4, retriable);
    wire_end(&answer, status);
    enum status result = answer_status_check(span(&answer), false, again, &e);
    buffer_free(&answer);
    return result;
}

static void test_status(void **state) {
    bool again;
    (void)state;
    assert_int_equal(read_status(0, 0, 0, &again), STATUS_OK);
    assert_int_equal(read_status(4, 100, 0, &again), STATUS_NOT_FOUND);
    assert_int_equal(read_status(4, 0, 0, &again), STATUS_NOT_FOUND);
    assert_int_equal(read_status(1, 65535, 0, &again), STATUS_BUSY);
    assert_false(again);
    assert_int_equal(read_status(49, 8, 0, &again), STATUS_BUSY);
    assert_true(again);
    assert_int_equal(read_status(1, 503, 1, &again), STATUS_BUSY);
    assert_true(again);
}

static void put_column(struct buffer *out, int field, const char *name, bool is_text, int n) {
    size_t column = wire_begin(out, field);
    wire_put_string(out, 2, name);
    size_t scalars = wire_begin(out, 3), list = wire_begin(out, is_text ? 6 : 3);
    size_t packed = is_text ? 0 : wire_begin(out, 1);
    for (int i = 0; i < n; i++) {
        if (is_text)
            wire_put_item(out, 1, (struct text_span){"abcdef", (size_t)i});
        else
            wire_put_packed(out, -i);
    }
    if (!is_text) wire_end(out, packed);
    wire_end(out, list);
    wire_end(out, scalars);
    wire_end(out, column);
}

static void test_rows(void **state) {
    struct buffer answer = {0};
    struct error e = {0};
    struct answer_rows rows;
    const struct text_span *texts;
    const int64_t *numbers;
    (void)state;
    put_column(&answer, 2, "text", true, 5);
    put_column(&answer, 2, "number", false, 5);
    assert_int_equal(answer_rows_read(&rows, span(&answer), &e), STATUS_OK);
    assert_int_equal(rows.n, 5);
    assert_int_equal(answer_texts(&rows, "text", &texts, &e), STATUS_OK);
    assert_int_equal(answer_numbers(&rows, "number", &numbers, &e), STATUS_OK);
    assert_int_equal(texts[4].size, 4);
    assert_int_equal(numbers[4], -4);
    assert_int_equal(answer_texts(&rows, "number", &texts, &e), STATUS_CORRUPT);
    assert_int_equal(answer_numbers(&rows, "gone", &numbers, &e), STATUS_CORRUPT);
    answer_rows_free(&rows);

    /* Cut off anywhere it is broken, or has fewer columns, and is never read beyond its end. */
    for (size_t size = 0; size < answer.size; size++) {
        char *copy = xmalloc(size + 1);
        memcpy(copy, answer.data, size);
        enum status status = answer_rows_read(&rows, (struct text_span){copy, size}, &e);
        assert_true(status == STATUS_CORRUPT || rows.n_columns < 2);
        answer_rows_free(&rows);
        free(copy);
    }
    put_column(&answer, 2, "short", true, 4);
    assert_int_equal(answer_rows_read(&rows, span(&answer), &e), STATUS_CORRUPT);
    answer_rows_free(&rows);
    buffer_free(&answer);
}

/* Hits of two queries, with so many of each. */
static enum status read_hits(int first, int second, int n_rows, int n_scores) {
    static const float scores[8] = {0};
    struct buffer answer = {0};
    struct error e = {0};
    struct answer_hits hits;
    size_t results = wire_begin(&answer, 2);
    put_column(&answer, 3, "chunk", false, n_rows);
    wire_put_bytes(&answer, 4,
                   (struct text_span){(const char *)scores, (size_t)n_scores * sizeof *scores});
    size_t counts = wire_begin(&answer, 6);
    wire_put_packed(&answer, first);
    wire_put_packed(&answer, second);
    wire_end(&answer, counts);
    wire_end(&answer, results);
    enum status status = answer_hits_read(&hits, span(&answer), 2, &e);
    answer_hits_free(&hits);
    buffer_free(&answer);
    return status;
}

static void test_hits(void **state) {
    (void)state;
    assert_int_equal(read_hits(2, 1, 3, 3), STATUS_OK);
    assert_int_equal(read_hits(0, 3, 3, 3), STATUS_OK);
    assert_int_equal(read_hits(2, 2, 3, 3), STATUS_CORRUPT);
    assert_int_equal(read_hits(4, -1, 3, 3), STATUS_CORRUPT);
    assert_int_equal(read_hits(2, 1, 3, 2), STATUS_CORRUPT);
    assert_int_equal(read_hits(1, 1, 3, 3), STATUS_CORRUPT);
}

/* Nothing that a user wrote stands in an expression. */
static void test_expressions(void **state) {
    static const char two_ways[] =
        "{\"or\": [{\"in\": {\"z\": [1, true, \"zz\"]}}, "
        "{\"and\": [{\"eq\": {\"id\": \"zz\"}}]}]}";
    static const char *const filters[] = {
        "{\"eq\": {\"a\\\" || chunk >= 0\": \"x\\\"y\"}}", "{\"prefix\": {\"path\": \"zap\\\"\"}}",
        "{\"not\": {\"range\": {\"z\": {\"gte\": 1, \"lt\": 2.5}}}}",
        "{\"range\": {\"z\": {\"gt\": \"2024-01-01\"}}}", two_ways};
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(filters); i++) {
        struct buffer out = {0};
        struct error e = {0};
        struct filter *filter;
        assert_int_equal(filter_parse(&filter, filters[i], "filter", &e), STATUS_OK);
        labels_express(&out, filter);
        assert_null(strchr(out.data, 'z'));
        assert_null(strstr(out.data, "x\\"));
        filter_release(filter);
        buffer_free(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base64), cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_status), cmocka_unit_test(test_rows),
        cmocka_unit_test(test_hits),   cmocka_unit_test(test_expressions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
