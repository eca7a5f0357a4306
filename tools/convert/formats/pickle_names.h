/* tools/convert/formats/pickle_names.h: names that a pickle may not hold. No name is ever imported,
 * so these are refused to say what the file is, not to be safe from it. */
#pragma once

#include "config/base/buffer.h"

bool pickle_names_refuse(struct text_span module, struct text_span name);
/* Whether a list of tensors has a use for classes of a module. */
bool pickle_names_known(struct text_span module);
