/* retrieval/tables/sqlite_door.c: the only file that includes sqlite3.h. See sqlite_door.h. */
#include "retrieval/tables/sqlite_door.h"

#include <math.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

/* Of all databases that are open at a time, and between two looks at the clock. */
enum { MOST_MEMORY = 512 << 20, STEPS_BETWEEN_LOOKS = 10000 };

struct sqlite_door {
    sqlite3 *database;
    sqlite3_stmt *prepared;
    double until;
};
struct sqlite_row {
    sqlite3_stmt *statement;
};

/* Sums of numbers as they are written: 0.1 ten times is 1. The bits that rounding takes are
 * summed beside it (Neumaier). */

struct exact_sum {
    double sum, lost;
    int64_t n;
};

static void add_exactly(struct exact_sum *sum, double number) {
    double total = sum->sum + number;
    bool larger = fabs(sum->sum) >= fabs(number);
    sum->lost += larger ? (sum->sum - total) + number : (number - total) + sum->sum;
    sum->sum = total;
    sum->n++;
}

static void step_sum(sqlite3_context *context, int n, sqlite3_value **values) {
    (void)n;
    if (sqlite3_value_type(values[0]) == SQLITE_NULL) return;
    struct exact_sum *sum = sqlite3_aggregate_context(context, sizeof *sum);
    if (sum == NULL) return;
    add_exactly(sum, sqlite3_value_double(values[0]));
}

static void end_sum(sqlite3_context *context) {
    struct exact_sum *sum = sqlite3_aggregate_context(context, 0);
    if (sum == NULL || sum->n == 0)
        sqlite3_result_null(context);
    else
        sqlite3_result_double(context, sum->sum + sum->lost);
}

static void end_mean(sqlite3_context *context) {
    struct exact_sum *sum = sqlite3_aggregate_context(context, 0);
    if (sum == NULL || sum->n == 0)
        sqlite3_result_null(context);
    else
        sqlite3_result_double(context, (sum->sum + sum->lost) / (double)sum->n);
}

/* A database. */

static int is_late(void *context) {
    const struct sqlite_door *door = context;
    return door->until > 0 && time_now() > door->until;
}

/* Statements may read and write the one table, and call these. */
static int allow(void *context, int action, const char *first, const char *second,
                 const char *database, const char *trigger) {
    static const char *const functions[] = {"exact_sum",    "exact_mean", "count", "min",   "max",
                                            "group_concat", "substr",     "instr", "length"};
    (void)context, (void)first, (void)database, (void)trigger;
    if (action == SQLITE_SELECT || action == SQLITE_READ || action == SQLITE_INSERT ||
        action == SQLITE_CREATE_TABLE || action == SQLITE_TRANSACTION || action == SQLITE_UPDATE)
        return SQLITE_OK;
    for (size_t i = 0; i < ARRAY_COUNT(functions) && action == SQLITE_FUNCTION && second; i++)
        if (strcmp(second, functions[i]) == 0) return SQLITE_OK;
    return SQLITE_DENY;
}

static enum status fail(const struct sqlite_door *door, struct error *e) {
    int code = door->database ? sqlite3_errcode(door->database) : SQLITE_NOMEM;
    if (code == SQLITE_INTERRUPT)
        return error_set(e, STATUS_TOO_LARGE,
                         "the table is too large for this question to be answered in time");
    if (code == SQLITE_NOMEM || code == SQLITE_TOOBIG || code == SQLITE_FULL)
        return error_set(e, STATUS_NO_MEMORY, "the table takes more than %d MiB of memory",
                         MOST_MEMORY >> 20);
    return error_set(e, STATUS_INTERNAL, "SQLite: %s",
                     door->database ? sqlite3_errmsg(door->database) : "no memory");
}

static void set_limits(void) { sqlite3_hard_heap_limit64(MOST_MEMORY); }

