/* tests/unit/test_weights.c: the safetensors reader on good files and on every kind of damage,
 * built in memory. */
#include <stdlib.h>
#include <string.h>

#include "config/base/buffer.h"
#include "retro/weights/weights.h"
#include "tests/folder.h"

/* The bytes of a file with this header and `data` bytes 0, 1, 2 ... behind it. */
static struct buffer make_file(const char *header, size_t data) {
    struct buffer b = {0};
    uint8_t size[8];
    for (int i = 0; i < 8; i++) size[i] = (uint8_t)((uint64_t)strlen(header) >> (8 * i));
    buffer_append(&b, size, 8);
    buffer_append_string(&b, header);
    for (size_t i = 0; i < data; i++) buffer_append(&b, &(char){(char)i}, 1);
    return b;
}

static enum status open_file(struct weights **w, const char *header, size_t data, struct buffer *b,
                             struct error *e) {
    *b = make_file(header, data);
    return weights_open_memory(w, b->data, b->size, "m", e);
}

static void expect_error(const char *header, size_t data, enum status status, const char *message) {
    struct buffer b;
    struct weights *w = (struct weights *)&b;
    struct error e = {0};
    assert_int_equal(open_file(&w, header, data, &b, &e), status);
    assert_null(w);
    assert_int_equal(e.status, status);
    if (strstr(e.text, message) == NULL) fail_msg("expected \"%s\" in: %s", message, e.text);
    buffer_free(&b);
}

static const char two[] =
    "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_"
    "offsets\":[8,20]},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}  ";

static void test_good(void **state) {
    (void)state;
    struct buffer b;
    struct weights *w;
    struct error e = {0};
    char text[40];
    assert_int_equal(open_file(&w, two, 20, &b, &e), STATUS_OK);
    assert_int_equal(weights_count(w), 2);
    assert_string_equal(weights_at(w, 0)->name, "a");
    const struct stored_tensor *t = weights_find(w, "b");
    assert_ptr_equal(t, weights_at(w, 1));
    assert_int_equal(t->dtype, STORED_BF16);
    assert_int_equal(t->elements, 6);
    assert_int_equal(t->bytes, 12);
    assert_string_equal(stored_shape_text(t, text, sizeof text), "[2, 3]");
    assert_string_equal(stored_shape_text(t, text, 4), "[2,");
    for (int i = 0; i < 12; i++) assert_int_equal(((const uint8_t *)t->data)[i], 8 + i);
    assert_null(weights_find(w, "c"));
    assert_null(weights_find(w, "__metadata__"));
    weights_close(w);
    buffer_free(&b);
}

static void test_empty_and_scalar(void **state) {
    (void)state;
    struct buffer b;
    struct weights *w;
    struct error e = {0};
    assert_int_equal(open_file(&w, "{}", 0, &b, &e), STATUS_OK);
    assert_int_equal(weights_count(w), 0);
    assert_null(weights_find(w, "a"));
    weights_close(w);
    buffer_free(&b);
    assert_int_equal(open_file(&w,
                               "{\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
                               "\"z\":{\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[8,8]},"
                               "\"y\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[8,9]}}",
                               9, &b, &e),
                     STATUS_OK);
    assert_int_equal(weights_find(w, "s")->elements, 1);
    assert_int_equal(weights_find(w, "z")->bytes, 0);
    weights_close(w);
    buffer_free(&b);
}

/* A byte before an f64: wherever the file lies in memory, one of nine headers of growing length
 * misaligns it. */
static void test_alignment(void **state) {
    (void)state;
    for (int padding = 0; padding < 9; padding++) {
        char header[200];
        struct buffer b;
        struct weights *w;
        struct error e = {0};
        snprintf(header, sizeof header,
                 "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                 "\"b\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[1,17]}}%*s",
                 padding, "");
        assert_int_equal(open_file(&w, header, 17, &b, &e), STATUS_OK);
        const struct stored_tensor *t = weights_find(w, "b");
        assert_int_equal((uintptr_t)t->data % 8, 0);
        for (int i = 0; i < 16; i++) assert_int_equal(((const uint8_t *)t->data)[i], 1 + i);
        weights_close(w);
        buffer_free(&b);
    }
}

