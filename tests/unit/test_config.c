/* tests/unit/test_config.c: the options of the programs, their JSON and --set parsers, their
 * messages, and what is printed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/buffer.h"
#include "retro/model/grid.h"
#include "retro/model/model.h"
#include "server/host/options/config.h"
#include "tests/folder.h"

static enum status parse(struct config *c, const char *text, struct error *e) {
    return config_parse(c, text, strlen(text), "retro.json", "conf", e);
}

/* Parses `text` over the defaults and expects exactly this message. */
static void expect_error(const char *text, const char *message) {
    struct config c;
    struct error e = {0};
    config_init(&c);
    assert_int_equal(parse(&c, text, &e), STATUS_INVALID);
    assert_string_equal(e.text, message);
    config_free(&c);
}

static void expect_set_error(const char *assignment, const char *message) {
    struct config c;
    struct error e = {0};
    config_init(&c);
    assert_int_equal(config_set(&c, assignment, &e), STATUS_INVALID);
    assert_string_equal(e.text, message);
    config_free(&c);
}

__attribute__((noinline)) static char *printed(const struct config *c) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    config_print_json(c, out);
    fclose(out);
    return text;
}

static void test_defaults(void **state) {
    (void)state;
    struct config c;
    struct error e = {0};
    config_init(&c);
    assert_string_equal(c.model.path, "");
    assert_string_equal(c.model.device, "cpu");
    assert_true(c.retrieval.choice.enabled);
    assert_int_equal(c.retrieval.max_k, 50);
    assert_true(c.retrieval.choice.min_similarity == -1.0);
    assert_int_equal(c.retrieval.grid, GRID_END);
    assert_string_equal(c.server.host, "127.0.0.1");
    assert_int_equal(c.server.port, 8080);
    assert_int_equal(c.server.max_body_bytes, 4 << 20);
    assert_int_equal(c.log.level, LOG_LEVEL_INFO);
    assert_int_equal(config_check(&c, &e), STATUS_OK);
    config_free(&c);
}

typedef void option_visitor(const struct option_row *o, const char *key, void *context);

static void visit_options(option_visitor *visit, void *context) {
    for (int i = 0; i < config_options.count; i++) {
        const struct option_section *section = config_options.parts[i].section;
        for (int j = 0; j < section->count; j++) {
            char key[100];
            snprintf(key, sizeof key, "%s.%s", section->name, section->rows[j].field.name);
            visit(&section->rows[j], key, context);
        }
    }
}

/* The field of an option in a configuration. */
static const void *field_of(const struct config *c, const char *key) {
    size_t offset = 0;
    assert_non_null(options_find(&config_options, key, &offset));
    return (const char *)c + offset;
}

static void check_row(const struct option_row *o, const char *key, void *defaults) {
    const struct json_field *f = &o->field;
    size_t offset;
    assert_ptr_equal(options_find(&config_options, key, &offset), o);
    assert_true(strlen(o->help) > 0 && o->help[strlen(o->help) - 1] != '.');
    if (f->type == JSON_INT || f->type == JSON_DOUBLE)
        assert_true(f->min <= f->fallback && f->fallback <= f->max && f->min < f->max);
    if (f->type == JSON_TEXT) assert_string_equal(*(char *const *)field_of(defaults, key), f->text);
    if (f->type == JSON_CHOICE) {
        const struct json_choice *c = f->choices;
        while (c->name && c->value != (int)f->fallback) c++;
        assert_non_null(c->name);
    }
}

/* Every default lies in its own range, every name is unique and belongs to a section. */
static void test_table(void **state) {
    (void)state;
    struct config defaults;
    config_init(&defaults);
    visit_options(check_row, &defaults);
    config_free(&defaults);
}

