/* tests/unit/test_doors.c: parts of the doors to other protocols: what is kept for whom, numbers in
 * brackets, ids of files, conversations, and the page that tables are told on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>

#include "server/api/routes.h"
#include "server/api/text/cited_numbers.h"
#include "server/doors/conformance/conformance.h"
#include "server/doors/kept/kept.h"
#include "server/doors/shared/conversation.h"
#include "server/doors/stores/stores.h"

/* Texts that are kept. */

static bool put(struct kept *kept, uint64_t owner, const char *id, const char *text) {
    struct buffer bytes = {0};
    buffer_append_string(&bytes, text);
    bool ok = kept_put(kept, owner, id, &bytes);
    buffer_free(&bytes);
    return ok;
}

static bool has(struct kept *kept, uint64_t owner, const char *id, const char *text) {
    struct buffer bytes = {0};
    bool found = kept_get(kept, owner, id, &bytes);
    if (found) assert_int_equal(bytes.size, strlen(text));
    if (found && bytes.size > 0) assert_memory_equal(bytes.data, text, bytes.size);
    buffer_free(&bytes);
    return found;
}

static void test_the_oldest_of_the_owner_go(void **state) {
    struct kept *kept = kept_open((struct kept_limits){2, 10, 3600});
    (void)state;
    assert_true(put(kept, 1, "a", "one") && put(kept, 2, "a", "other") && put(kept, 1, "b", "two"));
    assert_true(has(kept, 1, "a", "one") && has(kept, 2, "a", "other"));
    assert_true(put(kept, 1, "c", "three"));
    assert_true(!has(kept, 1, "a", "") && has(kept, 1, "b", "two") && has(kept, 1, "c", "three"));
    assert_true(put(kept, 1, "d", "12345678"));
    assert_true(!has(kept, 1, "b", "") && !has(kept, 1, "c", "") && has(kept, 1, "d", "12345678"));
    assert_false(put(kept, 1, "e", "12345678901"));
    assert_true(has(kept, 1, "d", "12345678") && has(kept, 2, "a", "other"));
    assert_true(kept_delete(kept, 2, "a") && !kept_delete(kept, 2, "a") &&
                !kept_delete(kept, 3, "d"));
    kept_close(kept);
}

static void test_nothing_is_kept_too_long(void **state) {
    struct kept *kept = kept_open((struct kept_limits){2, 10, -1});
    (void)state;
    assert_true(put(kept, 1, "a", "one"));
    assert_false(has(kept, 1, "a", ""));
    kept_close(kept);
    kept = kept_open((struct kept_limits){0, 10, 10});
    assert_false(put(kept, 1, "a", "one"));
    kept_close(kept);
}

/* Numbers in brackets. */

static void test_brackets_are_cut_out(void **state) {
    static const char text[] = "a [1, 2] b [x] [3";
    struct text_span all = {text, sizeof text - 1};
    struct cited_piece piece;
    (void)state;
    assert_true(cited_cut(all, 0, false, &piece) && piece.end == 2 && !piece.names);
    assert_true(cited_cut(all, 2, false, &piece) && piece.end == 8 && piece.names);
    size_t at = piece.start;
    assert_int_equal(cited_next(all, &at, piece.end), 1);
    assert_int_equal(cited_next(all, &at, piece.end), 2);
    assert_int_equal(cited_next(all, &at, piece.end), 0);
    assert_true(cited_cut(all, 8, false, &piece) && piece.end == 15 && !piece.names);
    assert_false(cited_cut(all, 15, false, &piece));
    assert_true(cited_cut(all, 15, true, &piece) && piece.end == all.size && !piece.names);
}

/* Ids of files. */

