/* tests/unit/test_vector_stores.c: records of vector stores in their file, metadata of files, and
 * filters of owners. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "retrieval/filter/scope.h"
#include "server/doors/stores/file_facts.h"
#include "server/doors/stores/registry.h"

static const char one_store[] = "vs_0123456789abcdef0123456789abcdef",
                  other_store[] = "vs_fedcba9876543210fedcba9876543210";

/* Owners. */

static bool allows(const struct filter *filter, const char *metadata) {
    struct buffer facts = {0};
    struct error e;
    assert_int_equal(facts_append(&facts, metadata, &e), STATUS_OK);
    bool ok = filter_allows(filter, &(struct filter_subject){"a", "b", {facts.data, facts.size}});
    buffer_free(&facts);
    return ok;
}

static bool admits(const struct filter *filter, const char *metadata) {
    struct buffer facts = {0};
    struct error e;
    assert_int_equal(facts_append(&facts, metadata, &e), STATUS_OK);
    bool ok = filter_admits(filter, &(struct filter_subject){"a", "b", {facts.data, facts.size}});
    buffer_free(&facts);
    return ok;
}

static void test_owners_see_what_is_nobodys_and_their_own(void **state) {
    struct filter *base = NULL;
    struct error e;
    (void)state;
    assert_int_equal(filter_parse(&base, "{\"eq\":{\"tenant\":\"a\"}}", "base", &e), STATUS_OK);
    for (int i = 0; i < 2; i++) {
        struct filter *own = filter_owned(i ? base : NULL, "$owner", "me");
        const char *t = i ? "\"tenant\":\"a\"" : "\"x\":1";
        char metadata[3][100];
        snprintf(metadata[0], 100, "{%s}", t);
        snprintf(metadata[1], 100, "{%s,\"$owner\":\"me\"}", t);
        snprintf(metadata[2], 100, "{%s,\"$owner\":\"you\"}", t);
        assert_true(allows(own, metadata[0]) && allows(own, metadata[1]));
        assert_false(allows(own, metadata[2]) || admits(own, metadata[2]));
        assert_true(admits(own, metadata[0]) && admits(own, metadata[1]));
        snprintf(metadata[2], 100, "{%s,\"$owner\":[\"me\",\"you\"]}", t);
        assert_false(admits(own, metadata[2]));
        if (i) assert_false(allows(own, "{\"$owner\":\"me\"}"));
        assert_ptr_equal(filter_known(own), i ? base : NULL);
        filter_release(own);
    }
    filter_release(base);
}

static void test_ids_stay_those_of_the_base(void **state) {
    struct filter *base = NULL;
    struct error e;
    (void)state;
    assert_int_equal(filter_parse(&base, "{\"eq\":{\"tenant\":\"a\"}}", "base", &e), STATUS_OK);
    struct filter *own = filter_owned(base, "$owner", "me"),
                  *free_one = filter_owned(NULL, "$owner", "me");
    char *plain = scope_id(base, "report"), *owned = scope_id(own, "report");
    assert_string_equal(plain, owned);
    assert_string_equal(scope_show(own, plain), "report");
    assert_null(scope_id(free_one, "report"));
    assert_null(scope_id(NULL, "report"));
    assert_string_equal(scope_show(free_one, plain), plain);
    filter_refuse(own, &e);
    assert_null(strstr(e.text, "$owner"));
    free(plain);
    free(owned);
    filter_release(own);
    filter_release(free_one);
    filter_release(base);
}

/* Metadata. */

static bool knows_one(const void *context, const char *store) {
    (void)context;
    return strcmp(store, one_store) == 0;
}

static void change(struct buffer *metadata, const char *store, bool is_in, const char *attributes) {
    struct buffer changed = {0};
    struct json *values = NULL;
    struct error e;
    if (attributes)
        assert_int_equal(json_parse(&values, (struct text_span){attributes, strlen(attributes)},
                                    "attributes", &e),
                         STATUS_OK);
    const struct file_metadata_change how = {
        .store = store, .is_in = is_in, .since = 7, .attributes = values, .knows = knows_one};
    assert_int_equal(file_metadata_change(&changed, metadata->data, &how, &e), STATUS_OK);
    json_close(values);
    buffer_free(metadata);
    *metadata = changed;
}

static void test_metadata_says_in_which_stores_a_file_is(void **state) {
    struct buffer metadata = {0}, wanted = {0};
    (void)state;
    file_metadata_begin(&metadata, &(struct file_upload){.purpose = "assistants", .created = 5});
    change(&metadata, one_store, true, "{\"a.b\":1}");
    change(&metadata, one_store, true, "{\"c\":\"x\"}");
    buffer_printf(&wanted,
                  "{\"$purpose\":\"assistants\",\"$created\":5,\"$bytes\":0,\"$%s\":7,\"$%s.c\":"
                  "\"x\"}",
                  one_store, one_store);
    assert_string_equal(metadata.data, wanted.data);
    change(&metadata, other_store, true, "{\"d\":true}");
    change(&metadata, one_store, false, NULL);
    assert_string_equal(metadata.data, "{\"$purpose\":\"assistants\",\"$created\":5,\"$bytes\":0}");
    buffer_free(&metadata);
    buffer_free(&wanted);
}

