/* server/doors/conformance/conformance.c: see conformance.h. */
#include "server/doors/conformance/conformance.h"

#include <string.h>

#include "server/doors/fields/messages_fields.h"
#include "server/doors/fields/ollama_fields.h"
#include "server/doors/fields/responses_fields.h"
#include "server/doors/fields/stores_fields.h"

static const struct {
    const char *title;
    const struct json_table *table;
} doors[] = {
    {"POST /v1/messages", &messages_table},
    {"POST /v1/messages/count_tokens", &count_tokens_table},
    {"POST /v1/responses", &responses_table},
    {"POST /v1/responses/input_tokens", &input_tokens_table},
    {"A tool of type file_search", &file_search_table},
    {"POST /v1/files", &file_form_table},
    {"GET /v1/files", &files_query_table},
    {"POST /v1/vector_stores", &store_create_table},
    {"POST /v1/vector_stores/{id}", &store_modify_table},
    {"GET /v1/vector_stores", &stores_query_table},
    {"POST /v1/vector_stores/{id}/files", &store_file_table},
    {"GET /v1/vector_stores/{id}/files", &store_files_query_table},
    {"POST /v1/vector_stores/{id}/files/{file}", &store_file_change_table},
    {"POST /v1/vector_stores/{id}/file_batches", &batch_table},
    {"POST /v1/vector_stores/{id}/search", &store_search_table},
    {"POST /api/chat", &ollama_chat_table},
    {"POST /api/generate", &ollama_generate_table},
    {"POST /api/embed", &ollama_embed_table},
    {"POST /api/embeddings", &ollama_embeddings_table},
    {"POST /api/show", &ollama_show_table},
};

static const char *support_of(const struct json_field *field) {
    switch (field->type) {
        case JSON_IGNORED: return "passed over";
        case JSON_EMPTY:
        case JSON_MUST_BE_FALSE:
        case JSON_NEUTRAL: return "refused by name";
        default: return field->required ? "required" : "supported";
    }
}

/* A name with its other spellings: "`model`, `name`". */
static void print_names(const char *names, struct buffer *out) {
    for (const char *at = names; *at;) {
        size_t size = strcspn(at, "|");
        buffer_printf(out, "%s`%.*s`", at > names ? ", " : "", (int)size, at);
        at += size + (at[size] == '|');
    }
}

static void print_rows(const struct json_table *table, struct buffer *out) {
    for (int i = 0; i < table->count; i++) {
        const struct json_field *field = &table->fields[i];
        if (field->type == JSON_ROWS) {
            print_rows(field->table, out);
            continue;
        }
        buffer_append_string(out, "| ");
        print_names(field->name, out);
        buffer_printf(out, " | %s | %s |\n", support_of(field), field->help ? field->help : "");
    }
}

void conformance_print(struct buffer *out) {
    buffer_append_string(
        out,
        "# What the doors for agents take\n\n"
        "`make docs/agents-conformance.md` writes this page from the tables that requests are "
        "checked by. A field that no row\nhas is passed over and counted as "
        "`retro_passed_over_total`. How clients are set up is in [agents](agents.md).\n");
    for (size_t i = 0; i < ARRAY_COUNT(doors); i++) {
        buffer_printf(out, "\n## %s\n\n| field | here | |\n|---|---|---|\n", doors[i].title);
        print_rows(doors[i].table, out);
    }
}
