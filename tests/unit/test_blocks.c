/* tests/unit/test_blocks.c: files of blocks (retro/run/cache/block_file.h), their folder and the
 * index of what it has (server/blocks). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels/backend.h"
#include "server/blocks/block_folder.h"
#include "server/blocks/block_index.h"

enum { IMAGE = 3000, DOCUMENTS = 3 };

struct sample {
    int32_t ids[ATTENTION_BLOCK], read[7];
    char image[IMAGE];
    struct buffer documents;
    struct block_file file;
};

static void sample_open(struct sample *sample, int seed, int n) {
    struct document_part part = {.start = 12, .size = 3456, .known = 99, .hash = 7};
    static const char *const names[DOCUMENTS] = {"a", "", "notes/third.md"};
    *sample = (struct sample){0};
    for (int i = 0; i < ATTENTION_BLOCK; i++) sample->ids[i] = seed * 1000 + i;
    for (int i = 0; i < 7; i++) sample->read[i] = -i;
    for (int i = 0; i < IMAGE; i++) sample->image[i] = (char)(seed + 31 * i);
    for (int i = 0; i < DOCUMENTS; i++) {
        part.id = (struct text_span){names[i], strlen(names[i])};
        document_part_print(&part, &sample->documents);
    }
    sample->file =
        (struct block_file){.identity = 5,
                            .base = 1,
                            .ids = sample->ids,
                            .n = n,
                            .read = sample->read,
                            .n_read = 7,
                            .documents = {sample->documents.data, sample->documents.size},
                            .image = sample->image,
                            .image_bytes = IMAGE};
    block_file_address(&sample->file, &sample->file.address);
}

static void sample_close(struct sample *sample) { buffer_free(&sample->documents); }

static enum status parse(const struct buffer *bytes, size_t size, struct block_file *out) {
    struct error e;
    size_t wanted;
    return block_file_parse(out, (struct text_span){bytes->data, size}, bytes->size, "x", &wanted,
                            &e);
}

static void test_round_trip(void **state) {
    struct sample sample;
    struct buffer bytes = {0};
    struct block_file got;
    struct document_part part;
    size_t at = 0;
    int n = 0;
    (void)state;
    sample_open(&sample, 3, 100);
    block_file_print(&sample.file, &bytes);
    assert_int_equal(bytes.size, block_file_bytes(&sample.file));
    assert_int_equal(parse(&bytes, bytes.size, &got), STATUS_OK);
    assert_int_equal(got.identity, 5);
    assert_int_equal(got.base, 1);
    assert_int_equal(got.n, 100);
    assert_int_equal(got.n_read, 7);
    assert_memory_equal(&got.address, &sample.file.address, sizeof got.address);
    assert_memory_equal(got.ids, sample.ids, 100 * sizeof *got.ids);
    assert_memory_equal(got.read, sample.read, sizeof sample.read);
    assert_int_equal(got.image_bytes, IMAGE);
    assert_memory_equal(got.image, sample.image, IMAGE);
    while (block_file_next_document(got.documents, &at, &part)) {
        assert_int_equal(part.start, 12);
        n++;
    }
    assert_int_equal(n, DOCUMENTS);
    assert_int_equal(part.id.size, strlen("notes/third.md"));
    buffer_free(&bytes);
    sample_close(&sample);
}

/* The head can be read alone, and says how long it is. */
static void test_head_alone(void **state) {
    struct sample sample;
    struct buffer bytes = {0};
    struct block_file got;
    struct error e;
    size_t wanted;
    (void)state;
    sample_open(&sample, 4, ATTENTION_BLOCK);
    block_file_print(&sample.file, &bytes);
    struct text_span few = {bytes.data, 200};
    assert_int_equal(block_file_parse(&got, few, bytes.size, "x", &wanted, &e), STATUS_TOO_LARGE);
    assert_true(wanted > 200 && wanted < bytes.size - IMAGE);
    struct text_span head = {bytes.data, wanted};
    assert_int_equal(block_file_parse(&got, head, bytes.size, "x", &wanted, &e), STATUS_OK);
    assert_null(got.image);
    assert_int_equal(got.n, ATTENTION_BLOCK);
    buffer_free(&bytes);
    sample_close(&sample);
}

