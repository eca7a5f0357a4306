/* tests/unit/test_passages.c: found chunks as passages of a prompt: whole sentences, each place
 * once, within a budget.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/text/sentences.h"
#include "server/host/prompt/passage_list.h"
#include "server/host/prompt/passages.h"

static const char text[] =
    "# A heading\n\nThe first sentence. Is it (the second?) Yes! A fourth\nhas two lines. The last "
    "one";

/* The chunk of `document` that reads `part`. */
static struct hit hit_of(const char *document, const char *source, const char *part,
                         float similarity) {
    const char *at = strstr(source, part);
    assert_non_null(at);
    size_t start = (size_t)(at - source), n = strlen(part);
    return (struct hit){.document = document,
                        .path = document,
                        .title = document,
                        .start = start,
                        .end = start + n,
                        .text = {at, n},
                        .source = {source, strlen(source)},
                        .similarity = similarity};
}

static void expect_text(const struct hit *h, const char *expected) {
    assert_int_equal(h->text.size, strlen(expected));
    assert_memory_equal(h->text.text, expected, strlen(expected));
    assert_ptr_equal(h->text.text, h->source.text + h->start);
    assert_int_equal(h->end - h->start, h->text.size);
}

static void expect_widened(const char *source, const char *part, const char *expected) {
    struct hit h = hit_of("a", source, part, 1);
    passage_widen(&h);
    expect_text(&h, expected);
}

static void test_sentences(void **state) {
    (void)state;
    expect_widened(text, "rst sen", "The first sentence.");
    expect_widened(text, "sentence. Is", "The first sentence. Is it (the second?)");
    expect_widened(text, "Yes! ", "Yes!");
    expect_widened(text, " Is it", "Is it (the second?)");
    expect_widened(text, ". ", "The first sentence.");
    expect_widened(text, "fourth\nhas", "A fourth\nhas two lines.");
    expect_widened(text, "last", "The last one");
    expect_widened(text, "heading\n\nThe", "# A heading\n\nThe first sentence.");
    expect_widened(text, "lines. The last one", "A fourth\nhas two lines. The last one");
    expect_widened("甲。乙丙丁。戊", "丙", "乙丙丁。");
    expect_widened("a.  \n", "  \n", "a.  \n");
    expect_widened("Version 1.2 of e.g. this", "2 of", "Version 1.2 of e.g. this");
}

static void test_no_sentence_is_near(void **state) {
    (void)state;
    char words[4 * PASSAGE_WIDEN_BYTES + 1];
    for (size_t i = 0; i < sizeof words; i++) words[i] = i % 5 == 4 ? ' ' : 'w';
    words[sizeof words - 1] = '\0';
    memcpy(words + 2 * PASSAGE_WIDEN_BYTES, "here", 4);
    expect_widened(words, "here", "here");
    struct hit alone = {.document = "a", .start = 3, .end = 5, .text = {"ab", 2}};
    passage_widen(&alone);
    assert_int_equal(alone.start, 3);
    assert_int_equal(alone.text.size, 2);
}

static void test_joined_and_ordered(void **state) {
    (void)state;
    struct hit list[6];
    int n = 0;
    n = passage_list_add(list, n, hit_of("a", text, "A fourth", 0.9F));
    n = passage_list_add(list, n, hit_of("b", text, "Yes!", 0.8F));
    n = passage_list_add(list, n, hit_of("a", text, "The first", 0.7F));
    n = passage_list_add(list, n, hit_of("a", text, "The last", 0.6F));
    assert_int_equal(n, 4);
    expect_text(&list[0], "The first");
    expect_text(&list[1], "A fourth");
    expect_text(&list[2], "The last");
    assert_string_equal(list[3].document, "b");

    /* Touching, but for a blank, one neighbour; overlapping the other. */
    n = passage_list_add(list, n, hit_of("a", text, "\nhas two lines. The", 0.5F));
    assert_int_equal(n, 3);
    expect_text(&list[0], "The first");
    expect_text(&list[1], "A fourth\nhas two lines. The last");
    assert_true(list[1].similarity == 0.9F);
    assert_string_equal(list[2].document, "b");

    /* Without a text around them, chunks stay apart. */
    struct hit bare = {.document = "c", .start = 0, .end = 2, .text = {"ab", 2}};
    n = passage_list_add(list, n, bare);
    n = passage_list_add(list, n, bare);
    assert_int_equal(n, 5);
}

