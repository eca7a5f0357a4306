/* tests/unit/test_generation_config.c: end ids and sampling defaults of generation_config.json and
 * of GGUF files, and the files that cannot be read. */
#include <string.h>

#include "retro/model/generation_config.h"
#include "server/api/fields/writing_fields.h"
#include "tests/unit/gguf_build.h"

/* Reads `text` as the file of a folder that is gone afterwards. */
static enum status read_text(const char *text, struct generation_config *out, struct error *e) {
    char folder[] = "/tmp/generation-config-XXXXXX", path[80];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    if (text != NULL) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(text, file);
        fclose(file);
    }
    enum status status = generation_config_read(folder, out, e);
    unlink(path);
    rmdir(folder);
    return status;
}

static struct generation_config read_valid(const char *text) {
    struct generation_config c;
    struct error e = {0};
    if (read_text(text, &c, &e)) fail_msg("%s", e.text);
    return c;
}

static void test_ends(void **state) {
    (void)state;
    struct generation_config c =
        read_valid("{\"eos_token_id\": [128001, 128008, 128009, 128001, -1]}");
    assert_true(c.found);
    assert_int_equal(c.ends.n, 3);
    assert_true(end_ids_have(&c.ends, 128009));
    assert_false(end_ids_have(&c.ends, 128002));
    assert_false(end_ids_have(&c.ends, -1));
    c = read_valid("{\"eos_token_id\": 7}");
    assert_int_equal(c.ends.n, 1);
    assert_int_equal(c.ends.ids[0], 7);
    c = read_valid("{\"eos_token_id\": null, \"transformers_version\": \"5.23.0\"}");
    assert_int_equal(c.ends.n, 0);
}

static void assert_shows(const struct generation_config *c, const char *expected) {
    struct buffer text = {0};
    sampling_defaults_print(&c->sampling, &text);
    assert_string_equal(text.data ? text.data : "", expected);
    buffer_free(&text);
}

static void test_sampling(void **state) {
    (void)state;
    struct generation_config c = read_valid(
        "{\"do_sample\": true, \"temperature\": 0.6, \"top_p\": 0.9, \"top_k\": 20, "
        "\"repetition_penalty\": 1.05,"
        "\"no_repeat_ngram_size\": 12}");
    assert_shows(
        &c,
        "temperature 0.6, top_p 0.9, top_k 20, repetition_penalty 1.05, no_repeat_ngram_size 12");
    c = read_valid(
        "{\"do_sample\": false, \"temperature\": 0.6, \"repetition_penalty\": 1.0, "
        "\"no_repeat_ngram_size\": 0}");
    assert_shows(&c, "temperature 0");
    c = read_valid("{}");
    assert_shows(&c, "");
    c = read_valid(NULL);
    assert_false(c.found);
    assert_shows(&c, "");
}

/* The numbers of a file with one key of sampling more than those, of any kind. */
static enum status read_gguf(enum gguf_type type, uint64_t bits, struct generation_config *out,
                             struct error *e) {
    struct gguf_draft draft = {0};
    char path[FOLDER_PATH_SIZE];
    draft_f32(&draft, "general.sampling.temp", 0.5f);
    draft_f32(&draft, "general.sampling.top_p", 0.75f);
    draft_f32(&draft, "general.sampling.penalty_repeat", 1.25f);
    draft_key(&draft, "general.sampling.top_k", type);
    draft_number(&draft.keys, bits, 4);
    draft_build(&draft);
    folder_write(test_folder, "model.gguf", draft.file.data, draft.file.size);
    draft_free(&draft);
    folder_path(path, test_folder, "model.gguf");
    enum status by_file = generation_config_read(path, out, e);
    assert_int_equal(generation_config_read(test_folder, out, e), by_file);
    return by_file;
}

/* GGUF files have them as keys; a file beside them says it before they do. */
static void test_keys(void **state) {
    (void)state;
    static const char file[] = "{\"temperature\": 0.25}";
    struct generation_config c;
    struct error e = {0};
    assert_int_equal(read_gguf(GGUF_I32, 20, &c, &e), STATUS_OK);
    assert_true(c.from_keys && !c.found);
    assert_shows(&c, "temperature 0.5, top_p 0.75, top_k 20, repetition_penalty 1.25");
    assert_int_equal(read_gguf(GGUF_I32, UINT32_MAX - 1, &c, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "\"top_k\" is -2"));
    assert_int_equal(read_gguf(GGUF_F32, 0x7f800000, &c, &e), STATUS_UNSUPPORTED);
    assert_non_null(strstr(e.text, "\"general.sampling.top_k\" is not a whole number"));
    folder_write(test_folder, "generation_config.json", file, sizeof file - 1);
    assert_int_equal(generation_config_read(test_folder, &c, &e), STATUS_OK);
    assert_true(c.found && !c.from_keys);
    assert_shows(&c, "temperature 0.25");
}

static void test_requests(void **state) {
    (void)state;
    struct generation_config c = read_valid(
        "{\"temperature\": 0.6, \"top_p\": 0.9, \"top_k\": 20, \"repetition_penalty\": 1.05, "
        "\"no_repeat_ngram_size\": "
        "12}");
    static const char text[] = "{\"temperature\": 1.5, \"top_k\": 0, \"top_p\": null}";
    struct request_writing w = {
        .temperature = 1.5, .top_p = 1, .min_p = 0.25, .repetition_penalty = 1};
    struct request_limits limits = {0};
    struct json *body;
    struct error e;
    assert_int_equal(json_parse(&body, (struct text_span){text, sizeof text - 1}, "body", &e),
                     STATUS_OK);
    request_writing_defaults(&w, body, &limits);
    assert_true(w.top_p == 1);
    limits.sampling = &c.sampling;
    request_writing_defaults(&w, body, &limits);
    assert_true(w.temperature == 1.5);
    assert_true(w.top_p == 0.9);
    assert_true(w.min_p == 0.25);
    assert_true(w.repetition_penalty == 1.05);
    assert_int_equal(w.top_k, 0);
    assert_int_equal(w.no_repeat_ngram_size, 12);
    json_close(body);
}

static void test_bad_files(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"[]", "an object"},
        {"{\"eos_token_id\": \"</s>\"}", "\"eos_token_id\""},
        {"{\"eos_token_id\": [1, 2.5]}", "eos_token_id[1]"},
        {"{\"eos_token_id\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}", "more than 16 ids"},
        {"{\"temperature\": -1}", "\"temperature\" is -1"},
        {"{\"top_p\": 2}", "\"top_p\""},
        {"{\"do_sample\": 1}", "\"do_sample\""},
        {"{", "generation_config.json:1:"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct generation_config c;
        struct error e = {0};
        assert_int_not_equal(read_text(cases[i].text, &c, &e), STATUS_OK);
        if (strstr(e.text, cases[i].says) == NULL)
            fail_msg("%s: expected %s", e.text, cases[i].says);
        if (strstr(e.text, "generation_config.json") == NULL)
            fail_msg("%s: the file is not named", e.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends), cmocka_unit_test(test_sampling),
        cmocka_unit_test(test_requests),
        cmocka_unit_test_setup_teardown(test_keys, folder_set_up, folder_tear_down),
        cmocka_unit_test(test_bad_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
