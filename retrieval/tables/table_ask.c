/* retrieval/tables/table_ask.c: see table_ask.h. */
#include "retrieval/tables/table_ask.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "retrieval/tables/ranges.h"
#include "retrieval/tables/table_ask_private.h"

/* The table: for each column that is used its value, the same where it counts once (m), what is
 * shown (s), and that folded (f). */

static enum status make_table(const struct ask_plan *plan, struct sqlite_door *door,
                              struct error *e) {
    struct buffer sql = {0};
    buffer_append_string(&sql, "CREATE TABLE t(r INTEGER PRIMARY KEY");
    for (int i = 0; i < plan->n_used; i++) buffer_printf(&sql, ", v%d, m%d, s%d, f%d", i, i, i, i);
    buffer_append_string(&sql, ")");
    enum status status = sqlite_door_run(door, sql.data, e);
    buffer_clear(&sql);
    buffer_append_string(&sql, "INSERT INTO t VALUES(?");
    for (int i = 0; i < plan->n_used; i++) buffer_append_string(&sql, ", ?, ?, ?, ?");
    buffer_append_string(&sql, ")");
    if (status == STATUS_OK) status = sqlite_door_prepare(door, sql.data, e);
    buffer_free(&sql);
    return status;
}

/* The four values of one cell; what they point into is `kept`. */
struct cell_texts {
    struct buffer folded;
    struct cell_value value;
};

static void set_values(const struct data_table *table, const struct data_cell *cell,
                       struct cell_texts *kept, struct sqlite_value values[4]) {
    const struct data_column *column = &table->columns[cell->column];
    struct text_span text = data_cell_text(table, cell);
    kept->value = cell_value_read(text, column->mark);
    if (kept->value.kind == CELL_EMPTY) return;
    buffer_clear(&kept->folded);
    ask_fold(&kept->folded, text);
    bool is_number = column->kind == CELL_NUMBER && kept->value.kind == CELL_NUMBER;
    bool is_date = column->kind == CELL_DATE && kept->value.kind == CELL_DATE;
    if (is_number)
        values[0] = (struct sqlite_value){.is_number = true, .number = kept->value.number};
    if (is_date) values[0].text = (struct text_span){kept->value.date, strlen(kept->value.date)};
    if (column->kind == CELL_TEXT) values[0].text = text;
    if (!cell->copied) values[1] = values[0];
    values[2].text = text;
    values[3].text = (struct text_span){kept->folded.data, kept->folded.size};
}

static enum status fill_table(const struct ask_plan *plan, struct sqlite_door *door,
                              struct error *e) {
    const struct data_table *table = plan->table;
    struct sqlite_value values[1 + 4 * ASK_MOST_USED];
    struct cell_texts *kept = xcalloc((size_t)plan->n_used + 1, sizeof *kept);
    enum status status = sqlite_door_run(door, "BEGIN", e);
    for (uint32_t row = 0; row < table->n_rows && status == STATUS_OK; row++) {
        if (table->totals.data[row] && !plan->question->with_totals) continue;
        memset(values, 0, sizeof values);
        values[0] = (struct sqlite_value){.is_number = true, .number = row};
        for (int i = 0; i < plan->n_used; i++) {
            const struct data_cell *cell = ask_find_cell(table, row, plan->used[i]);
            if (cell) set_values(table, cell, &kept[i], values + 1 + 4 * i);
        }
        status = sqlite_door_put(door, values, 1 + 4 * plan->n_used, e);
    }
    for (int i = 0; i < plan->n_used; i++) buffer_free(&kept[i].folded);
    free(kept);
    return status;
}

/* The statement. */

static void write_column(struct ask_plan *plan, const struct ask_column *column,
                         struct buffer *sql) {
    static const char *const functions[] = {"count", "exact_sum", "min", "max", "exact_mean"};
    int place = column->column >= 0 ? ask_use(plan, column->column) : 0;
    bool is_text = column->column >= 0 && plan->table->columns[column->column].kind == CELL_TEXT;
    if (column->is_measure && column->column < 0)
        buffer_append_string(sql, "count(*)");
    else if (column->is_measure && column->kind == MEASURE_COUNT)
        buffer_printf(sql, "count(s%d)", place);
    else if (column->is_measure)
        buffer_printf(sql, "%s(m%d)", functions[column->kind], place);
    else if (column->date_size > 0)
        buffer_printf(sql, "substr(v%d, 1, %d)", place, column->date_size);
    else if (is_text)
        buffer_printf(sql, "s%d", place);
    else /* a text among numbers is shown as it is */
        buffer_printf(sql, "CASE WHEN v%d IS NULL THEN s%d ELSE v%d END", place, place, place);
}

