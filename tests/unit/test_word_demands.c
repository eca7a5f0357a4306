/* tests/unit/test_word_demands.c: queries with operators: how they are read, what a text must have,
 * and what is refused however many documents there are. */
#include <stdlib.h>
#include <string.h>

#include "retrieval/words/word_demands.h"
#include "tests/folder.h"

static struct word_demands *parse(const char *query) {
    struct word_demands *demands;
    struct error e;
    if (word_demands_parse(&demands, (struct text_span){query, strlen(query)}, &e))
        fail_msg("%s: %s", query, e.text);
    return demands;
}

static void expect_read(const char *query, const char *text, const char *sought, int n,
                        int n_prefixes) {
    struct word_demands *demands = parse(query);
    assert_string_equal(demands->text.data, text);
    assert_string_equal(demands->sought.data, sought);
    assert_int_equal(demands->n, n);
    assert_int_equal(demands->n_prefixes, n_prefixes);
    word_demands_free(demands);
}

static void test_reading(void **state) {
    (void)state;
    expect_read("one two", "one two ", "one two ", 0, 0);
    expect_read("\"one two\" three", "one two three ", "one two three ", 1, 0);
    expect_read("one -two -\"three four\"", "one ", "one ", 2, 0);
    expect_read("one retriev*", "one retriev ", "one ", 0, 1);
    expect_read("well-known - a -- b", "well-known - a b ", "well-known - a b ", 0, 0);
    expect_read("\"\" one \"...\"", "one ... ", "one ... ", 0, 0);
    expect_read("2 * 3 ok", "2 * 3 ok ", "2 * 3 ok ", 0, 0);
    expect_read("one\"two three\"", "one two three ", "one two three ", 1, 0);
    struct word_demands *demands = parse("-pthread_create x files*");
    assert_int_equal(demands->list[0].n, 3);
    assert_int_equal(demands->list[0].places[1], 1);
    assert_int_equal(demands->list[0].places[2], 1);
    assert_int_equal(demands->prefixes[0].size, 4);
    word_demands_free(demands);
}

static void expect_refused(const char *query, const char *message) {
    struct word_demands *demands = NULL;
    struct error e = {0};
    assert_int_equal(word_demands_parse(&demands, (struct text_span){query, strlen(query)}, &e),
                     STATUS_INVALID);
    if (strstr(e.text, message) == NULL) fail_msg("\"%s\" does not say \"%s\"", e.text, message);
}

static void test_refused(void **state) {
    struct buffer many = {0};
    (void)state;
    expect_refused("one \"two", "without its end");
    expect_refused("-one", "no word that is sought");
    expect_refused("", "no word that is sought");
    expect_refused("a*", "two characters");
    expect_refused("aa* bb* cc* dd* ee*", "more than 4");
    expect_refused("x -a -b -c -d -e -f -g -h -i", "more than 8");
    expect_refused("\"a b c d e f g h i j k l m n o p q\"", "more than 16");
    for (int i = 0; i < 10000; i++) buffer_printf(&many, "-word%d ", i);
    expect_refused(many.data, "more than 8");
    buffer_free(&many);
}

static void expect_allowed(const char *query, const char *text, bool allowed) {
    struct word_demands *demands = parse(query);
    if (word_demands_allow(demands, (struct text_span){text, strlen(text)}) != allowed)
        fail_msg("%s in \"%s\": expected %d", query, text, allowed);
    word_demands_free(demands);
}

static void test_allowing(void **state) {
    (void)state;
    expect_allowed("\"one two\"", "zero ONE, two three", true);
    expect_allowed("\"one two\"", "two one", false);
    expect_allowed("\"one two\"", "one and two", false);
    expect_allowed("\"one one two\"", "one one one two", true);
    expect_allowed("\"call pthread_create now\"", "call pthread_create now", true);
    expect_allowed("\"create now\"", "call pthread_create now", true);
    expect_allowed("\"call pthread\"", "call pthread_create now", true);
    expect_allowed("\"pthread now\"", "call pthread_create now", false);
    expect_allowed("x -two", "one two", false);
    expect_allowed("x -two", "one three", true);
    expect_allowed("x -\"one two\"", "one three two", true);
    expect_allowed("x -foo-bar", "foo baz bar", true);
    expect_allowed("x -foo-bar", "a foo bar", false);
    expect_allowed("x two*", "", true);
    expect_allowed("\"one\"", "", false);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reading),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_allowing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