static void expect_passages(const struct tokenizer *t, int max_tokens, const char *expected,
                            int n) {
    struct hit found[] = {hit_of("b", text, "Yes", 0.9F), hit_of("a", text, "last", 0.8F),
                          hit_of("a", text, "first", 0.7F), hit_of("b", text, "Is it", 0.6F)};
    struct hits hits = {.list = found, .n = ARRAY_COUNT(found)};
    struct passage_options o = {.template = "[{number}] {title}: {text}\n",
                                .max_tokens = max_tokens};
    struct passage_sources from = {.hits = &hits};
    struct passages out = {0};
    struct error e = {0};
    if (passages_write(&o, t, &from, 1000, &out, &e)) fail_msg("%s", e.text);
    assert_int_equal(out.n, n);
    assert_int_equal(out.text.size, strlen(expected));
    if (n > 0) assert_memory_equal(out.text.data, expected, strlen(expected));
    assert_true(out.ids.n <= max_tokens);
    passages_free(&out);
}

static struct tokenizer *open_bytes(void) {
    static const char json[] =
        "{\"added_tokens\": [{\"id\": 0, \"content\": \"<unk>\", \"special\": true}], \"model\": "
        "{\"type\": \"BPE\", "
        "\"unk_token\": \"<unk>\", \"vocab\": {\"<unk>\": 0}, \"merges\": []}, \"pre_tokenizer\": "
        "{\"type\": "
        "\"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}, \"decoder\": "
        "{\"type\": \"ByteLevel\"}}";
    struct tokenizer *t;
    struct error e = {0};
    if (tokenizer_open_json(&t, json, sizeof json - 1, &e)) fail_msg("%s", e.text);
    return t;
}

/* One byte is one token. The least similar are dropped, and what is left is numbered. */
static void test_budget(void **state) {
    (void)state;
    struct tokenizer *t = open_bytes();
    expect_passages(
        t, 500,
        "[1] b: Is it (the second?) Yes!\n[2] a: The first sentence.\n[3] a: The last one\n", 3);
    expect_passages(t, 70, "[1] b: Yes!\n[2] a: The first sentence.\n[3] a: The last one\n", 3);
    expect_passages(t, 50, "[1] b: Yes!\n[2] a: The last one\n", 2);
    expect_passages(t, 12, "[1] b: Yes!\n", 1);
    expect_passages(t, 11, "", 0);
    tokenizer_close(t);
}

/* A text of three sections, of which `part` of the second is found. */
static const char sections[] =
    "Before all.\n\n# One\n\nThe first section. It is short.\n\n## Two\n\nHere is a sentence. "
    "Another "
    "one is found here. A third comes. The fourth ends it.\n\n# Three\n\nThe last section.";

struct marked_text {
    struct buffer marks;
};

static void mark_headings(struct marked_text *marked) {
    static const char *const headings[] = {"One", "Two", "Three"};
    for (size_t i = 0; i < ARRAY_COUNT(headings); i++)
        marks_add(&marked->marks, MARK_HEADING, 1 + (i == 1),
                  (size_t)(strstr(sections, headings[i]) - sections), strlen(headings[i]));
}

static struct hit find_in(const struct marked_text *marked, const char *part, float similarity) {
    struct hit hit = hit_of("a", sections, part, similarity);
    hit.marks = marks_of(&marked->marks);
    return hit;
}