static void test_file(void **state) {
    (void)state;
    struct config c;
    struct error e = {0};
    config_init(&c);
    const char *text =
        "{\"model\": {\"path\": \"models/a\", \"dtype\": \"bf16\", \"threads\": 3},\n"
        " \"retrieval\": {\"enabled\": false, \"collection\": \"/abs/docs\", \"k\": 4, "
        "\"min_similarity\": 0.25,\n"
        "                 \"grid\": \"start\", \"embedder\": \"\"},\n"
        " \"server\": {\"host\": \"::1\", \"port\": 0}, \"log\": {\"level\": \"debug\"}}";
    assert_int_equal(parse(&c, text, &e), STATUS_OK);
    assert_string_equal(c.model.path, "conf/models/a");
    assert_int_equal(c.model.dtype, MODEL_DTYPE_BF16);
    assert_int_equal(c.model.threads, 3);
    assert_false(c.retrieval.choice.enabled);
    assert_string_equal(c.retrieval.collection, "/abs/docs");
    assert_string_equal(c.retrieval.embedder, "");
    assert_int_equal(c.retrieval.choice.k, 4);
    assert_true(c.retrieval.choice.min_similarity == 0.25);
    assert_int_equal(c.retrieval.grid, GRID_START);
    assert_string_equal(c.server.host, "::1");
    assert_int_equal(c.server.port, 0);
    assert_int_equal(c.log.level, LOG_LEVEL_DEBUG);
    assert_int_equal(c.server.max_queue, 64);
    assert_int_equal(parse(&c, "{\"retrieval\": {\"min_similarity\": 1}}", &e),
                     STATUS_OK); /* an integer is a number */
    assert_true(c.retrieval.choice.min_similarity == 1.0);
    assert_int_equal(parse(&c, "{}", &e), STATUS_OK);
    config_free(&c);
}

static void test_unknown(void **state) {
    (void)state;
    expect_error("{\n\"retrieval\": {\n\n\"kk\": 2}}",
                 "retro.json:4: unknown option \"retrieval.kk\"; did you mean \"retrieval.k\"?");
    expect_error("{\"server\": {\"max_sequence\": 2}}",
                 "retro.json:1: unknown option \"server.max_sequence\"; did you mean "
                 "\"server.max_sequences\"?");
    expect_error("{\n \"retreival\": {}}",
                 "retro.json:2: unknown section \"retreival\"; did you mean \"retrieval\"?");
    expect_error("{\"completely-else\": 1}",
                 "retro.json:1: unknown section \"completely-else\"; --help lists all options");
    expect_error("{\"log\": {\"quite-unlike-anything\": 1}}",
                 "retro.json:1: unknown option \"log.quite-unlike-anything\"; --help lists all");
    expect_error(
        "{\"retrieval.k\": 2}",
        "retro.json:1: \"retrieval.k\" is written nested in a file: {\"retrieval\": {\"k\": ...}}");
    expect_error("{\"\": {}}", "retro.json:1: unknown section \"\"; --help lists all options");
}

static void test_range(void **state) {
    (void)state;
    expect_error("{\"server\":\n{\"port\": 99999}}",
                 "retro.json:2: server.port is 99999, allowed is 0 .. 65535");
    expect_error("{\"server\": {\"port\": -1}}",
                 "retro.json:1: server.port is -1, allowed is 0 .. 65535");
    expect_error("{\"server\": {\"port\": 4294967296}}",
                 "retro.json:1: server.port is 4294967296, allowed is 0 .. 65535");
    expect_error("{\"retrieval\": {\"min_similarity\": 1.5}}",
                 "retro.json:1: retrieval.min_similarity is 1.5, allowed is -1 .. 1");
    expect_error("{\"log\": {\"level\": \"loud\"}}",
                 "retro.json:1: log.level is \"loud\", allowed is error, warn, info, debug");
    expect_error("{\"log\": {\"level\": \"info\\u0000\"}}",
                 "retro.json:1: log.level is \"info\", allowed is error, warn, info, debug");
}

/* Every option that is a whole number takes the ends of its range, and refuses what is beyond by
 * name, value and range.
 */
