/* retrieval/tables/cell_value.h: what the text of a table's cell says: a number with its unit, a
 * date, or words. Readers of spreadsheets write numbers so that they are read back here as they
 * were: "28,608", or "28.6 (28.60813)" where what is shown is less than what is there. */
#pragma once

#include "config/base/buffer.h"

enum cell_kind { CELL_EMPTY, CELL_TEXT, CELL_NUMBER, CELL_DATE };
enum decimal_mark { DECIMAL_POINT, DECIMAL_COMMA };
enum { CELL_DATE_SIZE = 20 };

struct cell_value {
    enum cell_kind kind;
    double number;
    bool percent;                  /* the number was one, and is divided by 100 */
    bool marks_point, marks_comma; /* the text can be read with this decimal mark alone */
    struct text_span unit;         /* of the number, within the text: "EUR", "kg"; may be empty */
    char date[CELL_DATE_SIZE];     /* "2024-03-05" or "2024-03-05 17:30:00" */
};
/* "", "-", "n/a" and the like are empty. */
struct cell_value cell_value_read(struct text_span text, enum decimal_mark mark);
/* Appends a number with the 15 digits that a spreadsheet shows: 0.3 for 0.30000000000000004. */
void cell_print_number(struct buffer *out, double number);