/* No bit that is looked at can flip, and no byte can be missing. */
static void test_damage(void **state) {
    struct sample sample;
    struct buffer bytes = {0};
    struct block_file got;
    (void)state;
    sample_open(&sample, 5, ATTENTION_BLOCK);
    block_file_print(&sample.file, &bytes);
    size_t whole = bytes.size, accepted = 0;
    for (size_t i = 0; i < whole; i++) {
        bytes.data[i] ^= (char)(1 << i % 8);
        accepted += parse(&bytes, whole, &got) == STATUS_OK;
        bytes.data[i] ^= (char)(1 << i % 8);
    }
    assert_true(accepted < 64); /* zeros between head and image */
    for (size_t size = 0; size < whole; size += 13) {
        struct error e;
        size_t wanted;
        assert_int_equal(
            block_file_parse(&got, (struct text_span){bytes.data, size}, size, "x", &wanted, &e),
            STATUS_CORRUPT);
    }
    buffer_free(&bytes);
    sample_close(&sample);
}

/* Everything that rows depend on is part of their address. */
static void test_addresses(void **state) {
    struct sample sample;
    struct block_address address;
    (void)state;
    sample_open(&sample, 6, ATTENTION_BLOCK);
    struct block_file others[4] = {sample.file, sample.file, sample.file, sample.file};
    others[0].before.bytes[31] ^= 1;
    others[1].base++;
    others[2].n--;
    others[3].n_read--;
    for (int i = 0; i < 4; i++) {
        block_file_address(&others[i], &address);
        assert_memory_not_equal(&address, &sample.file.address, sizeof address);
    }
    sample_close(&sample);
}

/* The index. */

static struct block_entry *add(struct block_index *index, const struct block_address *before,
                               int seed, int n) {
    struct sample sample;
    struct read_document document = {(uint64_t)seed, 0};
    sample_open(&sample, seed, n);
    if (before) sample.file.before = *before;
    block_file_address(&sample.file, &sample.file.address);
    struct block_entry *entry = block_index_add(index, &sample.file, &document, 1);
    sample_close(&sample);
    return entry;
}

/* Many blocks behind the same rows: each leaves at once, and the latest are seen first. */
static void test_children(void **state) {
    enum { CHILDREN = 5000 };
    struct block_index index = {0};
    struct block_entry *all[CHILDREN], *child = NULL;
    struct block_address none = {{0}};
    (void)state;
    for (int i = 0; i < CHILDREN; i++) all[i] = add(&index, NULL, i, ATTENTION_BLOCK);
    for (int i = 0; i < CHILDREN; i += 2) {
        block_index_take(&index, all[i]);
        block_entry_free(all[i]);
    }
    struct block_entry *latest = add(&index, NULL, CHILDREN, 5);
    assert_ptr_equal(block_index_child(&index, &none, NULL), latest);
    int n = 0;
    while ((child = block_index_child(&index, &none, child)) != NULL) n++;
    assert_int_equal(n, CHILDREN / 2 + 1);
    for (int i = 1; i < CHILDREN; i += 2)
        assert_ptr_equal(block_index_at(&index, &all[i]->address), all[i]);
    block_index_free(&index);
}

static void test_index(void **state) {
    struct block_index index = {0};
    struct block_entry *chain[3];
    (void)state;
    chain[0] = add(&index, NULL, 1, ATTENTION_BLOCK);
    chain[1] = add(&index, &chain[0]->address, 2, ATTENTION_BLOCK);
    chain[2] = add(&index, &chain[1]->address, 3, 20);
    struct block_entry *other = add(&index, &chain[0]->address, 4, ATTENTION_BLOCK);
    for (int i = 10; i < 1000; i++) add(&index, NULL, i, ATTENTION_BLOCK);
    assert_int_equal(index.n, 994);
    assert_ptr_equal(block_index_at(&index, &chain[2]->address), chain[2]);
    assert_true(block_entry_names(chain[2], 3) && !block_entry_names(chain[2], 2));

    int children = 0;
    for (struct block_entry *child = block_index_child(&index, &chain[0]->address, NULL); child;
         child = block_index_child(&index, &chain[0]->address, child)) {
        assert_true(child == chain[1] || child == other);
        children++;
    }
    assert_int_equal(children, 2);

    /* The end of a text brings its beginning along, which leaves last. */
    block_index_use(&index, chain[2], 100);
    assert_ptr_equal(index.newest, chain[0]);
    assert_ptr_equal(index.newest->older, chain[1]);
    assert_ptr_equal(index.oldest, other);
    int64_t bytes = index.bytes;
    block_index_take(&index, other);
    assert_int_equal(index.bytes, bytes - (int64_t)other->bytes);
    assert_null(block_index_at(&index, &other->address));
    block_entry_free(other);

    /* By when they were used, whatever the order in which they came. */
    chain[0]->used = 1;
    block_index_sort(&index);
    assert_ptr_equal(index.newest, chain[0]);
    assert_ptr_equal(index.newest->older->older, chain[2]);
    block_index_free(&index);
}