static void check_end(const char *section, const struct json_field *field, bool high) {
    int64_t end = (int64_t)(high ? field->max : field->min), beyond = high ? end + 1 : end - 1;
    struct buffer good = {0}, bad = {0}, message = {0};
    struct config c;
    struct error e = {0};
    config_init(&c);
    buffer_printf(&good, "%s.%s=%lld", section, field->name, (long long)end);
    buffer_printf(&bad, "%s.%s=%lld", section, field->name, (long long)beyond);
    buffer_printf(&message, "%s.%s is %lld, allowed is %lld .. %lld", section, field->name,
                  (long long)beyond, (long long)field->min, (long long)field->max);
    if (config_set(&c, good.data, &e)) fail_msg("%s: %s", good.data, e.text);
    assert_int_equal(config_set(&c, bad.data, &e), STATUS_INVALID);
    if (strstr(e.text, message.data) == NULL) fail_msg("%s: %s", bad.data, e.text);
    config_free(&c);
    buffer_free(&good);
    buffer_free(&bad);
    buffer_free(&message);
}

static void test_every_range(void **state) {
    int n = 0;
    (void)state;
    for (int part = 0; part < config_options.count; part++) {
        const struct option_section *section = config_options.parts[part].section;
        for (int i = 0; i < section->count; i++) {
            const struct json_field *field = &section->rows[i].field;
            if (field->type != JSON_INT) continue;
            check_end(section->name, field, false);
            check_end(section->name, field, true);
            n++;
        }
    }
    assert_true(n > 30);
}

static void test_type(void **state) {
    (void)state;
    expect_error("{\"server\": {\"port\": \"80\"}}",
                 "retro.json:1: server.port is \"80\", expected an integer");
    expect_error("{\"server\": {\"port\": 80.5}}",
                 "retro.json:1: server.port is 80.5, expected an integer");
    expect_error("{\"server\": {\"port\": {\"port\": 1}}}",
                 "retro.json:1: server.port is an object, expected an integer");
    expect_error("{\"server\": {\"host\": 1}}",
                 "retro.json:1: server.host is 1, expected a string");
    expect_error("{\"model\": {\"path\": [\"a\"]}}",
                 "retro.json:1: model.path is a list, expected a path");
    expect_error("{\"retrieval\": {\"enabled\": 1}}",
                 "retro.json:1: retrieval.enabled is 1, expected true or false");
    expect_error("{\"retrieval\": {\"min_similarity\": null}}",
                 "retro.json:1: retrieval.min_similarity is null, expected a number");
    expect_error("{\"log\": {\"level\": true}}",
                 "retro.json:1: log.level is true, expected one of error, warn, info, debug");
    expect_error("{\"log\": 7}", "retro.json:1: log is 7, expected an object of options");
    expect_error("[1]", "retro.json: expected an object of sections");
    expect_error("{\"model\": {\"name\": \"a\\u0000b\"}}",
                 "retro.json:1: model.name holds a NUL character");
}

static void test_not_json(void **state) {
    (void)state;
    struct config c;
    struct error e = {0};
    config_init(&c);
    const char *bad[] = {"",
                         "{",
                         "{\"log\": {}",
                         "nonsense",
                         "{\"log\": {}, \"log\": {}}",
                         "{\"log\": {}} x",
                         "{\"server\": {\"port\": 1, \"port\": 2}}",
                         "{\"server\": {\"port\": 99999999999999999999}}"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        assert_int_equal(parse(&c, bad[i], &e), STATUS_INVALID);
        assert_memory_equal(e.text, "retro.json:1:", 13);
    }
    config_free(&c);
}

static int line_of(const char *text, const char *section, const char *name) {
    struct json_place above = {.name = section}, place = {.above = &above, .name = name};
    return json_place_line(name ? &place : &above, (struct text_span){text, strlen(text)});
}

/* The same words as values, in other sections, deeper, in lists, escaped: only the key itself
 * counts. */
