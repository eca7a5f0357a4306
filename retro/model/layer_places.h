/* retro/model/layer_places.h: the places of struct layer that a layer has. */
#pragma once

#include "retro/model/model_private.h"

/* Whether the layer has the place, an offset in struct layer: a table of rows may serve layers with
 * and without it. */
bool layer_has_place(const struct layer *layer, const struct dims *dims, size_t place);
