/* retro/text/open/tokenizer_writing.c: see tokenizer_writing.h. */
#include "retro/text/open/tokenizer_writing.h"

void put_added_token(struct json_writer *w, int id, struct text_span content, bool special) {
    put_object(w);
    put_key_int(w, "id", id);
    put_key_string_n(w, "content", content.text, content.size);
    put_key_bool(w, "special", special);
    put_key_bool(w, "normalized", false);
    put_object_end(w);
}

static void put_template_marks(struct json_writer *w, const char *name, int id) {
    if (id < 0) return;
    put_key_object(w, name);
    put_key_string(w, "id", name);
    put_key_array(w, "ids");
    put_int(w, id);
    put_array_end(w);
    put_object_end(w);
}

void put_template(struct json_writer *w, int before, int after) {
    put_key_object(w, "post_processor");
    put_key_string(w, "type", "TemplateProcessing");
    put_key_array(w, "single");
    for (int part = 0; part < 3; part++) {
        static const char *const names[] = {"before", "A", "after"};
        if ((part == 0 && before < 0) || (part == 2 && after < 0)) continue;
        put_object(w);
        put_key_object(w, part == 1 ? "Sequence" : "SpecialToken");
        put_key_string(w, "id", names[part]);
        put_object_end(w);
        put_object_end(w);
    }
    put_array_end(w);
    put_key_object(w, "special_tokens");
    put_template_marks(w, "before", before);
    put_template_marks(w, "after", after);
    put_object_end(w);
    put_object_end(w);
}

void put_splits(struct json_writer *w, const char *const *steps) {
    put_key_object(w, "pre_tokenizer");
    put_key_string(w, "type", "Sequence");
    put_key_array(w, "pretokenizers");
    for (; *steps; steps++) {
        put_object(w);
        put_key_string(w, "type", "Split");
        put_key_object(w, "pattern");
        put_key_string(w, "Regex", *steps);
        put_object_end(w);
        put_key_string(w, "behavior", "Isolated");
        put_key_bool(w, "invert", false);
        put_object_end(w);
    }
    put_object(w);
    put_key_string(w, "type", "ByteLevel");
    put_key_bool(w, "add_prefix_space", false);
    put_key_bool(w, "use_regex", false);
    put_object_end(w);
    put_array_end(w);
    put_object_end(w);
}

void put_byte_decoder(struct json_writer *w) {
    put_key_object(w, "decoder");
    put_key_string(w, "type", "ByteLevel");
    put_object_end(w);
}