static const char *reply_name(const struct table_reply *reply, int column) {
    const char *name = reply->names.data;
    for (int i = 0; i < column; i++) name += strlen(name) + 1;
    return name;
}

static enum status write_orders(const struct ask_plan *plan, const struct table_reply *reply,
                                struct buffer *sql, struct error *e) {
    const struct table_question *question = plan->question;
    for (int i = 0; i < question->n_orders; i++) {
        int found = -1;
        for (int j = 0; j < reply->n_columns && found < 0; j++)
            if (strcasecmp(reply_name(reply, j), question->orders[i].by) == 0) found = j;
        if (found < 0)
            return error_set(e, STATUS_INVALID,
                             "sort by \"%.100s\": the answer has no such column; its first is "
                             "\"%.100s\"",
                             question->orders[i].by,
                             reply->n_columns > 0 ? reply_name(reply, 0) : "");
        buffer_printf(sql, "%s %d%s", i > 0 ? "," : " ORDER BY", found + 1,
                      question->orders[i].descending ? " DESC" : "");
    }
    for (int i = 0; i < question->n_groups; i++)
        buffer_printf(sql, "%s %d", i + question->n_orders > 0 ? "," : " ORDER BY", i + 1);
    if (question->n_groups == 0 && question->n_measures == 0)
        buffer_append_string(sql, question->n_orders > 0 ? ", r" : " ORDER BY r");
    return STATUS_OK;
}

static enum status write_statement(struct ask_plan *plan, const struct table_reply *reply,
                                   struct buffer *sql, struct error *e) {
    const struct table_question *question = plan->question;
    bool gathers = question->n_groups > 0 || question->n_measures > 0;
    buffer_append_string(sql, "SELECT ");
    for (int i = 0; i < plan->n_columns; i++) {
        write_column(plan, &plan->columns[i], sql);
        buffer_append_string(sql, ", ");
    }
    buffer_printf(sql, "%s FROM t WHERE %s", gathers ? "group_concat(r)" : "r", plan->where.data);
    for (int i = 0; i < question->n_groups; i++)
        buffer_printf(sql, "%s %d", i > 0 ? "," : " GROUP BY", i + 1);
    if (write_orders(plan, reply, sql, e)) return e->status;
    buffer_printf(sql, " LIMIT %d", question->limit + 1);
    return STATUS_OK;
}

static enum status ask_select(const struct ask_plan *plan, struct sqlite_door *door,
                              const char *sql, sqlite_taker *take, void *context, struct error *e) {
    struct sqlite_question question = {sql, plan->values, plan->n_values};
    return sqlite_door_select(door, &question, take, context, e);
}

/* The answer. */

struct reply_writer {
    const struct ask_plan *plan;
    struct table_reply *reply;
    struct buffer rows; /* uint32_t: those that one row of the answer is made from */
};

