/* retro/weights/gguf_keys.h: the keys of a file by its architecture, for the files that put them
 * and the tensors in Hugging Face's words. */
#pragma once

#include "config/json/json_writer.h"
#include "retro/weights/gguf_architectures.h"

/* Tensors by which the frequencies of RoPE are divided: all of them, or those of short and of long
 * texts. */
#define ROPE_FACTORS "rope_freqs.weight"
#define ROPE_SHORT_FACTORS "rope_factors_short.weight"
#define ROPE_LONG_FACTORS "rope_factors_long.weight"
bool gguf_has_longrope(const struct gguf *gguf, const struct architecture *architecture);

/* STATUS_UNSUPPORTED, "FILE: key "ARCHITECTURE.key" what". */
enum status gguf_key_fail(const struct gguf *gguf, const struct architecture *architecture,
                          const char *key, const char *what, struct error *e);
/* A whole number, or the one number of a list for all layers; false: it is neither, or NULL. */
bool gguf_key_int(const struct gguf_value *value, int64_t *out);
/* Likewise of a list whose items are equal where they are not 0. */
bool gguf_key_uneven(const struct gguf_value *value, int64_t *out);
/* The size of a head; 0 where nothing tells. */
int64_t gguf_head_size(const struct gguf *gguf, const struct architecture *architecture);
/* The layers of the model, without those behind them that foretell tokens. */
int64_t gguf_layers(const struct gguf *gguf, const struct architecture *architecture);

/* Whether one of the rows has this key. */
bool gguf_names_key(const struct key_row *rows, size_t n, struct text_span key);
/* The members of config.json that the rows tell of. */
enum status gguf_write_keys(struct json_writer *w, const struct gguf *gguf,
                            const struct architecture *architecture, const struct key_row *rows,
                            size_t n, struct error *e);

/* Members of config.json about single layers: their kinds by a list of truth values, or nothing
 * where the key is absent; the period of windows or their list; the kinds by the architecture's
 * lists of sizes. */
enum status gguf_write_layer_types(struct json_writer *w, const struct gguf *gguf,
                                   const struct architecture *architecture,
                                   const struct key_row *row, struct error *e);
enum status gguf_write_pattern(struct json_writer *w, const struct gguf *gguf,
                               const struct architecture *architecture, const struct key_row *row,
                               struct error *e);
enum status gguf_write_kinds(struct json_writer *w, const struct gguf *gguf,
                             const struct architecture *architecture, struct error *e);
/* The heads, MLPs and rotations of layers with a window and of those without. */
enum status gguf_write_wide(struct json_writer *w, const struct gguf *gguf,
                            const struct architecture *architecture, struct error *e);
/* The sizes of attention over latents, and the choice of groups of experts. */
enum status gguf_write_latents(struct json_writer *w, const struct gguf *gguf,
                               const struct architecture *architecture, struct error *e);
