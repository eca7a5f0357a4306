/* tests/fuzz/fuzz_tokenizer.c: a tokenizer.json or tekken.json that nobody vouches for; if it
 * opens, it encodes and decodes. The bytes after the first NUL are the text. */
#include <string.h>

#include "retro/text/open/tokenizer_tekken.h"
#include "retro/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_text(const struct tokenizer *t, const char *text, size_t size, int flags) {
    struct tokens ids = {0};
    struct buffer back = {0};
    struct error e;
    if (tokenizer_encode(t, text, size, flags, &ids, &e) == STATUS_OK) {
        for (int i = 0; i < ids.n; i++)
            CHECK(ids.starts[i] <= size && ids.ids[i] < tokenizer_vocab_size(t));
        tokenizer_decode(t, ids.ids, ids.n, flags != 0, &back);
    }
    tokens_free(&ids);
    buffer_free(&back);
}

static enum status open_any(struct tokenizer **out, const char *text, size_t size) {
    struct json *root = NULL;
    struct buffer written = {0};
    struct error e;
    enum status status = json_parse(&root, (struct text_span){text, size}, "tekken.json", &e);
    if (status == STATUS_OK && tekken_write_tokenizer(&written, root, &e) == STATUS_OK)
        status = tokenizer_open_json(out, written.data, written.size, &e);
    else
        status = tokenizer_open_json(out, text, size, &e);
    json_close(root);
    buffer_free(&written);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char nasty[] =
        "a b\0\xff\xc3 \xe2\x82 e\xcc\x81\xcc\xa3 \xed\x95\x9c<|endoftext|>[SEP] \r\n\n  x";
    const char *text = (const char *)data, *nul = size ? memchr(text, '\0', size) : NULL;
    size_t json = nul ? (size_t)(nul - text) : size;
    struct tokenizer *t;
    if (open_any(&t, size ? text : "", json) != STATUS_OK) return 0;
    try_text(t, nasty, sizeof nasty - 1, TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_SPECIAL);
    if (nul) try_text(t, nul + 1, size - json - 1, TOKENIZER_PLAIN);
    tokenizer_close(t);
    return 0;
}
