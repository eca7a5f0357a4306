/* retro/weights/gguf_tower.h: the file of a vision tower beside that of its model (llama.cpp's
 * "mmproj"), as parts of the folder of Hugging Face that both were made from: the vision_config,
 * the processor's file and the tensors.
 *
 *     gguf_tower.c         kinds of towers: keys, tensors, tokens; a tower that fits its model
 *     gguf_tower_names.c   tensors by the folder's names
 *     gguf_tower_folder.c  what the folder's files say
 *
 * As with the text, a key or a tensor that is not known is an error. */
#pragma once

#include "config/json/json_writer.h"
#include "retro/weights/gguf_folder.h"

struct architecture;
struct tower_kind;

/* Opens a model's file and joins its tower: the file *mmproj*.gguf of the same folder that goes
 * with it. Where several do whose names differ in the precision alone, it is the one that loses
 * least; STATUS_INVALID names the files where names differ otherwise. Where none does, the first
 * tower says why if no other model's file is there; else they are those of the others, and the
 * model has none. */
enum status gguf_open_model(struct gguf **out, const char *file, struct error *e);
/* Whether a tower's file is of a known kind and fits its model's. */
enum status gguf_check_tower(const struct gguf *model, const struct gguf *tower, struct error *e);

/* Of the tower that is joined to a model; NULL: there is none. */
const struct tower_kind *gguf_tower_kind(const struct gguf *model);
/* The model_type of the folder. */
const char *tower_model_type(const struct tower_kind *kind,
                             const struct architecture *architecture);

/* The tokens that stand for a picture, before and behind it, by their texts; NULL: the chat
 * template writes all it needs. A vocabulary that lacks `picture` has it behind its last token. */
struct tower_marks {
    const char *begin, *picture, *end;
};
struct tower_marks tower_marks_of(const struct tower_kind *kind);

/* Puts the members of text_config that tell of pictures. */
void gguf_write_tower_text(struct json_writer *w, const struct gguf *model,
                           const struct architecture *architecture);
/* Puts the members of config.json that tell of pictures. */
enum status gguf_write_tower(struct json_writer *w, const struct gguf *model, struct error *e);
/* Appends preprocessor_config.json. */
enum status gguf_write_processor(const struct gguf *model, struct buffer *json, struct error *e);

/* A tensor of a tower's file as the folder has it: `view->name`. A patch of two frames has one
 * tensor for each; of the first *frames is the other one, which has no name of its own. */
enum status gguf_view_tower(struct gguf_view *view, const struct gguf *model,
                            const struct gguf_tensor *tensor, const struct gguf_tensor **frames,
                            struct error *e);
