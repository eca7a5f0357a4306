/* server/doors/fields/stores_fields.c: see stores_fields.h. */
#include "server/doors/fields/stores_fields.h"

#define FILTERS_HELP \
    "eq, ne, gt, gte, lt, lte, in, nin with key and value; and, or with filters: of the files' " \
    "attributes, in vs_collection of the documents' metadata"
#define RANKING_HELP "score_threshold; ranker and weights change nothing"
#define CHUNKING_HELP \
    "auto, or static with the chunk length and overlap that the collection has; others are " \
    "refused"
#define EXPIRY_HELP "anchor last_active_at, and 1 .. 365 days without use"
#define METADATA_HELP "up to 16 texts, which come back"
#define ATTRIBUTES_HELP "up to 16 texts, numbers and booleans, which filters compare"

#define AT(member) JSON_AT(struct file_form, member)
static const struct json_field form_fields[] = {
    {"purpose", JSON_TEXT, AT(purpose), .help = "assistants or user_data; others are refused"},
    {"expires_after[anchor]", JSON_TEXT, AT(anchor), .help = "created_at"},
    {"expires_after[seconds]", JSON_TEXT, AT(seconds),
     .help = "3600 .. 2592000, after which the file is deleted"},
};
#undef AT
const struct json_table file_form_table = JSON_TABLE(form_fields, .open = true);

#define AT(member) JSON_AT(struct store_create_request, member)
static const struct json_field create_fields[] = {
    DOOR_VALUE("name", AT(name), DOOR_TEXT, "up to 256 characters"),
    DOOR_VALUE("file_ids", AT(file_ids), DOOR_LIST, "uploaded files, which are added"),
    DOOR_VALUE("metadata", AT(metadata), DOOR_OBJECT, METADATA_HELP),
    DOOR_VALUE("expires_after", AT(expires_after), DOOR_OBJECT, EXPIRY_HELP),
    DOOR_VALUE("chunking_strategy", AT(chunking), DOOR_OBJECT, CHUNKING_HELP),
    DOOR_PASSED("description"),
};
#undef AT
const struct json_table store_create_table = JSON_TABLE(create_fields, .open = true);

#define AT(member) JSON_AT(struct store_modify_request, member)
static const struct json_field modify_fields[] = {
    DOOR_VALUE("name", AT(name), DOOR_TEXT, "up to 256 characters"),
    DOOR_VALUE("metadata", AT(metadata), DOOR_OBJECT, METADATA_HELP),
    DOOR_VALUE("expires_after", AT(expires_after), DOOR_OBJECT,
               EXPIRY_HELP "; null: it does not expire any more"),
};
#undef AT
const struct json_table store_modify_table = JSON_TABLE(modify_fields, .open = true);

#define AT(member) JSON_AT(struct store_file_request, member)
static const struct json_field file_fields[] = {
    {"file_id", JSON_RAW, AT(file_id), .required = true, .schema = DOOR_TEXT,
     .help = "an uploaded file"},
    DOOR_VALUE("attributes", AT(attributes), DOOR_OBJECT, ATTRIBUTES_HELP),
    DOOR_VALUE("chunking_strategy", AT(chunking), DOOR_OBJECT, CHUNKING_HELP),
};
#undef AT
const struct json_table store_file_table = JSON_TABLE(file_fields, .open = true);

#define AT(member) JSON_AT(struct store_file_change, member)
static const struct json_field change_fields[] = {
    {"attributes", JSON_RAW, AT(attributes), .required = true, .schema = DOOR_OBJECT,
     .help = ATTRIBUTES_HELP ", in the place of those before"},
};
#undef AT
const struct json_table store_file_change_table = JSON_TABLE(change_fields, .open = true);

#define AT(member) JSON_AT(struct batch_request, member)
static const struct json_field batch_fields[] = {
    DOOR_VALUE("file_ids", AT(file_ids), DOOR_LIST, "up to 500 uploaded files"),
    DOOR_VALUE("files", AT(files), DOOR_LIST,
               "in the place of file_ids: objects of file_id, attributes and chunking_strategy"),
    DOOR_VALUE("attributes", AT(attributes), DOOR_OBJECT,
               ATTRIBUTES_HELP ": of all, with file_ids"),
    DOOR_VALUE("chunking_strategy", AT(chunking), DOOR_OBJECT, CHUNKING_HELP),
};
#undef AT
const struct json_table batch_table = JSON_TABLE(batch_fields, .open = true);

