/* tests/unit/test_base.c: errors, checked arithmetic, the growing buffer and array, limits of
 * file_read, maps, JSON lines. */
#include <errno.h>
#include <string.h>

#include "config/base/data_url.h"
#include "config/base/line.h"
#include "config/base/sha256.h"
#include "config/base/utf8.h"
#include "config/json/json_value.h"
#include "tests/folder.h"

static void test_error_set(void **state) {
    (void)state;
    struct error e = {0};
    assert_int_equal(error_set(&e, STATUS_INVALID, "%s is %d", "k", 7), STATUS_INVALID);
    assert_int_equal(e.status, STATUS_INVALID);
    assert_string_equal(e.text, "k is 7");
    assert_int_equal(error_set(NULL, STATUS_BUSY, "nobody listens"), STATUS_BUSY);
    char longer[sizeof e.text + 1];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    error_set(&e, STATUS_CORRUPT, "%s", longer);
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
}

static void test_error_errno(void **state) {
    (void)state;
    struct error e = {0};
    errno = ENOENT;
    assert_int_equal(error_errno(&e, "open %s", "x"), STATUS_IO);
    assert_string_equal(e.text, "open x: No such file or directory");
    errno = ENOMEM;
    assert_int_equal(error_errno(&e, "map"), STATUS_NO_MEMORY);
    errno = EACCES;
    assert_int_equal(error_errno(NULL, "map"), STATUS_IO);
}

static void test_error_prefix(void **state) {
    (void)state;
    struct error e = {0};
    error_set(&e, STATUS_TOO_LARGE, "inner");
    assert_int_equal(error_prefix(&e, "outer %d", 1), STATUS_TOO_LARGE);
    assert_string_equal(e.text, "outer 1: inner");
    char longer[sizeof e.text + 1];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    error_prefix(&e, "%s", longer); /* the prefix alone fills the text: it is cut, not overrun */
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
    error_prefix(&e, "again");
    assert_memory_equal(e.text, "again: xxx", 10);
    assert_true(strlen(e.text) < sizeof e.text);
}

static void test_utf8(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        int length;
    } cases[] = {{"a", 1},
                 {"\xc2\x80", 2},
                 {"\xc1\xbf", 0},
                 {"\xe0\xa0\x80", 3},
                 {"\xe0\x9f\xbf", 0},
                 {"\xed\x9f\xbf", 3},
                 {"\xed\xa0\x80", 0},
                 {"\xf0\x90\x80\x80", 4},
                 {"\xf0\x8f\xbf\xbf", 0},
                 {"\xf4\x8f\xbf\xbf", 4},
                 {"\xf4\x90\x80\x80", 0},
                 {"\xf5\x80\x80\x80", 0},
                 {"\x80", 0},
                 {"\xe2\x82", 0}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        size_t n = strlen(cases[i].bytes);
        assert_int_equal(utf8_length(cases[i].bytes, n), cases[i].length);
        assert_int_equal(utf8_is_valid(cases[i].bytes, n), cases[i].length > 0);
    }
    assert_true(utf8_is_valid("a\xe2\x82\xac", 4));
    assert_false(utf8_is_valid("a\xe2\x82", 3));
    assert_true(utf8_is_valid(NULL, 0));
}

