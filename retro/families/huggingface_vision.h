/* retro/families/huggingface_vision.h: towers that Hugging Face's models share. */
#pragma once

#include "retro/families/huggingface.h"

/* The tower of a vision_config: its `read` fills the tower's dims and spec, its rows name the tensors. NULL: there is
 * none of this type. */
const struct family *huggingface_find_tower(const char *model_type);
