/* server/api/fields/prediction_fields.h: the text that the asker expects of the answer (OpenAI's
 * Predicted Outputs): it makes the answer no different, but faster where it comes true. */
#pragma once

#include "config/base/buffer.h"
#include "server/api/fields/fields.h"

/* {"type": "content", "content": TEXT or [{"type": "text", "text": TEXT}, ...]}: the texts behind
 * each other, appended to *text. */
bool prediction_read(struct buffer *text, const struct json *json, struct failure *failure);
/* Its JSON schema. */
#define PREDICTION_SCHEMA \
    "{\"type\":\"object\",\"required\":[\"type\",\"content\"],\"additionalProperties\":false," \
    "\"properties\":{\"type\":{\"const\":\"content\"},\"content\":{\"anyOf\":[{\"type\":" \
    "\"string\"},{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"type\"," \
    "\"text\"],\"properties\":{\"type\":{\"const\":\"text\"},\"text\":{\"type\":\"string\"}}}}" \
    "]}}}"