static void test_line_escape(void **state) {
    (void)state;
    static const struct {
        const char *text, *escaped;
    } cases[] = {{"plain, na\xc3\xafve \xf0\x9f\x90\x88 \"%s\"",
                  "plain, na\xc3\xafve \xf0\x9f\x90\x88 \"%s\""},
                 {"a\nb\tc\rd", "a\\nb\\tc\\rd"},
                 {"\x1b[31mred\a\x7f", "\\x1b[31mred\\x07\\x7f"},
                 {"\xc2\x9b"
                  "31m\xc2\xa0",
                  "\\xc2\\x9b"
                  "31m\xc2\xa0"},
                 {"a\xe2\x80\xaetxt.exe", "a\\xe2\\x80\\xaetxt.exe"},
                 {"\xd8\x9c\xe2\x80\x8f\xe2\x81\xa6\xe2\x80\xa8",
                  "\\xd8\\x9c\\xe2\\x80\\x8f\\xe2\\x81\\xa6\\xe2\\x80\\xa8"},
                 {"\xe2\x80\x8d\xe2\x80\xaf", "\xe2\x80\x8d\xe2\x80\xaf"},
                 {"\\x1b", "\\\\x1b"},
                 {"\xff.txt \xe2\x82", "\\xff.txt \\xe2\\x82"},
                 {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
                 {"", ""}};
    struct buffer b = {0};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        buffer_clear(&b);
        line_escape(&b, cases[i].text, strlen(cases[i].text));
        assert_string_equal(b.data ? b.data : "", cases[i].escaped);
    }
    buffer_clear(&b);
    line_escape(&b, "a\0b", 3);
    assert_string_equal(b.data, "a\\x00b");
    buffer_free(&b);
}

static void test_overflow(void **state) {
    (void)state;
    size_t n;
    assert_false(mul_overflows(SIZE_MAX / 2, 2, &n));
    assert_true(n == SIZE_MAX - 1);
    assert_true(mul_overflows(SIZE_MAX / 2 + 1, 2, &n));
    assert_false(mul_overflows(SIZE_MAX, 0, &n));
    assert_int_equal(n, 0);
    assert_false(add_overflows(SIZE_MAX, 0, &n));
    assert_true(add_overflows(SIZE_MAX, 1, &n));
}

static void test_buffer(void **state) {
    (void)state;
    struct buffer b = {0};
    buffer_clear(&b);
    assert_null(b.data);
    buffer_append(&b, NULL, 0);
    assert_string_equal(b.data, "");
    for (int i = 0; i < 1000; i++) buffer_printf(&b, "%03d,", i);
    assert_int_equal(b.size, 4000);
    assert_true(b.capacity > b.size);
    assert_memory_equal(b.data, "000,001,002,", 12);
    assert_string_equal(b.data + 3996, "999,");
    size_t capacity = b.capacity;
    buffer_clear(&b);
    assert_string_equal(b.data, "");
    assert_int_equal(b.capacity, capacity);
    buffer_append(&b, "a\0b", 3);
    buffer_append_string(&b, "c");
    assert_int_equal(b.size, 4);
    assert_memory_equal(b.data, "a\0bc", 5);
    buffer_free(&b);
    assert_null(b.data);
    assert_int_equal(b.size, 0);
}

/* Sizes around the powers of two at which the buffer grows: the NUL must always fit. */
static void test_buffer_growth(void **state) {
    (void)state;
    char bytes[600];
    memset(bytes, 'x', sizeof bytes);
    for (size_t n = 0; n < sizeof bytes; n++) {
        struct buffer b = {0};
        buffer_append(&b, bytes, n);
        assert_int_equal(strlen(b.data), n);
        assert_true(b.capacity >= n + 1);
        buffer_free(&b);
    }
}

static void test_array_growth(void **state) {
    (void)state;
    int *items = NULL, n = 0, capacity = 0, moves = 0;
    for (; n < 1000; n++) {
        int before = capacity;
        items = xgrow(items, n, &capacity, sizeof *items);
        assert_true(capacity > n);
        moves += capacity != before;
        items[n] = n;
    }
    assert_in_range(moves, 2, 10);
    for (int i = 0; i < n; i++) assert_int_equal(items[i], i);
    free(items);
}

static const char *path_of(const char *name) {
    static char path[FOLDER_PATH_SIZE];
    folder_path(path, test_folder, name);
    return path;
}

static void write_file(const char *path, size_t size) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < size; i++) fputc((int)(i % 251), f);
    assert_int_equal(fclose(f), 0);
}

static void expect_name(const char *path, const char *name) {
    char *found = path_name(path);
    assert_string_equal(found, name);
    free(found);
}

