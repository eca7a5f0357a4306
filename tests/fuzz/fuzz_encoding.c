/* tests/fuzz/fuzz_encoding.c: any bytes as a text file's: what is decoded is valid UTF-8 with a
 * replacement character for each damaged one, and anything else stays as it was. */
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/extract_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct buffer text = {0};
    size_t damaged = 0, replaced = 0;
    buffer_append(&text, data, size);
    enum extract_note note;
    bool decoded = extract_decode(&text, &damaged, &note);
    if (decoded) {
        CHECK(text.size == 0 || utf8_is_valid(text.data, text.size));
        for (size_t i = 0; i + 3 <= text.size; i++)
            replaced += memcmp(text.data + i, "\xef\xbf\xbd", 3) == 0;
        CHECK(damaged <= replaced && text.size <= 3 * size);
    } else {
        CHECK(damaged == 0 && text.size == size &&
              (size == 0 || memcmp(text.data, data, size) == 0));
    }
    CHECK(note == NOTE_NONE || decoded);
    if (extract_decode_western(&text))
        CHECK(utf8_is_valid(text.data, text.size) && text.size <= 3 * size);
    buffer_free(&text);
    return 0;
}
