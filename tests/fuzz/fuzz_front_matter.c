/* tests/fuzz/fuzz_front_matter.c: any bytes as the front matter of a Markdown file: what is written
 * is a JSON object whose values filters can compare. */
#include "config/base/hash.h"
#include "config/base/key_set.h"
#include "config/json/json_value.h"
#include "retrieval/extract/front_matter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct names {
    struct key_set set;
    struct json_writer w;
};

static bool begin_member(void *context, struct text_span name) {
    struct names *names = context;
    CHECK(name.size > 0);
    if (!key_set_add(&names->set, hash_bytes(name.text, name.size, 0), name.size)) return false;
    put_key_n(&names->w, name.text, name.size);
    return true;
}

static void check_scalar(const struct json *v) {
    CHECK(json_is_text(v) || json_is_numeric(v) || json_kind(v) == JSON_KIND_BOOL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct names names = {.set = {.n = 0}};
    struct buffer out = {0};
    struct json *object;
    struct error e;
    put_begin(&names.w, &out);
    put_object(&names.w);
    front_matter_read((struct text_span){(const char *)data, size}, &names.w, begin_member, &names);
    put_object_end(&names.w);

    CHECK(json_parse(&object, (struct text_span){out.data, out.size}, "metadata", &e) == STATUS_OK);
    CHECK(json_count(object) == names.set.n);
    for (struct json_entry it = {0}; json_next(object, &it);) {
        if (!json_is_list(it.value)) check_scalar(it.value);
        for (size_t i = 0; json_is_list(it.value) && i < json_count(it.value); i++)
            check_scalar(json_item(it.value, i));
    }
    json_close(object);
    key_set_free(&names.set);
    buffer_free(&out);
    return 0;
}
