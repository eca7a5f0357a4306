/* server/doors/fields/door_rows.h: rows of the tables of doors. Clients of these protocols send new
 * fields every month: a field without a row changes nothing, is passed over and counted in
 * /metrics. A field that would change the answer's meaning has a row that refuses it. */
#pragma once

#include "config/json/json_table.h"

/* A table, and the door that /metrics counts under. */
struct door_table {
    const char *door; /* constant string */
    const struct json_table *table;
};

/* A value as it came, for the door's reader to check; one that is passed over; one that is refused
 * unless it is empty. */
#define DOOR_VALUE(field, member, shape, words) \
    { field, JSON_RAW, member, .schema = (shape), .help = (words) }
#define DOOR_PASSED(field) \
    { .name = (field), .type = JSON_IGNORED }
#define DOOR_REFUSED(field, words) \
    { .name = (field), .type = JSON_EMPTY, .help = (words) }
#define DOOR_ANY "{}"
#define DOOR_TEXT "{\"type\":\"string\"}"
#define DOOR_BOOL "{\"type\":\"boolean\"}"
#define DOOR_NUMBER "{\"type\":\"number\"}"
#define DOOR_WHOLE "{\"type\":\"integer\"}"
#define DOOR_LIST "{\"type\":\"array\"}"
#define DOOR_OBJECT "{\"type\":\"object\"}"