static void test_path_name(void **state) {
    (void)state;
    expect_name("docs", "docs");
    expect_name("/usr/share/docs", "docs");
    expect_name("share/docs//", "docs");
    expect_name("/", "");
    char *here = getcwd(NULL, 0);
    expect_name(".", strrchr(here, '/') + 1);
    expect_name("./", strrchr(here, '/') + 1);
    free(here);
    expect_name("/usr/share/..", "usr");
}

static void test_file_read(void **state) {
    (void)state;
    const char *path = path_of("file");
    struct buffer b = {0};
    struct error e = {0};
    static const size_t sizes[] = {0, 1, 65535, 65536, 65537, 200000};
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        size_t n = sizes[i];
        write_file(path, n);
        assert_int_equal(file_read(path, n, &b, &e), STATUS_OK);
        assert_int_equal(b.size, n);
        for (size_t j = 0; j < n; j++) assert_int_equal((uint8_t)b.data[j], j % 251);
        assert_int_equal(b.data[n], '\0');
        if (n == 0) continue;
        assert_int_equal(file_read(path, n - 1, &b, &e), STATUS_TOO_LARGE);
        assert_non_null(strstr(e.text, path));
    }
    buffer_free(&b);
}

/* A pipe would block and /dev/zero never ends: only regular files are read. */
static void test_irregular(void **state) {
    (void)state;
    struct buffer b = {0};
    struct file_map m;
    struct error e = {0};
    assert_int_equal(file_read(test_folder, 100, &b, &e), STATUS_INVALID);
    assert_int_equal(file_read("/dev/zero", 100, &b, &e), STATUS_INVALID);
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    assert_int_equal(file_read(path_of("pipe"), 100, &b, &e), STATUS_INVALID);
    assert_int_equal(file_map_open(&m, path_of("pipe"), &e), STATUS_INVALID);
    assert_int_equal(file_read(path_of("absent"), 100, &b, &e), STATUS_IO);
    assert_non_null(strstr(e.text, "No such file"));
    /* Files under /proc say they hold 0 bytes; the limit counts what is read. */
    assert_int_equal(file_read("/proc/self/status", 1 << 20, &b, &e), STATUS_OK);
    assert_true(b.size > 0);
    assert_int_equal(file_read("/proc/self/status", 10, &b, &e), STATUS_TOO_LARGE);
    buffer_free(&b);
}

static void test_map(void **state) {
    (void)state;
    const char *path = path_of("file");
    struct file_map m;
    struct error e = {0};
    write_file(path, 5000);
    assert_int_equal(file_map_open(&m, path, &e), STATUS_OK);
    assert_int_equal(m.size, 5000);
    for (size_t j = 0; j < m.size; j++) assert_int_equal(m.data[j], j % 251);
    file_map_close(&m);
    assert_null(m.data);
    file_map_close(&m);
    write_file(path, 0);
    assert_int_equal(file_map_open(&m, path, &e), STATUS_OK);
    assert_null(m.data);
    assert_int_equal(m.size, 0);
    file_map_close(&m);
    assert_int_equal(file_map_open(&m, path_of("absent"), &e), STATUS_IO);
}

static enum status add_number(void *context, const struct json *record, struct error *e) {
    const struct json *number = json_member(record, "n");
    if (json_kind(number) != JSON_KIND_INT) return error_set(e, STATUS_INVALID, "no number");
    *(int *)context += (int)json_int(number);
    return STATUS_OK;
}

static void test_json_lines(void **state) {
    (void)state;
    static const struct {
        const char *text, *error;
        int sum;
    } cases[] = {{"", NULL, 0},
                 {"{\"n\": 1}\n\n{\"n\": 2}", NULL, 3},
                 {"{\"n\": 1}\n{\"m\": 2}\n{\"n\": 4}\n", "/lines:2: no number", 1},
                 {"\n{\n", "/lines:2:", 0}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        int sum = 0;
        struct error e = {0};
        folder_write(test_folder, "lines", cases[i].text, strlen(cases[i].text));
        enum status status = json_parse_lines(path_of("lines"), add_number, &sum, &e);
        assert_int_equal(status, cases[i].error ? STATUS_INVALID : STATUS_OK);
        if (cases[i].error) assert_non_null(strstr(e.text, cases[i].error));
        assert_int_equal(sum, cases[i].sum);
    }
}

