/* tools/convert/containers/checkpoint_companions.c: the tokenizer that NeMo puts into its archives
 * and folders. */
#include <string.h>

#include "config/base/text.h"
#include "tools/convert/containers/checkpoint.h"

/* Where NeMo 2 keeps a Hugging Face tokenizer, and the files of it that a model folder has too. */
static const char hugging_face[] = "context/nemo_tokenizer/";
static const char *const files[] = {"tokenizer.json",        "vocab.txt",
                                    "tokenizer.model",       "spiece.model",
                                    "tokenizer_config.json", "special_tokens_map.json",
                                    "added_tokens.json",     "chat_template.jinja"};

static enum status add_companion(struct checkpoint *checkpoint, const char *entry, const char *name,
                                 struct error *e) {
    struct text_span bytes;
    if (checkpoint_read(checkpoint, entry, &bytes, e)) return e->status;
    checkpoint->companions[checkpoint->n_companions] = (struct checkpoint_companion){name, bytes};
    checkpoint->n_companions++;
    return STATUS_OK;
}

static enum status take_folder(struct checkpoint *checkpoint, struct error *e) {
    enum status status = STATUS_OK;
    for (size_t i = 0; i < ARRAY_COUNT(files) && status == STATUS_OK; i++) {
        struct buffer entry = {0};
        buffer_printf(&entry, "%s%s", hugging_face, files[i]);
        if (checkpoint_has(checkpoint, entry.data))
            status = add_companion(checkpoint, entry.data, files[i], e);
        buffer_free(&entry);
    }
    return status;
}

/* The name that a file has in a model folder, by its own; NULL: it is no tokenizer that is read. */
static const char *place_of(const char *entry) {
    if (ends_with(entry, ".model")) return "tokenizer.model";
    if (ends_with(entry, "tokenizer.json")) return "tokenizer.json";
    if (ends_with(entry, "vocab.txt")) return "vocab.txt";
    return NULL;
}

enum status checkpoint_take_tokenizer(struct checkpoint *checkpoint, const char *wanted,
                                      struct error *e) {
    if (wanted && place_of(wanted) && checkpoint_has(checkpoint, wanted))
        return add_companion(checkpoint, wanted, place_of(wanted), e);
    if (take_folder(checkpoint, e)) return e->status;
    if (checkpoint->n_companions > 0) return STATUS_OK;
    const char *only = NULL;
    int found = 0;
    for (int i = 0; i < checkpoint->n_entries; i++) {
        if (place_of(checkpoint->entries[i].name) == NULL) continue;
        only = checkpoint->entries[i].name;
        found++;
    }
    return found == 1 ? add_companion(checkpoint, only, place_of(only), e) : STATUS_OK;
}