/* One byte is one token. */
static void expect_grown(struct hits hits, const struct hit *earlier, int budget,
                         const char *expected) {
    struct tokenizer *t = open_bytes();
    struct passage_options o = {
        .template = "{number}:{text}\n", .again = "{number}!\n", .max_tokens = budget};
    struct passage_sources from = {.hits = &hits,
                                   .earlier = earlier,
                                   .n_earlier = earlier != NULL,
                                   .last_number = earlier ? earlier->number : 0,
                                   .sections = true};
    struct passages out = {0};
    struct error e = {0};
    if (passages_write(&o, t, &from, 1000, &out, &e)) fail_msg("%s", e.text);
    assert_true(out.ids.n <= budget);
    for (int i = 0; i < out.n; i++) {
        const struct hit *hit = &out.list[i];
        if (hit->source.text) assert_ptr_equal(hit->text.text, hit->source.text + hit->start);
        assert_int_equal(hit->text.size, hit->end - hit->start);
    }
    buffer_append(&out.text, "", 1);
    assert_string_equal(out.text.data, expected);
    passages_free(&out);
    tokenizer_close(t);
}

static void test_sections(void **state) {
    struct marked_text marked = {0};
    (void)state;
    mark_headings(&marked);
    struct hit one[] = {find_in(&marked, "is found", 0.9F)};
    struct hits found = {.list = one, .n = 1};
    static const char whole[] =
        "1:## Two\n\nHere is a sentence. Another one is found here. A third comes. The fourth ends "
        "it.\n";
    expect_grown(found, NULL, 500, whole);
    expect_grown(found, NULL, (int)strlen(whole), whole);
    /* A section that is too long is read at both sides, in whole sentences. */
    expect_grown(found, NULL, 72,
                 "1:Here is a sentence. Another one is found here. A third comes.\n");
    expect_grown(found, NULL, 60, "1:Another one is found here. A third comes.\n");
    expect_grown(found, NULL, 32, "1:Another one is found here.\n");

    /* The first hit grows first, and one that it has grown over is the same passage. */
    struct hit two[] = {find_in(&marked, "The last", 0.9F), find_in(&marked, "first", 0.8F)};
    found = (struct hits){.list = two, .n = 2};
    expect_grown(found, NULL, 54, "1:The first section.\n2:# Three\n\nThe last section.\n");
    expect_grown(found, NULL, 64,
                 "1:# One\n\nThe first section.\n2:# Three\n\nThe last section.\n");
    expect_grown(found, NULL, 500,
                 "1:# One\n\nThe first section. It is short.\n2:# Three\n\nThe last section.\n");
    struct hit same[] = {find_in(&marked, "third", 0.9F), find_in(&marked, "Here is a", 0.8F)};
    found = (struct hits){.list = same, .n = 2};
    expect_grown(found, NULL, 500, whole);

    /* Text of an earlier turn is not read again. */
    struct hit earlier = find_in(&marked, "Here is a sentence.", 0);
    earlier.number = 4;
    found = (struct hits){.list = one, .n = 1};
    expect_grown(found, &earlier, 500,
                 "5:Another one is found here. A third comes. The fourth ends it.\n");
    struct hit alone = {.document = "b", .start = 3, .end = 5, .text = {"ab", 2}};
    found = (struct hits){.list = &alone, .n = 1};
    expect_grown(found, NULL, 500, "1:ab\n");
    buffer_free(&marked.marks);
}

