/* tools/convert/convert_calibrate.h: the importance of the columns of matrices, by a text that a
 * model reads. */
#pragma once

#include "tools/convert/plan/convert.h"

/* Runs a model over a text and remembers the mean square of every input column of its matrices. */
struct calibration;
enum status calibration_run(struct calibration **out, const struct conversion *conversion,
                            const struct convert_options *options, struct error *e);
/* [n_in] of a matrix of the conversion's model; NULL for one that the text never reached. */
const float *calibration_importance(const struct calibration *calibration,
                                    const struct weight *weight);
int calibration_tokens(const struct calibration *calibration);
void calibration_close(struct calibration *calibration);
