/* retro/text/sentencepiece.h: libsentencepiece in C. The library is included by sentencepiece.cc
 * only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sentencepiece_model;
enum sentencepiece_kind {
    SENTENCEPIECE_NORMAL,
    SENTENCEPIECE_CONTROL,
    SENTENCEPIECE_UNKNOWN,
    SENTENCEPIECE_BYTE
};

/* Why a call failed. */
struct sentencepiece_message {
    char text[200];
};

/* NULL when the bytes are no model; then *message says why. */
struct sentencepiece_model *sentencepiece_load(const char *bytes, size_t size,
                                               struct sentencepiece_message *message);
void sentencepiece_free(struct sentencepiece_model *model);
int sentencepiece_size(const struct sentencepiece_model *model);
int sentencepiece_bos(const struct sentencepiece_model *model); /* -1: none */
int sentencepiece_eos(const struct sentencepiece_model *model); /* -1: none */
/* The text of a piece, valid as long as the model, and what it is. */
const char *sentencepiece_piece(const struct sentencepiece_model *model, int id, size_t *size,
                                enum sentencepiece_kind *kind);
/* The text that decoding writes for the unknown token, as the library decodes it; the caller frees
 * it. */
char *sentencepiece_unknown_text(const struct sentencepiece_model *model, int id, size_t *size);
/* Calls take for every id and the byte of the text where it begins. false: *message says why not.
 */
bool sentencepiece_encode(const struct sentencepiece_model *model, const char *text, size_t size,
                          void (*take)(void *context, int id, uint32_t start), void *context,
                          struct sentencepiece_message *message);

#ifdef __cplusplus
}
#endif
