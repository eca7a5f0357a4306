/* retro/families/huggingface_vision.h: towers that Hugging Face's models share. */
#pragma once

#include "retro/families/huggingface.h"

/* The tower of a vision_config: its `read` fills the tower's dims and spec, its rows name the
 * tensors. NULL: there is none of this type. */
const struct family *huggingface_find_tower(const char *model_type);

/* The vision_config of Qwen2-VL, or of Qwen2.5-VL where `newer`: fills the tower's dims and spec,
 * the projector, and the part of the tower, whose tensors stand behind "visual.". Its sizes are not
 * checked against the decoder's yet. */
enum status qwen_tower_read(const struct json *config, bool newer, struct model_spec *spec,
                            struct error *e);