static void test_cover(void **state) {
    struct block_index index = {0};
    struct sample sample;
    (void)state;
    sample_open(&sample, 9, 50);
    struct block_entry *whole = add(&index, NULL, 9, 60);
    assert_true(block_entry_covers(whole, &sample.file));
    sample.ids[49]++;
    assert_false(block_entry_covers(whole, &sample.file));
    sample.ids[49]--;
    sample.file.base = 0;
    assert_false(block_entry_covers(whole, &sample.file));
    block_index_free(&index);
    sample_close(&sample);
}

/* The folder. */

struct seen {
    int n;
    struct block_address last;
};

static void take(void *context, const struct block_file *file, int64_t used) {
    struct seen *seen = context;
    assert_true(used > 0);
    seen->n++;
    seen->last = file->address;
}

static void write_sample(const struct block_folder *folder, struct sample *sample) {
    struct buffer bytes = {0};
    struct error e;
    block_file_print(&sample->file, &bytes);
    assert_int_equal(block_folder_write(folder, &sample->file.address, &bytes, &e), STATUS_OK);
    buffer_free(&bytes);
}

static void test_folder(void **state) {
    char place[] = "/tmp/blocks-XXXXXX", path[64];
    struct block_folder folder, second;
    struct sample one, foreign;
    struct buffer bytes = {0};
    struct block_file file;
    struct error e;
    struct seen seen = {0};
    (void)state;
    assert_non_null(mkdtemp(place));
    snprintf(path, sizeof path, "%s/rows", place);
    assert_int_equal(block_folder_open(&folder, path, &e), STATUS_OK);
    assert_int_equal(block_folder_open(&second, path, &e), STATUS_BUSY);

    sample_open(&one, 1, 64);
    sample_open(&foreign, 2, 64);
    foreign.file.identity = 6;
    write_sample(&folder, &one);
    write_sample(&folder, &foreign);
    assert_int_equal(block_folder_read(&folder, &one.file.address, &bytes, &file, &e), STATUS_OK);
    assert_memory_equal(file.image, one.image, IMAGE);

    struct block_scan scan = {.identity = 5, .take = take, .context = &seen};
    assert_int_equal(block_folder_scan(&folder, &scan, &e), STATUS_OK);
    assert_int_equal(seen.n, 1);
    assert_memory_equal(&seen.last, &one.file.address, sizeof seen.last);
    assert_int_equal(scan.n_foreign, 1);
    assert_int_equal(scan.n_broken, 0);
    assert_true(block_folder_read(&folder, &foreign.file.address, &bytes, &file, &e) != STATUS_OK);

    block_folder_remove(&folder, &one.file.address);
    assert_true(block_folder_read(&folder, &one.file.address, &bytes, &file, &e) != STATUS_OK);
    block_folder_close(&folder);
    assert_int_equal(chmod(path, 0750), 0);
    assert_int_equal(block_folder_open(&folder, path, &e), STATUS_INVALID);

    row_bytes_free(&bytes);
    sample_close(&one);
    sample_close(&foreign);
    snprintf(path, sizeof path, "%s/rows/LOCK", place);
    unlink(path);
    snprintf(path, sizeof path, "%s/rows", place);
    rmdir(path);
    rmdir(place);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_head_alone),
        cmocka_unit_test(test_damage),     cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_children),   cmocka_unit_test(test_index),
        cmocka_unit_test(test_cover),      cmocka_unit_test(test_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
