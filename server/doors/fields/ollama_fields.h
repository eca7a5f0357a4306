/* server/doors/fields/ollama_fields.h: the bodies of Ollama's API. */
#pragma once

#include "server/doors/fields/door_rows.h"

struct ollama_request {
    const struct json *model, *messages, *tools; /* of a chat */
    const struct json *prompt, *system, *images; /* of a text */
    bool raw;
    const struct json *options, *format, *think, *stream, *keep_alive;
    const struct json *retrieval, *template_variables;
};
extern const struct json_table ollama_chat_table, ollama_generate_table;

struct ollama_embed_request {
    const struct json *model, *input, *prompt, *dimensions, *truncate;
};
extern const struct json_table ollama_embed_table, ollama_embeddings_table;

/* POST /api/show: older clients call the model's name so. */
struct ollama_show_request {
    const struct json *model;
};
extern const struct json_table ollama_show_table;