/* Pages of which OCR was less sure end a section; 0 stands for a page that OCR did not read. */
static void test_sure_pages(void **state) {
    static const char text_of_pages[] = "First page. Second page. Third page. Fourth page.";
    static const char *const pages[] = {"First", "Second", "Third", "Fourth"};
    static const struct {
        int sure[4], least;
        const char *grown;
    } cases[] = {
        {{90, 90, 90, 90}, 50, "First page. Second page. Third page. Fourth page."},
        {{90, 0, 0, 90}, 50, "First page. Second page. Third page. Fourth page."},
        {{30, 90, 90, 90}, 50, "Second page. Third page. Fourth page."},
        {{90, 30, 90, 90}, 50, "Third page. Fourth page."},
        {{30, 30, 0, 30}, 50, "Third page."},
        {{90, 90, 90, 30}, 50, "First page. Second page. Third page."},
        {{30, 30, 30, 30}, 50, "Third page."},
        {{30, 30, 30, 30}, 0, "First page. Second page. Third page. Fourth page."},
    };
    struct tokenizer *t = open_bytes();
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct buffer marks = {0};
        for (size_t page = 0; page < ARRAY_COUNT(pages); page++) {
            size_t at = (size_t)(strstr(text_of_pages, pages[page]) - text_of_pages);
            marks_add(&marks, MARK_PAGE, 0, at, page + 1);
            if (cases[i].sure[page] > 0)
                marks_add(&marks, MARK_CONFIDENCE, 0, at, (size_t)cases[i].sure[page]);
        }
        struct hit hit = hit_of("a", text_of_pages, "Third page.", 0.9F);
        hit.marks = marks_of(&marks);
        struct passage_growth growth = {.tokenizer = t, .min_confidence = cases[i].least};
        passage_grow(&growth, &hit, 100);
        expect_text(&hit, cases[i].grown);
        buffer_free(&marks);
    }
    tokenizer_close(t);
}

/* "z. " is a token, but before an X its blank belongs to that: in its passage the text has a token
 * more than by itself, and half of the room is too little for a sentence. */
static void test_section_with_more_tokens(void **state) {
    static const char json[] =
        "{\"added_tokens\": [{\"id\": 0, \"content\": \"<unk>\", \"special\": true}], \"model\": "
        "{\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"vocab\": {\"<unk>\": 0, \"X\": 1, "
        "\"z\": 2, \".\": 3, \"\u0120\": 4, \"\u0120X\": 5, \".\u0120\": 6, "
        "\"z.\u0120\": 7}, \"merges\": [\"\u0120 X\", \". \u0120\", \"z .\u0120\"]}, "
        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"use_regex\": false}, \"decoder\": {\"type\": \"ByteLevel\"}}";
    struct tokenizer *t;
    struct hit hit = hit_of("a", "Many words come before. Ayz. X ends.", "X ends.", 0.9F);
    struct hits hits = {.list = &hit, .n = 1};
    struct passage_options o = {.template = "{text}", .max_tokens = 10};
    struct passage_sources from = {.hits = &hits, .sections = true};
    struct passages out = {0};
    struct error e = {0};
    (void)state;
    if (tokenizer_open_json(&t, json, sizeof json - 1, &e)) fail_msg("%s", e.text);
    if (passages_write(&o, t, &from, 1000, &out, &e)) fail_msg("%s", e.text);
    expect_text(&out.list[0], "X ends.");
    assert_int_equal(out.ids.n, 7);
    assert_int_equal(out.text.size, strlen("X ends."));
    passages_free(&out);
    tokenizer_close(t);
}

/* A text without headings is one section, and one of any length costs no more than the budget. */
static void test_no_section(void **state) {
    size_t n = 4 << 20;
    char *words = xmalloc(n + 1);
    (void)state;
    for (size_t i = 0; i < n; i++) words[i] = i % 8 == 7 ? ' ' : i % 8 == 6 ? '.' : 'W';
    words[n] = '\0';
    memcpy(words + n / 2, "a found", 7);
    struct hit hit = hit_of("a", words, "found", 0.9F);
    struct tokenizer *t = open_bytes();
    struct passage_growth growth = {.tokenizer = t};
    passage_grow(&growth, &hit, 100);
    assert_true(hit.end - hit.start <= 105 && hit.end - hit.start > 80);
    assert_true(sentence_starts(hit.source, hit.start) && sentence_ends(hit.source, hit.end));
    tokenizer_close(t);
    free(words);
}

