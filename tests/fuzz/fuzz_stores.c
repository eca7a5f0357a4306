/* tests/fuzz/fuzz_stores.c: any bytes as the records of vector stores, which come back as they
 * were; as the body of a search of a store, whose filter is one of this server's or is refused; and
 * as the metadata of a file that is put into a store and taken out. */
#include <stdlib.h>
#include <string.h>

#include "server/doors/stores/file_facts.h"
#include "server/doors/stores/stores.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char store[] = "vs_0123456789abcdef0123456789abcdef";

static void check_records(struct text_span text) {
    struct records records, again;
    struct buffer first = {0}, second = {0};
    struct error e;
    if (records_parse(&records, text, "input", &e) == STATUS_OK) {
        records_write(&records, &first);
        CHECK(records_parse(&again, (struct text_span){first.data, first.size}, "again", &e) ==
              STATUS_OK);
        records_write(&again, &second);
        CHECK(first.size == second.size && memcmp(first.data, second.data, first.size) == 0);
        records_free(&again);
    }
    records_free(&records);
    buffer_free(&first);
    buffer_free(&second);
}

static void check_choice(const struct json *root) {
    struct store_set stores = {.n = 2};
    struct buffer out = {0};
    struct json_writer w;
    struct failure failure = {0};
    struct filter *filter = NULL;
    struct json *written = NULL;
    struct error e;
    strcpy(stores.ids[0], store);
    strcpy(stores.ids[1], collection_store);
    const struct store_choice choice = {&stores,
                                        "me",
                                        json_member(root, "filters"),
                                        json_member(root, "max_num_results"),
                                        json_member(root, "ranking_options"),
                                        3};
    put_begin(&w, &out);
    put_object(&w);
    if (store_put_choice(&w, &choice, "filters", &failure)) {
        put_object_end(&w);
        CHECK(json_parse(&written, (struct text_span){out.data, out.size}, "written", &e) ==
              STATUS_OK);
        struct json_reader reader = {.name = "filter", .e = &e};
        const struct json *value = json_member(written, "filter");
        if (value && filter_read(&filter, &reader, value) == STATUS_OK) filter_release(filter);
        json_close(written);
    } else {
        CHECK(failure.http == 400 && failure.message[0] != '\0');
    }
    failure_free(&failure);
    buffer_free(&out);
}

static bool knows_none(const void *context, const char *id) {
    (void)context, (void)id;
    return false;
}

static void check_metadata(const char *text, const struct json *root) {
    struct file_metadata_change change = {
        .store = store, .is_in = true, .since = 1, .knows = knows_none};
    struct buffer with = {0}, facts = {0};
    struct json_writer w;
    struct buffer shown = {0};
    struct error e;
    if (json_kind(root) != JSON_KIND_OBJECT) return;
    CHECK(file_metadata_change(&with, text, &change, &e) == STATUS_OK);
    CHECK(facts_append(&facts, with.data, &e) == STATUS_OK);
    struct stored_document document = {.facts = {facts.data, facts.size}};
    struct file_facts told;
    file_facts_read(&told, &document);
    put_begin(&w, &shown);
    put_object(&w);
    put_key_attributes(&w, with.data, store);
    put_object_end(&w);
    CHECK(strcmp(shown.data, "{\"attributes\":{}}") == 0);
    buffer_free(&shown);
    buffer_free(&with);
    buffer_free(&facts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = xstrndup((const char *)data, size);
    struct json *root = NULL;
    struct error e;
    check_records((struct text_span){text, size});
    if (strlen(text) == size && json_parse(&root, (struct text_span){text, size}, "in", &e) == 0) {
        check_choice(root);
        check_metadata(text, root);
    }
    json_close(root);
    free(text);
    return 0;
}