enum status sqlite_door_open(struct sqlite_door **out, double until, struct error *e) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct sqlite_door *door = xcalloc(1, sizeof *door);
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_MEMORY |
                      SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
    const int kind = SQLITE_UTF8 | SQLITE_DETERMINISTIC;
    pthread_once(&once, set_limits);
    *out = door;
    door->until = until;
    if (sqlite3_open_v2(":memory:", &door->database, flags, NULL) != SQLITE_OK)
        return fail(door, e);
    sqlite3_limit(door->database, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_limit(door->database, SQLITE_LIMIT_WORKER_THREADS, 0);
    sqlite3_db_config(door->database, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
    sqlite3_create_function(door->database, "exact_sum", 1, kind, NULL, NULL, step_sum, end_sum);
    sqlite3_create_function(door->database, "exact_mean", 1, kind, NULL, NULL, step_sum, end_mean);
    if (sqlite_door_run(door, "PRAGMA temp_store = 2", e)) return e->status;
    sqlite3_set_authorizer(door->database, allow, NULL);
    sqlite3_progress_handler(door->database, STEPS_BETWEEN_LOOKS, is_late, door);
    return STATUS_OK;
}

void sqlite_door_close(struct sqlite_door *door) {
    if (door == NULL) return;
    sqlite3_finalize(door->prepared);
    sqlite3_close(door->database);
    free(door);
}

enum status sqlite_door_run(struct sqlite_door *door, const char *sql, struct error *e) {
    return sqlite3_exec(door->database, sql, NULL, NULL, NULL) == SQLITE_OK ? STATUS_OK
                                                                            : fail(door, e);
}

/* Statements. */

static bool bind(sqlite3_stmt *statement, const struct sqlite_value *values, int n) {
    int code = SQLITE_OK;
    for (int i = 0; i < n && code == SQLITE_OK; i++) {
        if (values[i].is_number)
            code = sqlite3_bind_double(statement, i + 1, values[i].number);
        else if (values[i].text.text)
            code = sqlite3_bind_text64(statement, i + 1, values[i].text.text, values[i].text.size,
                                       SQLITE_STATIC, SQLITE_UTF8);
        else
            code = sqlite3_bind_null(statement, i + 1);
    }
    return code == SQLITE_OK;
}

enum status sqlite_door_prepare(struct sqlite_door *door, const char *sql, struct error *e) {
    sqlite3_finalize(door->prepared);
    door->prepared = NULL;
    int code = sqlite3_prepare_v2(door->database, sql, -1, &door->prepared, NULL);
    return code == SQLITE_OK ? STATUS_OK : fail(door, e);
}

enum status sqlite_door_put(struct sqlite_door *door, const struct sqlite_value *values, int n,
                            struct error *e) {
    sqlite3_reset(door->prepared);
    if (!bind(door->prepared, values, n)) return fail(door, e);
    return sqlite3_step(door->prepared) == SQLITE_DONE ? STATUS_OK : fail(door, e);
}

enum status sqlite_door_select(struct sqlite_door *door, const struct sqlite_question *question,
                               sqlite_taker *take, void *context, struct error *e) {
    struct sqlite_row row = {NULL};
    int code = sqlite3_prepare_v2(door->database, question->sql, -1, &row.statement, NULL);
    if (code == SQLITE_OK && !bind(row.statement, question->values, question->n))
        code = SQLITE_ERROR;
    if (code == SQLITE_OK) code = sqlite3_step(row.statement);
    while (code == SQLITE_ROW && take(context, &row)) code = sqlite3_step(row.statement);
    bool well = code == SQLITE_DONE || code == SQLITE_ROW;
    enum status status = well ? STATUS_OK : fail(door, e);
    sqlite3_finalize(row.statement);
    return status;
}

bool sqlite_row_is_null(const struct sqlite_row *row, int column) {
    return sqlite3_column_type(row->statement, column) == SQLITE_NULL;
}

bool sqlite_row_is_number(const struct sqlite_row *row, int column) {
    int type = sqlite3_column_type(row->statement, column);
    return type == SQLITE_INTEGER || type == SQLITE_FLOAT;
}

double sqlite_row_number(const struct sqlite_row *row, int column) {
    return sqlite3_column_double(row->statement, column);
}

struct text_span sqlite_row_text(const struct sqlite_row *row, int column) {
    const char *text = (const char *)sqlite3_column_text(row->statement, column);
    int size = sqlite3_column_bytes(row->statement, column);
    return (struct text_span){text ? text : "", text && size > 0 ? (size_t)size : 0};
}