static void test_lines(void **state) {
    (void)state;
    const char *text =
        "{\n\"a\": \"k\",\n\"list\": [\"s\", \"k\", {\"k\": 1}],\n\"other\": {\"k\": {\"s\": 1}},\n"
        "\"quote\\\"{\": \"}\\\\\",\n\"s\": {\n\"x\": [\"k\", \"s\"], \"y\": {\"k\": 1},\n\"z\": "
        "\"k\",\n"
        "\"\\u006b\": 5,\n\"\\ud83d\\ude00\": 6}\n}";
    assert_int_equal(line_of(text, "s", "k"), 9);
    assert_int_equal(line_of(text, "s", "z"), 8);
    assert_int_equal(line_of(text, "s", NULL), 6);
    assert_int_equal(line_of(text, "other", "k"), 4);
    assert_int_equal(line_of(text, "quote\"{", NULL), 5);
    assert_int_equal(line_of(text, "s", "\xf0\x9f\x98\x80"), 10);
    assert_int_equal(line_of(text, "k", NULL), 0);
    assert_int_equal(line_of(text, "s", "s"), 0);
    assert_int_equal(line_of(text, "list", "k"), 0);
    expect_error(
        "{\"model\": {\"name\": \"server\\\", port\"},\n\"server\": {\"host\": "
        "\"port\",\n\"p\\u006frt\": -5}}",
        "retro.json:3: server.port is -5, allowed is 0 .. 65535");
}

static void test_set(void **state) {
    (void)state;
    struct config c;
    struct error e = {0};
    config_init(&c);
    const char *good[] = {"retrieval.k=4",
                          "retrieval.enabled=false",
                          "model.path=rel/a=b",
                          "model.name=12",
                          "model.name=true",
                          "log.level=warn",
                          "retrieval.min_similarity=1e-1",
                          "retrieval.collection="};
    for (size_t i = 0; i < ARRAY_COUNT(good); i++)
        assert_int_equal(config_set(&c, good[i], &e), STATUS_OK);
    assert_int_equal(c.retrieval.choice.k, 4);
    assert_false(c.retrieval.choice.enabled);
    assert_string_equal(c.model.path, "rel/a=b");
    assert_string_equal(c.model.name, "true");
    assert_int_equal(c.log.level, LOG_LEVEL_WARN);
    assert_true(c.retrieval.choice.min_similarity == 0.1);
    config_free(&c);
    expect_set_error("retrieval.k",
                     "--set: \"retrieval.k\" has no \"=\"; write --set retrieval.k=4");
    expect_set_error("retrieval.K=1",
                     "--set: unknown option \"retrieval.K\"; did you mean \"retrieval.k\"?");
    expect_set_error("port=1", "--set: unknown option \"port\"; did you mean \"server.port\"?");
    expect_set_error("host=x",
                     "--set: unknown option \"host\"; did you mean \"parallel.host or "
                     "server.host\"?");
    expect_set_error("server.port=x", "--set: server.port is \"x\", expected an integer");
    expect_set_error("server.port=", "--set: server.port is \"\", expected an integer");
    expect_set_error("server.port=70000", "--set: server.port is 70000, allowed is 0 .. 65535");
    expect_set_error("server.port=80 90", "--set: server.port is \"80 90\", expected an integer");
    expect_set_error("retrieval.min_similarity=nan",
                     "--set: retrieval.min_similarity is \"nan\", expected a number");
    expect_set_error("model.name=\xff", "--set: model.name is not valid UTF-8");
    expect_set_error("server.port=\xff", "--set: server.port is not valid UTF-8");
    expect_set_error("=1", "--set: unknown option \"\"; --help lists all");
}

/* Findings of users: what a shell would replace, and types that are made before serving. */
static void test_hints(void **state) {
    (void)state;
    expect_error("{\"model\": {\n\"path\": \"~/models/x\"}}",
                 "retro.json:2: model.path is \"~/models/x\"; ~ and $HOME are not replaced here: "
                 "write the whole path, "
                 "or one relative to the file's folder");
    expect_set_error("retrieval.collection=/x/${HOME}/y",
                     "--set: retrieval.collection is \"/x/${HOME}/y\"; ~ and $HOME are not "
                     "replaced here: write the "
                     "whole path, or one relative to the working directory");
    expect_set_error("model.dtype=int8",
                     "--set: model.dtype is \"int8\", allowed is auto, f32, f16, bf16, fp8; make "
                     "such weights by "
                     "retro-convert MODEL_DIR OUT_DIR --to int8, and keep model.dtype auto");
    struct config c;
    struct error e = {0};
    config_init(&c);
    assert_int_equal(config_set(&c, "model.path=a~b", &e), STATUS_OK);
    assert_int_equal(config_set(&c, "model.name=~$HOME", &e), STATUS_OK);
    config_free(&c);
}

