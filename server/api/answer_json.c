/* server/api/answer_json.c: see answer_json.h. */
#include "server/api/answer_json.h"

void event_begin(struct json_writer *w, struct buffer *out) {
    buffer_append_string(out, "data: ");
    put_begin(w, out);
}

void event_end(struct json_writer *w, struct buffer *out) {
    put_object_end(w);
    buffer_append_string(out, "\n\n");
}

void stream_end(const struct failure *failed, struct buffer *out) {
    if (failed) {
        buffer_append_string(out, "data: ");
        failure_write(failed, out);
        buffer_append_string(out, "\n\n");
    }
    buffer_append_string(out, "data: [DONE]\n\n");
}

void usage_write(struct json_writer *w, int64_t prompt, int64_t written) {
    put_key_object(w, "usage");
    put_key_int(w, "prompt_tokens", prompt);
    put_key_int(w, "completion_tokens", written);
    put_key_int(w, "total_tokens", prompt + written);
    put_object_end(w);
}