static int compare_rows(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* "3,5,9" */
static void read_rows(struct reply_writer *writer, struct text_span list) {
    buffer_clear(&writer->rows);
    for (size_t at = 0; at < list.size;) {
        uint32_t row = 0;
        for (; at < list.size && list.text[at] >= '0' && list.text[at] <= '9'; at++)
            row = row * 10 + (uint32_t)(list.text[at] - '0');
        buffer_append(&writer->rows, &row, sizeof row);
        while (at < list.size && list.text[at] != ',') at++;
        at++;
    }
    if (writer->rows.size > 0)
        qsort(writer->rows.data, writer->rows.size / sizeof(uint32_t), sizeof(uint32_t),
              compare_rows);
}

static bool take_row(void *context, const struct sqlite_row *row) {
    struct reply_writer *writer = context;
    struct table_reply *reply = writer->reply;
    reply->has_more = reply->n_rows == writer->plan->question->limit;
    if (reply->has_more) return false;
    size_t first = reply->values.size;
    for (int i = 0; i < writer->plan->n_columns; i++) {
        struct answer_value value = {.kind = CELL_TEXT};
        if (sqlite_row_is_null(row, i)) {
            value.kind = CELL_EMPTY;
        } else if (sqlite_row_is_number(row, i)) {
            value.kind = CELL_NUMBER;
            value.number = sqlite_row_number(row, i);
        } else {
            struct text_span text = sqlite_row_text(row, i);
            value.text = (uint32_t)reply->text.size;
            value.size = (uint32_t)text.size;
            buffer_append(&reply->text, text.text, text.size);
        }
        buffer_append(&reply->values, &value, sizeof value);
    }
    read_rows(writer, sqlite_row_text(row, writer->plan->n_columns));
    ask_write_cells(writer->plan, (const uint32_t *)(const void *)writer->rows.data,
                    writer->rows.size / sizeof(uint32_t),
                    (const struct answer_value *)(const void *)(reply->values.data + first),
                    &reply->cells);
    reply->n_rows++;
    return true;
}

static bool take_count(void *context, const struct sqlite_row *row) {
    *(int64_t *)context = (int64_t)sqlite_row_number(row, 0);
    return false;
}

/* Cells that are no numbers where numbers are asked for. */
struct left_writer {
    const struct ask_plan *plan;
    struct table_reply *reply;
    int column;
    struct range_writer ranges;
};

static bool take_left(void *context, const struct sqlite_row *row) {
    struct left_writer *writer = context;
    const struct data_cell *cell =
        ask_find_cell(writer->plan->table, (uint32_t)sqlite_row_number(row, 0), writer->column);
    writer->reply->n_left_out++;
    if (cell) range_add(&writer->ranges, cell->file_row, &writer->reply->left_out);
    return true;
}

static enum status tell_left(struct ask_plan *plan, struct sqlite_door *door,
                             struct table_reply *reply, struct error *e) {
    for (int i = 0; i < plan->n_columns; i++) {
        const struct ask_column *asked = &plan->columns[i];
        if (!asked->is_measure || asked->kind == MEASURE_COUNT) continue;
        const struct data_column *column = &plan->table->columns[asked->column];
        struct buffer sql = {0};
        int place = ask_use(plan, asked->column);
        struct left_writer writer = {.plan = plan, .reply = reply, .column = asked->column};
        writer.ranges = (struct range_writer){.sheet = plan->table->sheet.data,
                                              .column = column->file_column,
                                              .most = ASK_MOST_RANGES};
        buffer_printf(&sql,
                      "SELECT r FROM t WHERE %s AND s%d IS NOT NULL AND v%d IS NULL ORDER BY r",
                      plan->where.data, place, place);
        enum status status = ask_select(plan, door, sql.data, take_left, &writer, e);
        range_end(&writer.ranges, &reply->left_out);
        buffer_free(&sql);
        if (status) return status;
    }
    return STATUS_OK;
}

static void tell_totals(const struct ask_plan *plan, struct table_reply *reply) {
    const struct data_table *table = plan->table;
    struct range_writer ranges = {.sheet = table->sheet.data, .most = ASK_MOST_RANGES};
    for (uint32_t row = 0; row < table->n_rows && !plan->question->with_totals; row++) {
        if (!table->totals.data[row]) continue;
        const struct data_cell *cell = ask_find_cell(table, row, 0);
        for (int i = 1; i < table->n_columns && cell == NULL; i++)
            cell = ask_find_cell(table, row, i);
        reply->n_totals++;
        if (cell == NULL) continue;
        ranges.column = cell->file_column;
        range_add(&ranges, cell->file_row, &reply->totals);
    }
    range_end(&ranges, &reply->totals);
}

static enum status run_plan(struct ask_plan *plan, struct sqlite_door *door,
                            struct table_reply *reply, struct error *e) {
    struct reply_writer writer = {.plan = plan, .reply = reply};
    struct buffer sql = {0}, count = {0};
    enum status status = make_table(plan, door, e);
    if (status == STATUS_OK) status = fill_table(plan, door, e);
    if (status == STATUS_OK) status = write_statement(plan, reply, &sql, e);
    if (status == STATUS_OK) status = ask_select(plan, door, sql.data, take_row, &writer, e);
    buffer_printf(&count, "SELECT count(*) FROM t WHERE %s", plan->where.data);
    if (status == STATUS_OK)
        status = ask_select(plan, door, count.data, take_count, &reply->n_matched, e);
    if (status == STATUS_OK) status = tell_left(plan, door, reply, e);
    if (status == STATUS_OK) tell_totals(plan, reply);
    buffer_free(&sql);
    buffer_free(&count);
    buffer_free(&writer.rows);
    return status;
}

enum status table_ask(const struct data_table *table, const struct table_question *question,
                      struct table_reply *reply, struct error *e) {
    struct ask_plan *plan = xcalloc(1, sizeof *plan);
    struct sqlite_door *door = NULL;
    enum status status = ask_plan_make(plan, table, question, reply, e);
    if (status == STATUS_OK) status = sqlite_door_open(&door, question->until, e);
    if (status == STATUS_OK) status = run_plan(plan, door, reply, e);
    sqlite_door_close(door);
    ask_plan_free(plan);
    free(plan);
    return status;
}

void table_reply_free(struct table_reply *reply) {
    buffer_free(&reply->names);
    buffer_free(&reply->values);
    buffer_free(&reply->text);
    buffer_free(&reply->cells);
    buffer_free(&reply->left_out);
    buffer_free(&reply->totals);
}
