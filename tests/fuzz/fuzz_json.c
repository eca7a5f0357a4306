/* tests/fuzz/fuzz_json.c: any bytes as a JSON document: what is parsed is written and parsed again
 * to the same text, every member has a line, and a table of every type takes it or says why not. */
#include <stdlib.h>
#include <string.h>

#include "config/json/json_raw.h"
#include "config/json/json_table.h"
#include "config/json/json_writer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct inner {
    int depth;
};

struct everything {
    bool flag;
    int count, choice;
    int64_t wide;
    uint64_t hash;
    float ratio;
    double exact;
    char *text;
    struct inner inner;
    struct json_list ids, texts, inners;
    const struct json *raw;
};

static const struct json_choice choices[] = {{"a", 1}, {"b", 2}, {NULL, 0}};
static const struct json_field inner_fields[] = {
    {"d|depth", JSON_INT, JSON_AT(struct inner, depth), .min = 1, .max = 9, .required = true},
};
static const struct json_table inner_table = JSON_TABLE(inner_fields);
static const struct json_field id_item = {"", JSON_INT, .min = 0, .max = 99};
static const struct json_field text_item = {.name = "", .type = JSON_TEXT};
static const struct json_field inner_item = {"", JSON_STRUCT, .table = &inner_table};

#define AT(member) JSON_AT(struct everything, member)
static const struct json_field fields[] = {
    {"f", JSON_BOOL, AT(flag), .fallback = 1},
    {"n|count", JSON_INT, AT(count), .min = 1, .max = 512, .fallback = 3},
    {"c", JSON_CHOICE, AT(choice), .choices = choices},
    {"w", JSON_INT64, AT(wide)},
    {"h", JSON_HEX, AT(hash)},
    {"r", JSON_FLOAT, AT(ratio)},
    {"e", JSON_DOUBLE, AT(exact), .min = -1, .max = 1},
    {"t", JSON_TEXT, AT(text), .text = "none"},
    {"i", JSON_STRUCT, AT(inner), .table = &inner_table},
    {"ids", JSON_LIST, AT(ids), .item = &id_item, .item_size = sizeof(int), .max = 5,
     .or_one = true},
    {"ts", JSON_LIST, AT(texts), .item = &text_item, .item_size = sizeof(char *)},
    {"is", JSON_LIST, AT(inners), .item = &inner_item, .item_size = sizeof(struct inner)},
    {"v", JSON_RAW, AT(raw)},
    {"1", JSON_NEUTRAL, .min = 1},
    {.name = "no", .type = JSON_MUST_BE_FALSE},
    {.name = "none", .type = JSON_EMPTY},
    {.name = "x", .type = JSON_IGNORED},
};
#undef AT
static const struct json_table table = JSON_TABLE(fields);

static void write(const struct json *root, struct buffer *out) {
    struct json_writer w;
    put_begin_indented(&w, out, 1);
    put_json(&w, root);
}

static void check_written(const struct json *root) {
    struct buffer first = {0}, second = {0};
    struct error e = {0};
    struct json *again;
    write(root, &first);
    CHECK(json_parse(&again, (struct text_span){first.data, first.size}, "written", &e) ==
          STATUS_OK);
    write(again, &second);
    CHECK(first.size == second.size && memcmp(first.data, second.data, first.size) == 0);
    json_close(again);
    buffer_free(&first);
    buffer_free(&second);
}

static void check_lines(const struct json *root, struct text_span text) {
    for (struct json_entry it = {0}; json_next(root, &it);)
        CHECK(json_place_line(&(struct json_place){.name = it.name.text}, text) > 0);
    for (size_t i = 0; json_is_list(root) && i < json_count(root); i++)
        CHECK(json_place_line(&(struct json_place){.item = i}, text) > 0);
}

static void check_table(const struct json *root, struct text_span text) {
    struct everything out = {0};
    struct error e = {0};
    struct json_reader r = {.name = "input", .text = text, .e = &e};
    enum status status = json_table_read(&r, &table, root, &out);
    CHECK(r.place == NULL);
    CHECK(status == STATUS_OK ||
          (e.status == status && e.text[0] != '\0' && r.fault != JSON_FAULT_NONE));
    if (status == STATUS_OK)
        CHECK(out.count >= 1 && out.count <= 512 && out.ids.count <= 5 && out.text);
    json_table_free(&table, &out);
}

/* JSON is JSON on one line as well, and so are its parts. */
static void check_raw(struct text_span text, enum json_kind kind) {
    struct buffer spaced = {0};
    struct text_span name, value;
    json_respace(text, &spaced);
    CHECK(json_check((struct text_span){spaced.data, spaced.size}) == kind);
    CHECK(memchr(spaced.data, '\n', spaced.size) == NULL);
    struct json_walk walk = json_walk_begin(text);
    while (json_walk_next(&walk, &name, &value)) {
        CHECK(json_check(value) != JSON_KIND_ABSENT);
        CHECK(!walk.object || json_check(name) == JSON_KIND_TEXT);
    }
    buffer_free(&spaced);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct text_span text = {(const char *)data, size};
    enum json_kind kind = size <= 4096 ? json_check(text) : JSON_KIND_ABSENT;
    if (kind != JSON_KIND_ABSENT) check_raw(text, kind);
    struct error e = {0};
    struct json *root;
    if (json_parse(&root, text, "input", &e)) {
        CHECK(root == NULL && e.text[0] != '\0');
        return 0;
    }
    CHECK(size > 4096 || kind == json_kind(root));
    check_written(root);
    if (size <= 4096) check_lines(root, text);
    check_table(root, text);
    json_close(root);
    return 0;
}