/* Hits that earlier turns have are named behind the others, once, and numbers go on. */
static void test_again(void **state) {
    struct tokenizer *t = open_bytes();
    struct hit found[] = {hit_of("b", text, "Yes", 0.9F), hit_of("a", text, "last", 0.8F),
                          hit_of("a", text, "first", 0.7F), hit_of("b", text, "Is it", 0.6F)};
    struct hit earlier[] = {hit_of("a", text, "The first sentence.", 0),
                            hit_of("b", text, "Is it (the second?) Yes!", 0)};
    struct hits hits = {.list = found, .n = ARRAY_COUNT(found)};
    struct passage_options o = {.template = "[{number}] {title}: {text}\n",
                                .again = "[{number}] {title} again\n",
                                .max_tokens = 100};
    struct passage_sources from = {
        .hits = &hits, .earlier = earlier, .n_earlier = ARRAY_COUNT(earlier), .last_number = 7};
    struct passages out = {0}, shown = {0};
    struct error e = {0};
    (void)state;
    earlier[0].number = 3;
    earlier[1].number = 2;
    if (passages_write(&o, t, &from, 1000, &out, &e)) fail_msg("%s", e.text);
    buffer_append(&out.text, "", 1);
    assert_string_equal(out.text.data, "[8] a: The last one\n[2] b again\n[3] a again\n");
    assert_int_equal(out.n, 1);
    assert_int_equal(out.n_again, 2);
    assert_true(out.list[1].similarity == 0.9F && out.list[2].similarity == 0.7F);

    if (passages_show(&o, t, &(struct shown_passages){out.list, 1, 2}, &shown, &e))
        fail_msg("%s", e.text);
    buffer_append(&shown.text, "", 1);
    assert_string_equal(shown.text.data, out.text.data);
    assert_int_equal(shown.ids.n, out.ids.n);

    /* Of a document that has changed since nothing is read again; nor where there is no room. */
    earlier[0].version = 1;
    o.max_tokens = 30;
    if (passages_write(&o, t, &from, 1000, &out, &e)) fail_msg("%s", e.text);
    assert_int_equal(out.n, 0);
    assert_int_equal(out.n_again, 1);
    o.max_tokens = 5;
    if (passages_write(&o, t, &from, 1000, &out, &e)) fail_msg("%s", e.text);
    assert_int_equal(out.n + out.n_again, 0);
    passages_free(&out);
    passages_free(&shown);
    tokenizer_close(t);
}

static void expect_order(const struct passage_order *order, const char *expected) {
    struct hit list[] = {hit_of("a", text, "last", 0.9F), hit_of("b", text, "Yes", 0.7F),
                         hit_of("b", text, "last", 0.88F), hit_of("c", text, "Yes", 0.86F),
                         hit_of("d", text, "Yes", 0.5F)};
    char found[ARRAY_COUNT(list) + 1] = {0};
    for (size_t i = 0; i < ARRAY_COUNT(list); i++) list[i].relevance = -1;
    passage_order_choose(order, list, ARRAY_COUNT(list));
    for (size_t i = 0; i < ARRAY_COUNT(list); i++) found[i] = list[i].document[0];
    assert_string_equal(found, expected);
}

/* Documents go before others that are hardly better, where a prompt was read so before. */
static void test_order(void **state) {
    struct conversations *known = conversations_open(1 << 20, false);
    struct passage_order order = {.known = known, .distance = 0.05}, other = order;
    struct hit read[] = {hit_of("c", text, "Yes", 0), hit_of("a", text, "last", 0)},
               last[] = {hit_of("d", text, "Yes", 0)};
    (void)state;
    other.before.first = 1;
    expect_order(&order, "abbcd");
    passage_order_note(&order, read, 2);
    expect_order(&order, "cabbd");
    expect_order(&other, "abbcd");
    expect_order(&(struct passage_order){0}, "abbcd");
    /* d is too far behind. */
    passage_order_note(&other, last, 1);
    expect_order(&other, "abbcd");
    order.distance = 0.03;
    expect_order(&order, "abbcd");
    conversations_close(known);
}