#define AT(member) JSON_AT(struct store_search_request, member)
static const struct json_field search_fields[] = {
    {"query", JSON_RAW, AT(query), .required = true,
     .schema = "{\"anyOf\":[" DOOR_TEXT "," DOOR_LIST "]}", .help = "a text, or texts"},
    DOOR_VALUE("filters", AT(filters), DOOR_OBJECT, FILTERS_HELP),
    DOOR_VALUE("max_num_results", AT(max_num_results), DOOR_WHOLE, "passages at most: 1 .. 50"),
    DOOR_VALUE("ranking_options", AT(ranking_options), DOOR_OBJECT, RANKING_HELP),
    {.name = "rewrite_query", .type = JSON_MUST_BE_FALSE, .help = "the query is sought as it is"},
};
#undef AT
const struct json_table store_search_table = JSON_TABLE(search_fields, .open = true);

#define AT(member) JSON_AT(struct file_search_tool, member)
static const struct json_field tool_fields[] = {
    DOOR_VALUE("type", AT(type), DOOR_TEXT, "file_search"),
    {"vector_store_ids", JSON_RAW, AT(stores), .required = true, .schema = DOOR_LIST,
     .help = "up to 8 stores that are searched together"},
    DOOR_VALUE("filters", AT(filters), DOOR_OBJECT, FILTERS_HELP),
    DOOR_VALUE("max_num_results", AT(max_num_results), DOOR_WHOLE, "passages at most: 1 .. 50"),
    DOOR_VALUE("ranking_options", AT(ranking_options), DOOR_OBJECT, RANKING_HELP),
};
#undef AT
const struct json_table file_search_table = JSON_TABLE(tool_fields, .open = true);

static const struct json_choice purposes[] = {
    {"assistants", PURPOSE_ASSISTANTS}, {"user_data", PURPOSE_USER_DATA}, {NULL, 0}};
#define AT(member) JSON_AT(struct files_query, member)
static const struct json_field query_fields[] = {
    {"limit", JSON_INT64, AT(limit), .min = 1, .max = 10000, .fallback = 20,
     .help = "files at most"},
    {"after", JSON_TEXT, AT(after), .help = "the id of the file that those follow"},
    {"purpose", JSON_CHOICE, AT(purpose), .choices = purposes,
     .help = "files of that purpose; documents of the collection are for assistants"},
};
#undef AT
const struct json_table files_query_table = JSON_TABLE(query_fields, .open = true);

static const struct json_choice orders[] = {{"desc", 0}, {"asc", 1}, {NULL, 0}};
#define AT(member) JSON_AT(struct stores_query, member)
#define PAGE_FIELDS \
    { \
        "limit", \
        JSON_INT64, \
        AT(limit), \
        .min = 1, \
        .max = 100, \
        .fallback = 20, \
        .help = "items at most"}, \
        {"order", JSON_CHOICE, AT(ascends), .choices = orders, .help = "desc: the latest first"}, \
        {"after", JSON_TEXT, AT(after), .help = "the id of the item that those follow"}, { \
        "before", JSON_TEXT, AT(before), .help = "the id of the item that those come before" \
    }
static const struct json_field stores_query_fields[] = {PAGE_FIELDS};
const struct json_table stores_query_table = JSON_TABLE(stores_query_fields, .open = true);

static const struct json_choice states[] = {
    {"in_progress", 1}, {"completed", 2}, {"failed", 3}, {"cancelled", 4}, {NULL, 0}};
static const struct json_field store_files_fields[] = {
    PAGE_FIELDS,
    {"filter", JSON_CHOICE, AT(state), .choices = states, .help = "files of that status"},
};
#undef AT
const struct json_table store_files_query_table = JSON_TABLE(store_files_fields, .open = true);