static void test_header_size(void **state) {
    (void)state;
    struct weights *w;
    struct error e = {0};
    for (size_t size = 0; size < 8; size++)
        assert_int_equal(weights_open_memory(&w, "\0\0\0\0\0\0\0", size, "m", &e), STATUS_CORRUPT);
    assert_int_equal(weights_open_memory(&w, "\0\0\0\0\0\0\0\0{}", 10, "m", &e), STATUS_CORRUPT);
    assert_int_equal(weights_open_memory(&w, "\3\0\0\0\0\0\0\0{}", 10, "m", &e), STATUS_CORRUPT);
    assert_int_equal(weights_open_memory(&w, "\377\377\377\377\377\377\377\377{}", 10, "m", &e),
                     STATUS_CORRUPT);
    assert_int_equal(weights_open_memory(&w, "\2\0\0\0\0\0\0\0{}", 10, "m", &e), STATUS_OK);
    weights_close(w);
    size_t size = (8 << 20) + 64; /* the header alone is over the limit */
    char *big = calloc(1, size);
    assert_non_null(big);
    big[0] = 1;
    big[2] = (char)0x80;
    big[8] = '{';
    assert_int_equal(weights_open_memory(&w, big, size, "m", &e), STATUS_TOO_LARGE);
    free(big);
}

#define T(dtype, shape, offsets) \
    "\"t\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define ONE(dtype, shape, offsets) "{" T(dtype, shape, offsets) "}"

static void test_damage(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        enum status status;
        const char *message;
    } cases[] = {
        {" {}", 0, STATUS_CORRUPT, "does not start"},
        {"[]", 0, STATUS_CORRUPT, "does not start"},
        {"{\"t\"", 0, STATUS_INVALID, "not JSON"},
        {"{" T("U8", "[1]", "[0,1]") "," T("U8", "[1]", "[1,2]") "}", 2, STATUS_INVALID,
         "duplicate"},
        {"{\"t\":1}", 0, STATUS_CORRUPT, "not described by an object"},
        {"{\"t\":{}}", 0, STATUS_CORRUPT, "\"dtype\" is not a string"},
        {"{\"__metadata__\":{\"a\":1}}", 0, STATUS_CORRUPT, "__metadata__"},
        {"{\"__metadata__\":[]}", 0, STATUS_CORRUPT, "__metadata__"},
        {ONE("F8_E5M2", "[1]", "[0,1]"), 1, STATUS_UNSUPPORTED, "F8_E5M2"},
        {ONE("f32", "[1]", "[0,4]"), 4, STATUS_UNSUPPORTED, "f32"},
        {ONE("F32", "1", "[0,4]"), 4, STATUS_CORRUPT, "\"shape\" is not a list"},
        {ONE("F32", "[1.0]", "[0,4]"), 4, STATUS_CORRUPT, "not a whole number"},
        {ONE("F32", "[-1]", "[0,4]"), 4, STATUS_CORRUPT, "not a whole number"},
        {ONE("F32", "[\"1\"]", "[0,4]"), 4, STATUS_CORRUPT, "not a whole number"},
        {ONE("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, STATUS_UNSUPPORTED, "9 dimensions"},
        {ONE("U8", "[4294967296,4294967297]", "[0,4]"), 4, STATUS_CORRUPT, "overflows"},
        {ONE("F32", "[4611686018427387905]", "[0,4]"), 4, STATUS_CORRUPT, "overflows"},
        {ONE("F32", "[18446744073709551617]", "[0,4]"), 4, STATUS_INVALID, "not JSON"},
        {ONE("F32", "[1]", "[0]"), 4, STATUS_CORRUPT, "list of two integers"},
        {ONE("F32", "[1]", "[0,4,4]"), 4, STATUS_CORRUPT, "list of two integers"},
        {ONE("F32", "[1]", "[0,4.0]"), 4, STATUS_CORRUPT, "list of two integers"},
        {ONE("F32", "[1]", "{}"), 4, STATUS_CORRUPT, "list of two integers"},
        {ONE("F32", "[1]", "[-4,0]"), 4, STATUS_CORRUPT, "bytes -4 to 0"},
        {ONE("F32", "[1]", "[4,0]"), 4, STATUS_CORRUPT, "bytes 4 to 0"},
        {ONE("F32", "[1]", "[0,4]"), 3, STATUS_CORRUPT, "the file holds 0 to 3"},
        {ONE("F32", "[1]", "[4,8]"), 4, STATUS_CORRUPT, "the file holds 0 to 4"},
        {ONE("F32", "[1]", "[0,3]"), 4, STATUS_CORRUPT, "takes 4 bytes, \"data_offsets\" give 3"},
        {ONE("F32", "[2]", "[0,4]"), 8, STATUS_CORRUPT, "takes 8 bytes, \"data_offsets\" give 4"},
        {ONE("F32", "[1]", "[0,4]"), 5, STATUS_CORRUPT, "take 4 bytes, the file holds 5"},
        {ONE("F32", "[1]", "[1,5]"), 5, STATUS_CORRUPT, "with a hole behind"},
        {"{}", 1, STATUS_CORRUPT, "take 0 bytes, the file holds 1"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}," T("U8", "[2]",
                                                                             "[1,3]") "}",
         3, STATUS_CORRUPT, "overlapping"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}," T("U8", "[2]",
                                                                             "[0,2]") "}",
         2, STATUS_CORRUPT, "overlapping"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        expect_error(cases[i].header, cases[i].data, cases[i].status, cases[i].message);
}

