/* retrieval/tables/table_plan.c: a question's columns and conditions, as SQL. Names and values of
 * clients are never part of a statement: columns have numbers there, and values are bound. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/base/text.h"
#include "config/text/unicode.h"
#include "retrieval/tables/table_ask_private.h"

void ask_fold(struct buffer *out, struct text_span text) {
    struct stretch stretch = {0};
    struct mapped_buffer folded = {0};
    unicode_fold(&stretch, text, &folded);
    size_t size = folded.size, start = 0;
    while (size > 0 && is_blank(folded.text[size - 1])) size--;
    while (start < size && is_blank(folded.text[start])) start++;
    buffer_append(out, folded.text + start, size - start);
    buffer_append(out, "", 0);
    mapped_free(&folded);
    stretch_free(&stretch);
}

static enum status fail_column(const struct data_table *table, const char *name, struct error *e) {
    struct buffer names = {0};
    for (int i = 0; i < table->n_columns && names.size < 500; i++)
        buffer_printf(&names, "%s\"%s\"", i > 0 ? ", " : "", table->columns[i].name.data);
    error_set(e, STATUS_INVALID, "the table has no column \"%.100s\"; it has %s", name,
              names.data ? names.data : "none");
    buffer_free(&names);
    return e->status;
}

int ask_use(struct ask_plan *plan, int column) {
    for (int i = 0; i < plan->n_used; i++)
        if (plan->used[i] == column) return i;
    if (plan->n_used == ASK_MOST_USED) return 0;
    plan->used[plan->n_used] = column;
    plan->n_used++;
    return plan->n_used - 1;
}

/* Columns of the answer. */

static void name_column(struct table_reply *reply, const char *measure, const char *name) {
    if (measure[0]) buffer_append_string(&reply->names, measure);
    if (measure[0] && name[0]) buffer_append_string(&reply->names, " of ");
    buffer_append(&reply->names, name, strlen(name) + 1);
    reply->n_columns++;
}

static void add_column(struct ask_plan *plan, const struct ask_column *column) {
    plan->columns[plan->n_columns] = *column;
    plan->n_columns++;
}

/* "Day:month": a column and how much of its dates is shown. */
static enum status add_group(struct ask_plan *plan, const char *name, struct table_reply *reply,
                             struct error *e) {
    const struct data_table *table = plan->table;
    struct ask_column group = {.column = data_table_find_column(table, name)};
    const char *colon = strrchr(name, ':');
    if (group.column < 0 && colon) {
        char *front = xstrndup(name, (size_t)(colon - name));
        group.column = data_table_find_column(table, front);
        group.date_size = strcmp(colon, ":year") == 0 ? 4 : strcmp(colon, ":month") == 0 ? 7 : -1;
        free(front);
    }
    if (group.column < 0 || group.date_size < 0) return fail_column(table, name, e);
    if (group.date_size > 0 && table->columns[group.column].kind != CELL_DATE)
        return error_set(e, STATUS_INVALID, "column \"%s\" has no dates, so it has no %s",
                         table->columns[group.column].name.data, colon + 1);
    ask_use(plan, group.column);
    add_column(plan, &group);
    name_column(reply, "", name);
    return STATUS_OK;
}

static enum status add_measure(struct ask_plan *plan, const struct table_measure *measure,
                               struct table_reply *reply, struct error *e) {
    static const char *const names[] = {"count", "sum", "min", "max", "mean"};
    const struct data_table *table = plan->table;
    const char *name = measure->column ? measure->column : "";
    struct ask_column column = {.is_measure = true, .kind = measure->kind, .column = -1};
    if (measure->column) column.column = data_table_find_column(table, name);
    if (measure->column && column.column < 0) return fail_column(table, name, e);
    if (measure->column == NULL && measure->kind != MEASURE_COUNT)
        return error_set(e, STATUS_INVALID, "%s needs a column", names[measure->kind]);
    bool sums = measure->kind == MEASURE_SUM || measure->kind == MEASURE_MEAN;
    if (sums && table->columns[column.column].kind != CELL_NUMBER)
        return error_set(e, STATUS_INVALID, "column \"%s\" holds %s, and %s needs numbers",
                         table->columns[column.column].name.data,
                         table->columns[column.column].kind == CELL_DATE ? "dates" : "texts",
                         names[measure->kind]);
    if (column.column >= 0) ask_use(plan, column.column);
    add_column(plan, &column);
    name_column(reply, names[measure->kind],
                column.column >= 0 ? table->columns[column.column].name.data : "");
    return STATUS_OK;
}

static enum status add_shown(struct ask_plan *plan, const char *name, struct table_reply *reply,
                             struct error *e) {
    struct ask_column column = {.column = data_table_find_column(plan->table, name)};
    if (column.column < 0) return fail_column(plan->table, name, e);
    ask_use(plan, column.column);
    add_column(plan, &column);
    name_column(reply, "", plan->table->columns[column.column].name.data);
    return STATUS_OK;
}

