/* tests/fuzz/fuzz_tables.c: a text with marks of blocks and cells anywhere, as a stored document:
 * its tables are read, and asked. Each four bytes at the beginning are a mark, up to a zero; the
 * rest is the text. */
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/tables/table_ask.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add_mark(struct buffer *marks, const uint8_t *bytes, size_t *at, size_t text_size) {
    *at += bytes[1];
    if (*at > text_size) *at = text_size;
    size_t left = text_size - *at;
    switch (bytes[0] % 4) {
        case 0:
        case 1:
            marks_add_block(marks, (enum block_kind)(1 + bytes[2] % (BLOCK_KIND_COUNT - 1)), *at);
            break;
        case 2: marks_add_cell(marks, *at, 1 + bytes[2] % 16U, 1 + bytes[3] % 16U); break;
        default:
            marks_add(marks, MARK_HEADING, 1 + bytes[2] % MARK_LEVELS, *at,
                      bytes[3] < left ? bytes[3] : left);
    }
}

static void ask(const struct data_table *table, uint8_t choice) {
    static const char *const groups[] = {"A", "B:month", "C:year", "Group", ""};
    struct table_reply reply = {0};
    struct error e;
    struct table_question question = {.limit = 3, .with_totals = choice & 1};
    if (choice & 2) {
        question.measures[0] = (struct table_measure){.kind = choice % 5, .column = "B"};
        question.measures[1] = (struct table_measure){.kind = MEASURE_COUNT};
        question.n_measures = 2;
    }
    if (choice & 4) {
        question.groups[0] = groups[choice % 5];
        question.n_groups = 1;
    }
    if (choice & 8) {
        question.conditions[0] = (struct table_condition){
            .column = "A", .is = choice % 9, .values = {{"2", 1}, {"2024", 4}}, .n_values = 2};
        question.n_conditions = 1;
    }
    enum status status = table_ask(table, &question, &reply, &e);
    CHECK(status == STATUS_OK || (e.status == status && status != STATUS_INTERNAL));
    table_reply_free(&reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct buffer marks = {0};
    struct data_tables tables = {0};
    struct data_table record = {.n_columns = 0};
    size_t n = 0, at = 0;
    if (size < 1) return 0;
    uint8_t choice = data[0];
    data++;
    size--;
    while (n + 4 <= size && data[n]) n += 4;
    struct text_span text = {(const char *)data + n, size - n};
    if (!utf8_is_valid(text.text, text.size)) return 0;
    for (size_t i = 0; i < n; i += 4) add_mark(&marks, data + i, &at, text.size);
    CHECK(marks_fault(marks_of(&marks), text.size) == NULL);
    struct stored_document document = {
        .id = "x", .path = "x#1", .text = text, .marks = marks_of(&marks)};
    data_tables_read(&tables, &document);
    for (int i = 0; i < tables.n && i < 4; i++) ask(&tables.list[i], choice);
    data_table_add_record(&record, &document);
    data_table_finish(&record);
    ask(&record, choice);
    data_table_free(&record);
    data_tables_free(&tables);
    buffer_free(&marks);
    return 0;
}