/* Reads every byte that an opened file hands out, so that a sanitizer sees a bad pointer. */
static unsigned read_everything(const struct weights *w) {
    unsigned sum = 0;
    for (int i = 0; i < weights_count(w); i++) {
        const struct stored_tensor *t = weights_at(w, i);
        for (size_t j = 0; j < t->bytes; j++) sum += ((const uint8_t *)t->data)[j];
    }
    return sum;
}

/* Every single bit flip and every truncation either fails with words or still describes the 20
 * bytes exactly. */
static void test_bit_flips(void **state) {
    (void)state;
    struct buffer b = make_file(two, 20);
    int rejected = 0;
    size_t header = b.size - 20;
    for (size_t bit = 0; bit < 8 * header; bit++) {
        struct weights *w;
        struct error e = {0};
        b.data[bit / 8] ^= (char)(1 << bit % 8);
        if (weights_open_memory(&w, b.data, b.size, "m", &e)) {
            assert_true(e.text[0] != '\0');
            rejected++;
        } else {
            size_t bytes = 0;
            for (int i = 0; i < weights_count(w); i++) bytes += weights_at(w, i)->bytes;
            assert_int_equal(bytes, 20);
            assert_int_equal(read_everything(w), 190);
            weights_close(w);
        }
        b.data[bit / 8] ^= (char)(1 << bit % 8);
    }
    assert_true(rejected > 500);
    for (size_t size = 0; size < b.size; size++) {
        struct weights *w;
        struct error e = {0};
        assert_int_not_equal(weights_open_memory(&w, b.data, size, "m", &e), STATUS_OK);
    }
    buffer_free(&b);
}

static void write_tensor(const char *file, const char *tensor) {
    char header[100];
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", tensor);
    struct buffer b = make_file(header, 8);
    folder_write(test_folder, file, b.data, b.size);
    buffer_free(&b);
}

static void write_index(const char *json) {
    folder_write(test_folder, "model.safetensors.index.json", json, strlen(json));
}

static void test_one_file(void **state) {
    (void)state;
    struct weights *w;
    struct error e = {0};
    assert_int_equal(weights_open(&w, test_folder, &e), STATUS_NOT_FOUND);
    assert_int_equal(weights_open(&w, "/nowhere/at/all", &e), STATUS_NOT_FOUND);
    write_tensor("model.safetensors", "only");
    assert_int_equal(weights_open(&w, test_folder, &e), STATUS_OK);
    assert_non_null(weights_find(w, "only"));
    assert_int_equal(read_everything(w), 28);
    weights_close(w);
    char path[FOLDER_PATH_SIZE];
    folder_path(path, test_folder, "model.safetensors");
    assert_int_equal(weights_open(&w, path, &e), STATUS_OK);
    weights_close(w);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(weights_open(&w, path, &e), STATUS_CORRUPT);
    assert_non_null(strstr(e.text, path));
}

static void test_shards(void **state) {
    (void)state;
    struct weights *w;
    struct error e = {0};
    write_tensor("1.safetensors", "x");
    write_tensor("2.safetensors", "a");
    write_index(
        "{\"metadata\":{},\"weight_map\":{\"x\":\"1.safetensors\",\"a\":\"2.safetensors\"}}");
    assert_int_equal(weights_open(&w, test_folder, &e), STATUS_OK);
    assert_int_equal(weights_count(w), 2);
    assert_string_equal(weights_at(w, 0)->name, "a");
    assert_int_equal(read_everything(w), 56);
    weights_close(w);
}