static void test_ids_of_files_come_back(void **state) {
    static const char *const documents[] = {"0af3", "a/b", "\xc3\x96l", "x.md", "-"};
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(documents); i++) {
        struct buffer json = {0};
        struct json_writer w;
        char id[64];
        put_begin(&w, &json);
        put_object(&w);
        file_put_id(&w, "i", documents[i]);
        put_object_end(&w);
        assert_int_equal(sscanf(json.data, "{\"i\":\"%60[^\"]\"}", id), 1);
        assert_null(strchr(id, '/'));
        char *document = file_document(id);
        assert_string_equal(document, documents[i]);
        free(document);
        buffer_free(&json);
    }
    static const char *const none[] = {"",         "file-",    "file-.", "file-.0",
                                       "file-.0g", "file-.00", "doc-1"};
    for (size_t i = 0; i < ARRAY_COUNT(none); i++) assert_null(file_document(none[i]));
}

/* Conversations. */

static struct text_span span(const char *text) { return (struct text_span){text, strlen(text)}; }

static void test_turns_of_one_speaker_are_one_message(void **state) {
    struct conversation conversation = {0};
    (void)state;
    conversation_begin(&conversation);
    conversation_turn(&conversation, SPEAKER_USER);
    conversation_say(&conversation, span("a"));
    conversation_turn(&conversation, SPEAKER_USER);
    conversation_say(&conversation, span("b"));
    conversation_turn(&conversation, SPEAKER_ASSISTANT);
    conversation_call(&conversation, span("1"), span("f"), span("{}"));
    conversation_result(&conversation, span("1"), span(""));
    conversation_say(&conversation, span("r"));
    conversation_turn(&conversation, SPEAKER_USER);
    conversation_say(&conversation, span("c"));
    conversation_show(&conversation, span("data:"));
    struct text_span json = conversation_end(&conversation);
    static const char want[] =
        "[{\"role\":\"user\",\"content\":\"a\\nb\"},{\"role\":\"assistant\",\"content\":null,"
        "\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"content\":\"r\",\"tool_call_id\":\"1\"},{"
        "\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"c\"},{\"type\":"
        "\"image_url\",\"image_url\":{\"url\":\"data:\"}}]}]";
    assert_int_equal(json.size, sizeof want - 1);
    assert_memory_equal(json.text, want, json.size);
    conversation_free(&conversation);
}

/* Routes. */

static void test_a_segment_in_braces_is_any(void **state) {
    const struct route route = {.path = "/v1/a/{id}/b"};
    char text[4];
    (void)state;
    assert_true(route_matches(&route, "/v1/a/x/b"));
    assert_false(route_matches(&route, "/v1/a//b"));
    assert_false(route_matches(&route, "/v1/a/x/b/"));
    assert_false(route_matches(&route, "/v1/a/x"));
    assert_false(route_matches(&route, "/v1/a/x/y/b"));
    assert_true(route_segment("/v1/a/xyz/b", 2, text, sizeof text));
    assert_string_equal(text, "xyz");
    assert_false(route_segment("/v1/a/wxyz/b", 2, text, sizeof text));
    assert_false(route_segment("/v1", 1, text, sizeof text));
}

/* The page is what `make docs/agents-conformance.md` writes. */
static void test_the_page_is_up_to_date(void **state) {
    struct buffer page = {0}, want = {0};
    struct error e;
    (void)state;
    conformance_print(&want);
    assert_int_equal(file_read("docs/agents-conformance.md", 1 << 20, &page, &e), STATUS_OK);
    assert_int_equal(page.size, want.size);
    assert_memory_equal(page.data, want.data, page.size);
    buffer_free(&page);
    buffer_free(&want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_oldest_of_the_owner_go),
        cmocka_unit_test(test_nothing_is_kept_too_long),
        cmocka_unit_test(test_brackets_are_cut_out),
        cmocka_unit_test(test_ids_of_files_come_back),
        cmocka_unit_test(test_turns_of_one_speaker_are_one_message),
        cmocka_unit_test(test_a_segment_in_braces_is_any),
        cmocka_unit_test(test_the_page_is_up_to_date),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