struct list_settings {
    struct json_list keys;
    char *name;
};

static const struct option_row list_rows[] = {
    OPTION_TEXTS(struct list_settings, keys, "keys that are let in"),
    OPTION_TEXT(struct list_settings, name, "x", "a name"),
};
static const struct option_section list_section = {"access", list_rows,
                                                   (int)ARRAY_COUNT(list_rows)};
static const struct option_part list_parts[] = {{&list_section, 0}};
static const struct option_set list_options = {list_parts, 1};

static void expect_list(const struct list_settings *s, const char *printed_list) {
    char *text = NULL;
    size_t size;
    char expected[200];
    FILE *out = open_memstream(&text, &size);
    options_print_json(&list_options, s, out);
    fclose(out);
    snprintf(expected, sizeof expected,
             "{\n    \"access\": {\n        \"keys\": %s,\n        \"name\": \"x\"\n    }\n}\n",
             printed_list);
    assert_string_equal(text, expected);
    free(text);
}

/* A list in the file, one in --set, and items that are added to it. */
static void test_lists(void **state) {
    (void)state;
    static const char file[] = "{\"access\": {\"keys\": [\"a\", \"b\"]}}";
    struct list_settings s = {0};
    struct error e = {0};
    options_init(&list_options, &s);
    expect_list(&s, "[]");
    assert_int_equal(
        options_parse(&list_options, &s, (struct text_span){file, strlen(file)}, "f", "", &e),
        STATUS_OK);
    expect_list(&s, "[\"a\", \"b\"]");
    assert_int_equal(options_assign(&list_options, &s, "access.keys=c \"", &e), STATUS_OK);
    assert_int_equal(options_assign(&list_options, &s, "access.keys=", &e), STATUS_OK);
    expect_list(&s, "[\"a\", \"b\", \"c \\\"\", \"\"]");
    assert_int_equal(options_assign(&list_options, &s, "access.keys=[\"d\"]", &e), STATUS_OK);
    expect_list(&s, "[\"d\"]");
    assert_int_equal(options_assign(&list_options, &s, "access.keys=[1]", &e), STATUS_INVALID);
    assert_string_equal(e.text, "--set: access.keys[0] is 1, expected a string");
    assert_int_equal(options_assign(&list_options, &s, "access.keys=[\"d\"", &e), STATUS_INVALID);
    assert_string_equal(e.text, "--set: access.keys is \"[\"d\"\", expected a list of strings");
    assert_int_equal(options_assign(&list_options, &s, "access.keys=\xff", &e), STATUS_INVALID);
    assert_string_equal(e.text, "--set: access.keys is not valid UTF-8");
    options_free(&list_options, &s);
    assert_null(s.keys.items);
}

static void test_check(void **state) {
    (void)state;
    struct config c;
    struct error e = {0};
    config_init(&c);
    c.retrieval.choice.k = 51;
    assert_int_equal(config_check(&c, &e), STATUS_INVALID);
    assert_string_equal(e.text, "retrieval.k is 51, more than retrieval.max_k, which is 50");
    c.retrieval.choice.k = 16;
    assert_int_equal(config_check(&c, &e), STATUS_OK);
    assert_int_equal(config_set(&c, "server.host=", &e), STATUS_OK);
    assert_int_equal(config_check(&c, &e), STATUS_INVALID);
    config_free(&c);
}