/* Folders as they were before safetensors, and in the form of Mistral's own programs. */
static void test_other_weights(void **state) {
    (void)state;
    static const char *const cases[][2] = {{"pytorch_model.bin", "save_pretrained"},
                                           {"consolidated.safetensors", "Hugging Face files"}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct weights *w;
        struct error e = {0};
        char path[300];
        snprintf(path, sizeof path, "%s/%s", test_folder, cases[i][0]);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fclose(file);
        assert_int_equal(weights_open(&w, test_folder, &e), STATUS_NOT_FOUND);
        assert_non_null(strstr(e.text, "neither model.safetensors"));
        assert_non_null(strstr(e.text, cases[i][1]));
        unlink(path);
    }
}

static void test_bad_index(void **state) {
    (void)state;
    static const struct {
        const char *json;
        enum status status;
        const char *message;
    } cases[] = {
        {"", STATUS_INVALID, "not JSON"},
        {"{}", STATUS_CORRUPT, "\"weight_map\" is not an object"},
        {"{\"weight_map\":{\"x\":1}}", STATUS_CORRUPT, "not a plain name"},
        {"{\"weight_map\":{\"x\":\"\"}}", STATUS_CORRUPT, "not a plain name"},
        {"{\"weight_map\":{\"x\":\"..\"}}", STATUS_CORRUPT, "not a plain name"},
        {"{\"weight_map\":{\"x\":\"../1.safetensors\"}}", STATUS_CORRUPT, "not a plain name"},
        {"{\"weight_map\":{\"x\":\"/etc/passwd\"}}", STATUS_CORRUPT, "not a plain name"},
        {"{\"weight_map\":{\"x\":\"1.safetensors\\u0000\"}}", STATUS_CORRUPT, "not a plain name"},
        {"{\"weight_map\":{\"x\":\"3.safetensors\"}}", STATUS_IO, "3.safetensors"},
        {"{\"weight_map\":{\"y\":\"1.safetensors\"}}", STATUS_CORRUPT,
         "\"y\" is not in 1.safetensors"},
        {"{\"weight_map\":{\"x\":\"1.safetensors\",\"y\":\"2.safetensors\"}}", STATUS_CORRUPT,
         "in two shards"},
    };
    write_tensor("1.safetensors", "x");
    write_tensor("2.safetensors", "x");
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct weights *w;
        struct error e = {0};
        write_index(cases[i].json);
        assert_int_equal(weights_open(&w, test_folder, &e), cases[i].status);
        assert_null(w);
        if (strstr(e.text, cases[i].message) == NULL)
            fail_msg("expected \"%s\" in: %s", cases[i].message, e.text);
    }
    struct weights *w;
    struct error e = {0};
    write_tensor("2.safetensors", "y");
    write_index(
        "{\"weight_map\":{\"y\":\"1.safetensors\",\"x\":\"2.safetensors\"}}"); /* the wrong way
                                                                                  round */
    assert_int_equal(weights_open(&w, test_folder, &e), STATUS_CORRUPT);
}

/* Stacked experts become tensors of their own, also where they lie at an odd byte and are copied.
 */
static void test_experts(void **state) {
    (void)state;
    static const char header[] =
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"mlp.experts.gate_up_proj\":{\"dtype\":\"F32\",\"shape\":[3,2,2],\"data_offsets\":[1,49]}"
        ","
        "\"mlp.experts.down_proj\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[49,65]}}";
    struct buffer b;
    struct weights *w;
    struct error e = {0};
    assert_int_equal(open_file(&w, header, 65, &b, &e), STATUS_OK);
    assert_int_equal(weights_count(w), 5);
    assert_null(weights_find(w, "mlp.experts.gate_up_proj"));
    assert_non_null(weights_find(w, "mlp.experts.down_proj")); /* two dimensions: no stack */
    const struct stored_tensor *t = weights_find(w, "mlp.experts.2.gate_up_proj.weight");
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->shape[1], 2);
    assert_int_equal(t->bytes, 16);
    for (int i = 0; i < 16; i++) assert_int_equal(((const uint8_t *)t->data)[i], 33 + i);
    weights_close(w);
    buffer_free(&b);
    expect_error(
        "{\"experts\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"x.experts.down_proj\":{\"dtype\":\"U8\",\"shape\":[5,0,1],\"data_offsets\":[1,1]}}",
        1, STATUS_CORRUPT, "tensor \"x.experts.down_proj\": expected 3 dimensions, experts first");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_empty_and_scalar),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_header_size),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_bit_flips),
        cmocka_unit_test(test_experts),
        cmocka_unit_test_setup_teardown(test_one_file, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(test_shards, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(test_other_weights, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(test_bad_index, folder_set_up, folder_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