static void test_names_that_only_look_like_a_store_are_none(void **state) {
    static const char *const names[] = {"$vs_", "$vs_0123", "vs_0123456789abcdef0123456789abcdef",
                                        "$vs_0123456789abcdef0123456789abcdeF",
                                        "$vs_0123456789abcdef0123456789abcdef.x"};
    char id[STORE_ID_BYTES];
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        struct fact fact = {.name = {names[i], strlen(names[i])}, .kind = FACT_INT, .whole = 1};
        assert_false(fact_is_membership(&fact, id));
    }
    struct fact fact = {.name = {"$vs_0123456789abcdef0123456789abcdef", 36}, .kind = FACT_INT};
    assert_true(fact_is_membership(&fact, id));
    assert_string_equal(id, one_store);
    fact.kind = FACT_TEXT;
    assert_false(fact_is_membership(&fact, id));
}

/* Records. */

static void add_store(struct registry *registry, const char *id) {
    struct error e;
    struct records *records = registry_change(registry, &e);
    assert_non_null(records);
    struct store_record *store = list_add(&records->stores, sizeof *store);
    *store = (struct store_record){.id = xstrdup(id),
                                   .owner = xstrdup("me"),
                                   .name = xstrdup("\"n\""),
                                   .metadata = xstrdup("{\"a\":1}"),
                                   .created = 1,
                                   .active = 2,
                                   .days = 3};
    assert_int_equal(registry_write(registry, &e), STATUS_OK);
}

static size_t count_stores(struct registry *registry) {
    struct error e;
    const struct records *records = registry_look(registry, &e);
    assert_non_null(records);
    size_t n = records->stores.count;
    registry_end(registry);
    return n;
}

static void *add_many(void *context) {
    for (int i = 0; i < 20; i++) add_store(context, one_store);
    return NULL;
}

/* Two registries stand for two servers, which change the same file at once. */
static void test_servers_share_the_records(void **state) {
    char folder[] = "/tmp/stores-XXXXXX";
    struct registry *registries[2];
    pthread_t threads[2];
    struct error e;
    (void)state;
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 2; i++)
        assert_int_equal(registry_open(&registries[i], folder, &e), STATUS_OK);
    assert_int_equal(count_stores(registries[0]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, registries[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) assert_int_equal(count_stores(registries[i]), 40);
    uint64_t second = registry_server(registries[1]);
    assert_true(registry_runs(registries[0], second) && registry_runs(registries[1], second));
    registry_close(registries[1]);
    assert_false(registry_runs(registries[0], second) || registry_runs(registries[0], 0));
    registry_close(registries[0]);
}

static void test_records_come_back(void **state) {
    static const char *const bad[] = {
        "",
        "[]",
        "{\"stores\":[{}]}",
        "{\"x\":1}",
        "{\"stores\":[{\"id\":\"a\",\"created\":1,\"active\":1,\"metadata\":\"[]\"}]}",
        "{\"batches\":[{\"id\":\"a\",\"store\":\"b\",\"created\":1,\"server\":\"1\"}]}"};
    static const char text[] =
        "{\"owned\":true,\"expires\":false,\"stores\":[{\"id\":\"vs_a\",\"owner\":\"\",\"name\":"
        "\"n\",\"metadata\":\"{}\",\"created\":1,\"active\":2,\"days\":0}],\"batches\":[{\"id\":"
        "\"vsfb_a\",\"owner\":\"\",\"store\":\"vs_a\",\"created\":1,\"server\":"
        "\"0000000000000001\",\"hidden\":false,\"cancelled\":true,\"files\":[{\"document\":\"d\","
        "\"state\":\"failed\",\"code\":\"c\",\"message\":\"m\",\"gone\":false}]}]}";
    struct buffer out = {0};
    struct records records;
    struct error e;
    (void)state;
    assert_int_equal(records_parse(&records, (struct text_span){text, strlen(text)}, "t", &e),
                     STATUS_OK);
    records_write(&records, &out);
    assert_string_equal(out.data, text);
    records_drop_batch(&records, 0);
    records_drop_store(&records, 0);
    assert_true(records.stores.count == 0 && records.batches.count == 0);
    records_free(&records);
    buffer_free(&out);
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        assert_true(records_parse(&records, (struct text_span){bad[i], strlen(bad[i])}, "t", &e));
        records_free(&records);
    }
}

static void test_a_folder_that_is_away_is_told(void **state) {
    struct registry *registry;
    struct error e;
    (void)state;
    assert_int_equal(registry_open(&registry, "/nonexistent", &e), STATUS_OK);
    for (int i = 0; i < 2; i++) {
        const struct records *records =
            i == 0 ? registry_look(registry, &e) : registry_change(registry, &e);
        assert_null(records);
        assert_int_equal(e.status, STATUS_IO); /* and not that there is no such store */
        assert_non_null(strstr(e.text, "vector_stores.json"));
        assert_null(strstr(e.text, "/nonexistent"));
    }
    registry_close(registry);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_owners_see_what_is_nobodys_and_their_own),
        cmocka_unit_test(test_ids_stay_those_of_the_base),
        cmocka_unit_test(test_metadata_says_in_which_stores_a_file_is),
        cmocka_unit_test(test_names_that_only_look_like_a_store_are_none),
        cmocka_unit_test(test_servers_share_the_records),
        cmocka_unit_test(test_records_come_back),
        cmocka_unit_test(test_a_folder_that_is_away_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