/* Ranks that are started one by one need an address to meet at, and a number that exists. */
static void test_check_rendezvous(void **state) {
    (void)state;
    static const struct {
        const char *set[4], *words; /* NULL: allowed */
    } cases[] = {
        {{"parallel.comm=sockets", "parallel.tensor=2"},
         "parallel.comm sockets needs parallel.rendezvous"},
        {{"parallel.rank=1", "parallel.tensor=2"}, "parallel.rank needs parallel.rendezvous"},
        {{"parallel.rendezvous=a:7000", "parallel.comm=mpi"},
         "parallel.rendezvous is for parallel.comm sockets"},
        {{"parallel.rendezvous=a:7000", "parallel.tensor=2", "parallel.pipeline=2",
          "parallel.rank=4"},
         "parallel.rank is 4; parallel.tensor times parallel.pipeline is 4"},
        {{"parallel.rendezvous=/tmp/f", "parallel.tensor=2"},
         "parallel.rendezvous is \"/tmp/f\"; expected host:port"},
        {{"parallel.rendezvous=[::1]:7000", "parallel.tensor=2"}, NULL},
        {{"parallel.rendezvous=a:7000", "parallel.tensor=2", "parallel.pipeline=2",
          "parallel.rank=3"},
         NULL},
        {{"parallel.rendezvous=a:7000", "parallel.comm=nccl", "parallel.tensor=2"}, NULL},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct config c;
        struct error e = {0};
        config_init(&c);
        for (size_t j = 0; j < ARRAY_COUNT(cases[i].set) && cases[i].set[j]; j++)
            assert_int_equal(config_set(&c, cases[i].set[j], &e), STATUS_OK);
        assert_int_equal(config_check(&c, &e), cases[i].words ? STATUS_INVALID : STATUS_OK);
        if (cases[i].words) assert_non_null(strstr(e.text, cases[i].words));
        config_free(&c);
    }
}

static void set_other(const struct option_row *o, const char *key, void *context) {
    struct error e = {0};
    char text[300] = "";
    const struct json_field *f = &o->field;
    if (f->type == JSON_BOOL)
        snprintf(text, sizeof text, "%s=%s", key, f->fallback != 0 ? "false" : "true");
    if (f->type == JSON_INT) snprintf(text, sizeof text, "%s=%d", key, (int)f->max);
    if (f->type == JSON_DOUBLE) snprintf(text, sizeof text, "%s=0.1234567890123456", key);
    if (f->type == JSON_CHOICE)
        snprintf(text, sizeof text, "%s=%s", key,
                 f->choices[f->choices[0].value == (int)f->fallback].name);
    if (f->type == JSON_TEXT)
        snprintf(text, sizeof text, "%s=a \"b\" \\ \n\t\x01 \xc3\xa9 %s", key, key);
    if (f->type == JSON_LIST && !option_has_structs(o))
        snprintf(text, sizeof text, "%s=[\"a\", \"b c\"]", key);
    bool paths = option_has_structs(o) && f->item->table->count == 1;
    if (paths) snprintf(text, sizeof text, "%s=[{\"path\": \"/p\"}, {\"path\": \"q\"}]", key);
    bool servers = strcmp(key, "tools.mcp") == 0;
    if (servers)
        snprintf(text, sizeof text,
                 "%s=[{\"name\": \"n\", \"command\": [\"c\"], \"tools\": [\"t\"]}]", key);
    if (option_has_structs(o) && !paths && !servers)
        snprintf(
            text, sizeof text,
            "%s=[{\"path\": \"/p\", \"role\": \"embedder\"}, {\"path\": \"q\", \"name\": \"n\"}]",
            key);
    assert_int_equal(config_set(context, text, &e), STATUS_OK);
}

static void find_name(const struct option_row *o, const char *key, void *text) {
    (void)key;
    assert_non_null(strstr(text, o->field.name));
}

static void find_key(const struct option_row *o, const char *key, void *text) {
    (void)o;
    assert_non_null(strstr(text, key));
}

/* Another value for every option of the table, printed, read and printed again. */
static void test_round_trip(void **state) {
    (void)state;
    struct config c, again;
    struct error e = {0};
    config_init(&c);
    visit_options(set_other, &c);
    char *first = printed(&c);
    config_init(&again);
    char *defaults = printed(&again);
    assert_string_not_equal(first, defaults);
    assert_int_equal(config_parse(&again, first, strlen(first), "printed", "", &e), STATUS_OK);
    char *second = printed(&again);
    assert_string_equal(first, second);
    visit_options(find_name, first);
    free(first);
    free(second);
    free(defaults);
    config_free(&c);
    config_free(&again);
}

