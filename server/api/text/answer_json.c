/* server/api/text/answer_json.c: see answer_json.h. */
#include "server/api/text/answer_json.h"

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

void usage_add_prompt(struct token_usage *u, const struct progress *p) {
    u->prompt += p->n_read;
    u->cached += min_int(p->n_cached, p->n_read); /* later passages may be fewer than the first */
}

void usage_write(struct json_writer *w, const struct token_usage *u) {
    put_key_object(w, "usage");
    put_key_int(w, "prompt_tokens", u->prompt);
    put_key_int(w, "completion_tokens", u->written);
    put_key_int(w, "total_tokens", u->prompt + u->written);
    put_key_object(w, "prompt_tokens_details");
    put_key_int(w, "cached_tokens", u->cached);
    put_object_end(w);
    put_object_end(w);
}
