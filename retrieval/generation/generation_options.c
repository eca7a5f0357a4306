/* retrieval/generation/generation_options.c: the options that a collection is made with. */
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/generation/generation_private.h"

enum status generation_check_options(const struct collection_options *options, struct error *e) {
    if (options->chunk_length < 1 || options->chunk_length > COLLECTION_MAX_CHUNK_LENGTH)
        return error_set(e, STATUS_INVALID, "chunk length %d: 1 .. %d is possible",
                         options->chunk_length, COLLECTION_MAX_CHUNK_LENGTH);
    if (options->context < 0 || options->context > CHUNK_MAX_CONTEXT || options->overlap < 0 ||
        options->overlap > CHUNK_MAX_CONTEXT)
        return error_set(e, STATUS_INVALID,
                         "%d tokens of context and %d of overlap: 0 .. %d of each are possible",
                         options->context, options->overlap, CHUNK_MAX_CONTEXT);
    if (options->dim < 1 || options->dim > COLLECTION_MAX_DIM)
        return error_set(e, STATUS_INVALID, "vectors of %d numbers: 1 .. %d is possible",
                         options->dim, COLLECTION_MAX_DIM);
    if (options->pictures.embedder &&
        (options->pictures.dim < 1 || options->pictures.dim > COLLECTION_MAX_DIM))
        return error_set(e, STATUS_INVALID,
                         "vectors of pictures of %d numbers: 1 .. %d is possible",
                         options->pictures.dim, COLLECTION_MAX_DIM);
    if (options->eod < 0)
        return error_set(e, STATUS_INVALID, "end-of-document id %d: the model has none",
                         options->eod);
    /* The MANIFEST is JSON, which cannot hold other bytes; a changed name would name another
     * folder. */
    if (!utf8_is_valid(options->embedder, strlen(options->embedder)) ||
        !utf8_is_valid(options->tokenizer, strlen(options->tokenizer)))
        return error_set(e, STATUS_INVALID,
                         "the path of the embedder or of the tokenizer is not valid UTF-8");
    if (options->pictures.embedder &&
        !utf8_is_valid(options->pictures.embedder, strlen(options->pictures.embedder)))
        return error_set(e, STATUS_INVALID,
                         "the path of the pictures' embedder is not valid UTF-8");
    const char *const prompts[] = {options->query_prompt, options->document_prompt,
                                   options->pictures.query_prompt,
                                   options->pictures.document_prompt};
    for (size_t i = 0; i < ARRAY_COUNT(prompts); i++)
        if (prompts[i] && !utf8_is_valid(prompts[i], strlen(prompts[i])))
            return error_set(e, STATUS_INVALID, "a prompt of the embedder is not valid UTF-8");
    return STATUS_OK;
}