static void check_data_url(const char *url, const char *type, const char *data, size_t size) {
    struct buffer bytes = {0};
    struct text_span found;
    struct error e = {0};
    if (data_url_read(&bytes, &found, (struct text_span){url, strlen(url)}, 3000, &e))
        fail_msg("%s: %s", url, e.text);
    assert_int_equal(found.size, strlen(type));
    assert_memory_equal(found.text, type, found.size);
    assert_int_equal(bytes.size, size);
    if (size > 0) assert_memory_equal(bytes.data, data, size);
    buffer_free(&bytes);
}

static void refuse_data_url(const char *url, size_t limit, enum status status, const char *words) {
    struct buffer bytes = {0};
    struct text_span type;
    struct error e = {0};
    assert_int_equal(data_url_read(&bytes, &type, (struct text_span){url, strlen(url)}, limit, &e),
                     status);
    if (strstr(e.text, words) == NULL) fail_msg("expected \"%s\" in: %s", words, e.text);
    buffer_free(&bytes);
}

static void test_data_url(void **state) {
    (void)state;
    check_data_url("data:image/png;base64,AAH+/w==", "image/png", "\0\x01\xFE\xFF", 4);
    check_data_url("DATA:image/png;name=x;BASE64,AA H%2B\n/w", "image/png", "\0\x01\xFE\xFF", 4);
    check_data_url("data:text/html;charset=utf-8,<p>#top", "text/html", "<p>", 3);
    check_data_url("data:;base64,TWE=", "text/plain", "Ma", 2);
    check_data_url("data:;base64,TWFu", "text/plain", "Man", 3);
    check_data_url("data:,a%20b%zz%4", "text/plain", "a b%zz%4", 8);
    check_data_url("data:;base64,AA=", "text/plain", "", 1);
    check_data_url("data:;base64,", "text/plain", "", 0);

    char url[4100] = "data:;base64,", data[3000] = {0};
    memset(url + 13, 'A', 4000);
    check_data_url(url, "text/plain", data, 3000);
    refuse_data_url(url, 2999, STATUS_TOO_LARGE, "more than 2999 bytes");
    refuse_data_url("data:,abc", 2, STATUS_TOO_LARGE, "more than 2 bytes");
    refuse_data_url("http://host/x.png", 9, STATUS_INVALID, "data:");
    refuse_data_url("data:image/png;base64", 9, STATUS_INVALID, "no comma");
    refuse_data_url("data:;base64,AA_A", 9, STATUS_INVALID, "no base64");
    refuse_data_url("data:;base64,AA==A", 9, STATUS_INVALID, "no base64");
    refuse_data_url("data:;base64,AAAAA", 9, STATUS_INVALID, "no base64");
}

/* RFC 4231, test case 2. */
static void test_authentication(void **state) {
    (void)state;
    static const uint8_t expected[SHA256_BYTES] = {0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e,
                                                   0x6a, 0x04, 0x24, 0x26, 0x08, 0x95, 0x75, 0xc7,
                                                   0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27, 0x39, 0x83,
                                                   0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43};
    const struct text_span parts[] = {{"what do ya want ", 16}, {"for nothing?", 12}};
    uint8_t code[SHA256_BYTES];
    sha256_authenticate((struct text_span){"Jefe", 4}, parts, 2, code);
    assert_memory_equal(code, expected, sizeof code);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_authentication),
        cmocka_unit_test(test_error_set),
        cmocka_unit_test(test_error_errno),
        cmocka_unit_test(test_error_prefix),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_line_escape),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_buffer),
        cmocka_unit_test(test_buffer_growth),
        cmocka_unit_test(test_path_name),
        cmocka_unit_test(test_file_read),
        cmocka_unit_test(test_irregular),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_array_growth),
        cmocka_unit_test(test_json_lines),
        cmocka_unit_test(test_data_url),
    };
    return cmocka_run_group_tests(tests, folder_set_up, folder_tear_down);
}