static void test_read(void **state) {
    (void)state;
    static const char text[] = "{\"model\": {\"path\": \"m\"}}";
    char folder[FOLDER_SIZE], path[FOLDER_PATH_SIZE];
    struct config c;
    struct error e = {0};
    folder_make(folder);
    folder_path(path, folder, "retro.json");
    config_init(&c);
    assert_int_equal(config_read(&c, path, &e), STATUS_IO);
    assert_non_null(strstr(e.text, path));
    assert_int_equal(config_read(&c, folder, &e), STATUS_INVALID);
    folder_write(folder, "retro.json", text, strlen(text));
    assert_int_equal(config_read(&c, path, &e), STATUS_OK);
    assert_memory_equal(c.model.path, folder, strlen(folder));
    assert_string_equal(c.model.path + strlen(folder), "/m");
    assert_int_equal(truncate(path, (1 << 20) + 1), 0);
    assert_int_equal(config_read(&c, path, &e), STATUS_TOO_LARGE);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(config_read(&c, path, &e), STATUS_INVALID);
    config_free(&c);
    folder_remove(folder);
}

static void test_documents(void **state) {
    (void)state;
    char *text = NULL;
    size_t size;
    struct buffer file = {0};
    struct error e = {0};
    FILE *out = open_memstream(&text, &size);
    config_print_markdown(out);
    fclose(out);
    if (file_read("docs/config.md", 1 << 20, &file, &e))
        fail_msg("%s; run make docs/config.md", e.text);
    if (strcmp(file.data, text) != 0)
        fail_msg("docs/config.md is not what the table says; run make docs/config.md");
    free(text);
    buffer_free(&file);
    out = open_memstream(&text, &size);
    config_print_help(out);
    fclose(out);
    visit_options(find_key, text);
    assert_non_null(strstr(text, "(an integer, 0 .. 65535; default 8080)"));
    free(text);
}

/* Further models: each an object, whose path is relative to the file's folder. */
static void test_other_models(void **state) {
    (void)state;
    struct config c;
    struct error e = {0};
    static const char good[] =
        "{\"model\": {\"others\": [{\"path\": \"a\"}, {\"path\": \"/b\", \"role\": "
        "\"embedder\"}]}}";
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"{\"model\": {\"others\": \"a\"}}", "model.others is \"a\", expected a list of objects"},
        {"{\"model\": {\"others\": [\"a\"]}}", "model.others[0] is \"a\", expected an object"},
        {"{\"model\": {\"others\": [{\"name\": \"a\"}]}}", "model.others[0].path is missing"},
        {"{\"model\": {\"others\": [{\"path\": \"~/a\"}]}}", "~ and $HOME are not replaced here"},
        {"{\"model\": {\"others\": [{\"path\": \"a\", \"role\": \"x\"}]}}",
         "allowed is decoder, embedder"},
        {"{\"model\": {\"others\": [{\"path\": \"a\", \"size\": 1}]}}",
         "unknown option model.others[0].size"},
    };
    config_init(&c);
    assert_int_equal(config_parse(&c, good, strlen(good), "retro.json", "/folder", &e), STATUS_OK);
    const struct other_model *others = c.model.others.items;
    assert_int_equal(c.model.others.count, 2);
    assert_string_equal(others[0].path, "/folder/a");
    assert_string_equal(others[0].name, "");
    assert_int_equal(others[0].role, ROLE_DECODER);
    assert_string_equal(others[1].path, "/b");
    assert_int_equal(others[1].role, ROLE_EMBEDDER);
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        assert_int_equal(
            config_parse(&c, cases[i].text, strlen(cases[i].text), "retro.json", "", &e),
            STATUS_INVALID);
        if (strstr(e.text, cases[i].words) == NULL) fail_msg("%s: %s", cases[i].text, e.text);
    }
    assert_int_not_equal(config_set(&c, "model.others=a", &e), STATUS_OK);
    config_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_models),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_range),
        cmocka_unit_test(test_every_range),
        cmocka_unit_test(test_type),
        cmocka_unit_test(test_not_json),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_hints),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_check_rendezvous),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_documents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