/* The worth by vectors and words counts where they were joined, and 0 is a worth. */
static void test_score(void **state) {
    struct hit hit = hit_of("a", text, "last", 0.9F);
    (void)state;
    hit.relevance = -1;
    assert_true(hit_score(&hit) == 0.9F);
    hit.worth.joined = true;
    assert_true(hit_score(&hit) == 0);
    hit.relevance = 0.5F;
    assert_true(hit_score(&hit) == 0.5F);
}

/* Pictures of documents a and b and of one that is not found, of 100, 50 and 10 rows; *stand has a
 * letter for each that stands, in the order of the text. */
static void expect_pictures(const struct tokenizer *t, int room, const char *expected,
                            const char *stand, int rows) {
    struct hit found[] = {hit_of("b", text, "Yes", 0.9F), hit_of("a", text, "last", 0.8F),
                          hit_of("a", text, "first", 0.7F)};
    struct hits hits = {.list = found, .n = ARRAY_COUNT(found)};
    struct passage_picture pictures[] = {{"a", 100, true}, {"b", 50, true}, {"c", 10, true}};
    struct picture_words words = {.text = {.data = (char[]){"(p)"}, .size = 3}};
    struct passage_options o = {.template = "{number}{text}\n", .max_tokens = 100, .words = &words};
    struct passage_sources from = {
        .hits = &hits, .pictures = pictures, .n_pictures = ARRAY_COUNT(pictures)};
    struct passages out = {0};
    struct error e = {0};
    for (int i = 0; i < 3; i++) tokens_append(&words.ids, 7 + i, 0);
    if (passages_write(&o, t, &from, room, &out, &e)) fail_msg("%s", e.text);

    buffer_append(&out.text, "", 1);
    assert_string_equal(out.text.data, expected);
    assert_int_equal(out.n_pictures, strlen(stand));
    for (int i = 0; i < out.n_pictures; i++) {
        assert_int_equal(pictures[out.pictures[i]].document[0], stand[i]);
        assert_true(pictures[out.pictures[i]].stands);
    }
    assert_false(pictures[2].stands);
    assert_int_equal(out.picture_rows, rows);
    assert_int_equal(out.ends[out.n - 1], out.ids.n - out.n_pictures + rows);
    assert_true(out.ends[out.n - 1] <= room);
    assert_int_equal(out.foreign.size, strlen(expected));
    for (size_t i = 0; i < out.foreign.size; i++) {
        bool within = false;
        for (size_t j = i < 2 ? 0 : i - 2; j <= i; j++)
            within = within || strncmp(expected + j, "(p)", 3) == 0;
        assert_int_equal(out.foreign.data[i], !within);
    }
    tokens_free(&words.ids);
    passages_free(&out);
}

/* A picture stands in the first passage of its document, as long as the texts leave room for it. */
static void test_pictures(void **state) {
    (void)state;
    struct tokenizer *t = open_bytes();
    expect_pictures(t, 1000, "1(p)Yes!\n2(p)The first sentence.\n3The last one\n", "ba", 150);
    expect_pictures(t, 41 + 154, "1(p)Yes!\n2(p)The first sentence.\n3The last one\n", "ba", 150);
    expect_pictures(t, 41 + 153, "1Yes!\n2(p)The first sentence.\n3The last one\n", "a", 100);
    expect_pictures(t, 41 + 102, "1Yes!\n2(p)The first sentence.\n3The last one\n", "a", 100);
    expect_pictures(t, 41 + 101, "1(p)Yes!\n2The first sentence.\n3The last one\n", "b", 50);
    expect_pictures(t, 41 + 51, "1Yes!\n2The first sentence.\n3The last one\n", "", 0);
    tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_no_sentence_is_near),
        cmocka_unit_test(test_joined_and_ordered),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_sections),
        cmocka_unit_test(test_sure_pages),
        cmocka_unit_test(test_section_with_more_tokens),
        cmocka_unit_test(test_no_section),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_score),
        cmocka_unit_test(test_pictures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
