/* server/doors/fields/stores_fields.c: see stores_fields.h. */
#include "server/doors/fields/stores_fields.h"

#define FILTERS_HELP \
    "eq, ne, gt, gte, lt, lte, in, nin with key and value; and, or with filters: of the " \
    "documents' metadata"
#define RANKING_HELP "score_threshold; ranker and weights change nothing"

#define AT(member) JSON_AT(struct store_search_request, member)
static const struct json_field search_fields[] = {
    {"query", JSON_RAW, AT(query), .required = true,
     .schema = "{\"anyOf\":[" DOOR_TEXT "," DOOR_LIST "]}", .help = "a text, or texts"},
    DOOR_VALUE("filters", AT(filters), DOOR_OBJECT, FILTERS_HELP),
    DOOR_VALUE("max_num_results", AT(max_num_results), DOOR_WHOLE, "passages at most: 1 .. 50"),
    DOOR_VALUE("ranking_options", AT(ranking_options), DOOR_OBJECT, RANKING_HELP),
    DOOR_PASSED("rewrite_query"),
};
#undef AT
const struct json_table store_search_table = JSON_TABLE(search_fields, .open = true);

#define AT(member) JSON_AT(struct file_search_tool, member)
static const struct json_field tool_fields[] = {
    DOOR_VALUE("type", AT(type), DOOR_TEXT, "file_search"),
    {"vector_store_ids", JSON_RAW, AT(stores), .required = true, .schema = DOOR_LIST,
     .help = "stores that are searched"},
    DOOR_VALUE("filters", AT(filters), DOOR_OBJECT, FILTERS_HELP),
    DOOR_VALUE("max_num_results", AT(max_num_results), DOOR_WHOLE, "passages at most: 1 .. 50"),
    DOOR_VALUE("ranking_options", AT(ranking_options), DOOR_OBJECT, RANKING_HELP),
};
#undef AT
const struct json_table file_search_table = JSON_TABLE(tool_fields, .open = true);

#define AT(member) JSON_AT(struct files_query, member)
static const struct json_field query_fields[] = {
    {"limit", JSON_INT64, AT(limit), .min = 1, .max = 1000, .fallback = 20,
     .help = "files at most"},
    {"after", JSON_TEXT, AT(after), .help = "the id of the file that those follow"},
};
#undef AT
const struct json_table files_query_table = JSON_TABLE(query_fields, .open = true);