static enum status add_columns(struct ask_plan *plan, struct table_reply *reply, struct error *e) {
    const struct table_question *question = plan->question;
    for (int i = 0; i < question->n_groups; i++)
        if (add_group(plan, question->groups[i], reply, e)) return e->status;
    for (int i = 0; i < question->n_measures; i++)
        if (add_measure(plan, &question->measures[i], reply, e)) return e->status;
    if (question->n_measures > 0 && question->n_columns > 0)
        return error_set(e, STATUS_INVALID,
                         "columns are shown of rows; with measures, name them in group");
    if (question->n_measures > 0 || question->n_groups > 0) return STATUS_OK;
    for (int i = 0; i < question->n_columns; i++)
        if (add_shown(plan, question->columns[i], reply, e)) return e->status;
    for (int i = 0; i < plan->table->n_columns && i < ASK_MOST_COLUMNS && question->n_columns == 0;
         i++) {
        struct ask_column column = {.column = i};
        ask_use(plan, i);
        add_column(plan, &column);
        name_column(reply, "", plan->table->columns[i].name.data);
    }
    return STATUS_OK;
}

/* Conditions. */

static void add_number(struct ask_plan *plan, double number) {
    plan->places[plan->n_values] = SIZE_MAX;
    plan->values[plan->n_values] = (struct sqlite_value){.is_number = true, .number = number};
    plan->n_values++;
}

static void add_text(struct ask_plan *plan, struct text_span text, bool fold) {
    plan->places[plan->n_values] = plan->texts.size;
    if (fold)
        ask_fold(&plan->texts, text);
    else
        buffer_append(&plan->texts, text.text, text.size);
    size_t size = plan->texts.size - plan->places[plan->n_values];
    plan->values[plan->n_values] = (struct sqlite_value){.text = {"", size}};
    plan->n_values++;
}

static const char *const signs[] = {"=", "<>", "<", "<=", ">", ">="};

/* One value of a condition on one column. */
static enum status add_value(struct ask_plan *plan, const struct table_condition *condition,
                             int place, struct text_span text, struct error *e) {
    const struct data_column *column = &plan->table->columns[plan->used[place]];
    const char *sign = condition->is <= OPERATOR_AT_LEAST ? signs[condition->is] : "=";
    struct cell_value value = cell_value_read(text, DECIMAL_POINT);
    bool compares = condition->is != OPERATOR_EQUAL && condition->is != OPERATOR_UNEQUAL;
    if (condition->is == OPERATOR_CONTAINS) {
        buffer_printf(&plan->where, "instr(f%d, ?) > 0", place);
        add_text(plan, text, true);
    } else if (column->kind == CELL_NUMBER && value.kind == CELL_NUMBER) {
        buffer_printf(&plan->where, "v%d %s ?", place, sign);
        add_number(plan, value.number);
    } else if (column->kind == CELL_DATE && text.size >= 4) {
        struct text_span date =
            value.kind == CELL_DATE ? (struct text_span){value.date, strlen(value.date)} : text;
        buffer_printf(&plan->where, "substr(v%d, 1, %zu) %s ?", place, date.size, sign);
        add_text(plan, date, false);
    } else if (column->kind == CELL_NUMBER && compares) {
        return error_set(e, STATUS_INVALID, "column \"%s\" holds numbers, and \"%.*s\" is none",
                         column->name.data, (int)(text.size < 100 ? text.size : 100), text.text);
    } else {
        buffer_printf(&plan->where, "f%d %s ?", place, sign);
        add_text(plan, text, true);
    }
    return STATUS_OK;
}

static enum status add_condition(struct ask_plan *plan, const struct table_condition *condition,
                                 struct error *e) {
    int column = data_table_find_column(plan->table, condition->column);
    if (column < 0) return fail_column(plan->table, condition->column, e);
    int place = ask_use(plan, column);
    if (condition->is == OPERATOR_EMPTY || condition->is == OPERATOR_FILLED) {
        buffer_printf(&plan->where, " AND s%d IS %sNULL", place,
                      condition->is == OPERATOR_FILLED ? "NOT " : "");
        return STATUS_OK;
    }
    if (condition->n_values == 0)
        return error_set(e, STATUS_INVALID, "the condition on \"%.100s\" has no value",
                         condition->column);
    buffer_append_string(&plan->where, " AND (");
    for (int i = 0; i < condition->n_values; i++) {
        if (i > 0)
            buffer_append_string(&plan->where,
                                 condition->is == OPERATOR_UNEQUAL ? " AND " : " OR ");
        if (add_value(plan, condition, place, condition->values[i], e)) return e->status;
    }
    buffer_append_string(&plan->where, ")");
    return STATUS_OK;
}

enum status ask_plan_make(struct ask_plan *plan, const struct data_table *table,
                          const struct table_question *question, struct table_reply *reply,
                          struct error *e) {
    *plan = (struct ask_plan){.table = table, .question = question};
    buffer_append_string(&plan->where, "1");
    enum status status = add_columns(plan, reply, e);
    for (int i = 0; i < question->n_conditions && status == STATUS_OK; i++)
        status = add_condition(plan, &question->conditions[i], e);
    for (int i = 0; i < plan->n_values; i++)
        if (plan->places[i] != SIZE_MAX)
            plan->values[i].text.text = plan->texts.data ? plan->texts.data + plan->places[i] : "";
    return status;
}

void ask_plan_free(struct ask_plan *plan) {
    buffer_free(&plan->where);
    buffer_free(&plan->texts);
}
