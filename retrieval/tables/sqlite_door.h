/* retrieval/tables/sqlite_door.h: SQLite in memory, for one statement over one table that was put
 * into it: no file, no attached database, no extension, no function but those of the list; within
 * a time. sqlite3.h is included by sqlite_door.c only. */
#pragma once

#include "config/base/buffer.h"

struct sqlite_door;
struct sqlite_row; /* of a result, while it is taken */

enum status sqlite_door_open(struct sqlite_door **out, double until, struct error *e);
void sqlite_door_close(struct sqlite_door *door);
/* A statement without a result. */
enum status sqlite_door_run(struct sqlite_door *door, const char *sql, struct error *e);

/* A value for a place of a statement: a number, a text, or neither: NULL. */
struct sqlite_value {
    bool is_number;
    double number;
    struct text_span text; /* text NULL: none */
};
/* A statement that is run again and again with other values: INSERT. */
enum status sqlite_door_prepare(struct sqlite_door *door, const char *sql, struct error *e);
enum status sqlite_door_put(struct sqlite_door *door, const struct sqlite_value *values, int n,
                            struct error *e);

/* Calls `take` for each row of a statement until it says no. Columns count from 0. */
typedef bool sqlite_taker(void *context, const struct sqlite_row *row);
struct sqlite_question {
    const char *sql;
    const struct sqlite_value *values; /* [n] for its places */
    int n;
};
enum status sqlite_door_select(struct sqlite_door *door, const struct sqlite_question *question,
                               sqlite_taker *take, void *context, struct error *e);
bool sqlite_row_is_null(const struct sqlite_row *row, int column);
bool sqlite_row_is_number(const struct sqlite_row *row, int column);
double sqlite_row_number(const struct sqlite_row *row, int column);
struct text_span sqlite_row_text(const struct sqlite_row *row, int column);
