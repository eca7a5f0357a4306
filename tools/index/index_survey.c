/* tools/index/index_survey.c: how much text the files hold, before the build reads them for good. A
 * page of HTML can be one part text and ten parts markup, and its neighbour the other way round:
 * the bytes of files alone make a progress bar that stands still and jumps. */
#include <stdlib.h>
#include <string.h>

#include "tools/index/index.h"

/* Reading for two seconds is little beside embedding a collection that takes minutes; a small one
 * is not surveyed. */
#define SURVEY_SECONDS 2.0
#define SMALL_BYTES (1u << 18)

static bool is_small(const struct walk *walk) {
    uint64_t sum = 0;
    for (int i = 0; i < walk->n && sum <= SMALL_BYTES; i++) sum += walk->files[i].size;
    return sum <= SMALL_BYTES;
}

/* Packed pages hold more text than their bytes, HTML holds less. */
static int survey_kind(const struct found_file *file) {
    size_t size = strlen(file->path);
    bool packed = size > 3 && strcmp(file->path + size - 3, ".gz") == 0;
    return 2 * (int)file->kind + packed;
}

static enum status count_text(void *context, const char *part, const struct document_text *text,
                              struct error *e) {
    uint64_t *bytes = context;
    (void)part;
    *bytes += text->text.size;
    return index_interrupted ? error_set(e, STATUS_CANCELLED, "interrupted") : STATUS_OK;
}

void survey_texts(struct walk *walk, const struct build_options *options) {
    enum { KINDS = 2 * DOCUMENT_KINDS };
    struct {
        double file, text;
    } seen[KINDS] = {{0}};
    struct error unreadable;
    bool *read = xcalloc((size_t)walk->n + 1, sizeof *read);
    double end = time_now() + SURVEY_SECONDS;
    /* Steps that halve spread what is read in time evenly over the folders. */
    int step = is_small(walk) ? 0 : 1;
    while (step > 0 && step < walk->n) step *= 2;
    for (; step > 0; step /= 2)
        for (int i = 0; i < walk->n && time_now() < end && !index_interrupted; i += step) {
            struct found_file *file = &walk->files[i];
            if (read[i]) continue;
            read[i] = true;
            struct document_taker taker = {.context = &file->text_bytes, .take = count_text};
            read_documents(options, file, &index_interrupted, &taker, &unreadable);
            seen[survey_kind(file)].file += (double)file->size;
            seen[survey_kind(file)].text += (double)file->text_bytes;
        }
    for (int i = 0; i < walk->n; i++) {
        int kind = survey_kind(&walk->files[i]);
        double ratio = seen[kind].file > 0 ? seen[kind].text / seen[kind].file : 1;
        if (!read[i]) walk->files[i].text_bytes = (uint64_t)((double)walk->files[i].size * ratio);
    }
    free(read);
}
