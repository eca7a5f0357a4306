/* tests/unit/test_sentences.c: where sentences begin and end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/text/sentences.h"

/* The sentences of a text, a bar between two. */
static void expect(const char *source, const char *expected) {
    struct text_span text = {source, strlen(source)};
    struct buffer found = {0};
    struct sentence sentence;
    size_t at = 0;
    while (sentence_next(text, &at, &sentence)) {
        assert_true(sentence.begin < sentence.end && sentence.end <= at);
        if (found.size > 0) buffer_append_string(&found, "|");
        buffer_append(&found, source + sentence.begin, sentence.end - sentence.begin);
    }
    buffer_append(&found, "", 1);
    assert_string_equal(found.data, expected);
    buffer_free(&found);
}

static void test_marks(void **state) {
    (void)state;
    expect("", "");
    expect(" \n\t ", "");
    expect("One. Two? Three! (Four.) \"Five.\" Six", "One.|Two?|Three!|(Four.)|\"Five.\"|Six");
    expect("fork() returns 0. malloc() does not.", "fork() returns 0.|malloc() does not.");
    expect("Version 1.2 of www.a.org/b. Then", "Version 1.2 of www.a.org/b.|Then");
    expect("A line\nbroken in two.\n\nNo mark here\n\nLast",
           "A line\nbroken in two.|No mark here|Last");
    expect("  Blanks around.  ", "Blanks around.");
    expect("\xff\xfe bytes. More", "\xff\xfe bytes.|More");
}

static void test_scripts(void **state) {
    (void)state;
    expect("甲乙。丙！「丁。」戊", "甲乙。|丙！|「丁。」|戊");
    expect("Ça va… Oui. « Non. » Si", "Ça va…|Oui.|« Non.|» Si");
    expect("“Fünf.” Sechs", "“Fünf.”|Sechs");
    expect("ما هذا؟ نعم", "ما هذا؟|نعم");
}

static void test_abbreviations(void **state) {
    (void)state;
    expect("See e.g. this, i.e. that. Then", "See e.g. this, i.e. that.|Then");
    expect("Dr. Who met Mr. Smith in St. Ives. Yes", "Dr. Who met Mr. Smith in St. Ives.|Yes");
    expect("Files, pipes, etc. are read. Pipes etc. End",
           "Files, pipes, etc. are read.|Pipes etc.|End");
    expect("Donald E. Knuth wrote it in C. It runs", "Donald E. Knuth wrote it in C.|It runs");
    expect("J. R. R. Tolkien. E.G. x", "J. R. R. Tolkien.|E.G. x");
    expect("This is a very long sentence. No", "This is a very long sentence.|No");
}

static void test_lines(void **state) {
    (void)state;
    expect("# Title\nText here. More\n## Next\nEnd", "# Title|Text here.|More|## Next|End");
    expect("Two:\n- one\n- two. Three\n  on\n* four", "Two:|- one|- two.|Three\n  on|* four");
    expect("1. First\n2. Second. It\n12) Third", "1. First|2. Second.|It|12) Third");
    expect("It costs\n1. 5 is not", "It costs|1. 5 is not");
    expect("It returns\n-1 on error.", "It returns\n-1 on error.");
    expect("| a | b. c |\n| d | e |\nEnd", "| a | b. c ||| d | e ||End");
}

static void test_code(void **state) {
    (void)state;
    expect("So:\n```c\na. B\n\n# c\n```\nThen. On", "So:|```c\na. B\n\n# c\n```|Then.|On");
    expect("~~~\nnever. Closed\n", "~~~\nnever. Closed");
    expect("Call `a. b`. Then `c. d", "Call `a. b`.|Then `c.|d");
    expect("a `b\n`c. d` e", "a `b\n`c. d` e");
}

/* Every byte counts once: a text of blanks, of back quotes, of brackets. */
static void test_long_texts(void **state) {
    (void)state;
    static const char kinds[] = " `)\n.-#|";
    enum { SIZE = 1 << 21 };
    char *text = malloc(SIZE);
    assert_non_null(text);
    for (size_t i = 0; i + 1 < sizeof kinds; i++) {
        memset(text, kinds[i], SIZE);
        text[SIZE / 2] = 'x';
        struct text_span span = {text, SIZE};
        struct sentence sentence;
        size_t at = 0, n = 0;
        while (sentence_next(span, &at, &sentence)) n++;
        assert_true(n > 0);
    }
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marks),         cmocka_unit_test(test_scripts),
        cmocka_unit_test(test_abbreviations), cmocka_unit_test(test_lines),
        cmocka_unit_test(test_code),          cmocka_unit_test(test_long_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
