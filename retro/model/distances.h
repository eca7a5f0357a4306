/* retro/model/distances.h: the rows of distances between tokens as each layer reads them (DeBERTa,
 * He et al. 2021, arXiv 2006.03654): the layer's queries and keys of the table's rows. They depend
 * on weights alone, so they are made once, when the weights are there. */
#pragma once

#include "retro/model/model_private.h"

/* The row of the table for a distance, query minus key: those of more than half a span share rows
 * by their logarithms where there are buckets (DeBERTa-v2's make_log_bucket_position). */
int distance_row(const struct distance_dims *dims, int distance);

/* STATUS_UNSUPPORTED where the device's attention knows no distances. */
enum status distances_check_device(const struct model *model, struct error *e);
/* Makes them for all layers of the encoder, and adds their bytes to those of the weights;
 * check_only: only that. Nothing where distances add nothing. */
enum status distances_open(struct model *model, bool check_only, struct error *e);
void distances_release(struct model *model);
