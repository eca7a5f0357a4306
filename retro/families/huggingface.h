/* retro/families/huggingface.h: the parts of a Hugging Face folder that its families share. */
#pragma once

#include "retro/model/model_private.h"

/* "gelu", "gelu_new", ...: values of enum activation. */
extern const struct json_choice huggingface_activations[];

/* eos_token_id, an id or a list of ids, for a struct that begins with a model_spec. */
enum status huggingface_parse_eos(struct json_reader *r, const struct json *value, void *object);

/* rope_theta of transformers 4, and of 5 rope_parameters; frequencies that are scaled are errors. */
struct rope_keys {
    int type;
    float base, partial;
};
extern const struct json_table rope_parameters_table, rope_scaling_table;

/* Sizes that follow from others where config.json lacks them: key/value heads, head size, scale of scores, padded
 * vocabulary. An eos id outside the vocabulary is never drawn and counts as none. STATUS_INVALID where heads of equal
 * size do not fill the hidden size. */
enum status huggingface_derive(struct model_spec *s, struct dims *d, struct error *e);

/* inspect: a stored output matrix is the output matrix, whatever tie_word_embeddings says. */
void huggingface_find_output(const struct weights *w, struct model_spec *s);
