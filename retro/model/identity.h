/* retro/model/identity.h: what ranks that are processes compare before they load: that they were
 * given the same model.
 */
#pragma once

#include "config/base/buffer.h"
#include "kernels/comm/comm.h"

/* Appends lines for comm_same: the checksum of the folder's config.json, of its tensors' names,
 * types and shapes, and of their contents. Files are not compared by name, so shards and one file
 * are the same model. A file that cannot be read becomes a line that says why.
 *
 * Tensors up to 64 KB are read whole, of larger ones eight places of 8 KB, the first and the last
 * bytes among them: what was trained or converted otherwise differs all over. Of more than a
 * thousand tensors there are fewer places, at least the last bytes of each. Of 2.5 GB in 300
 * tensors that took 0.01 s from memory and 2 s from a disk, and reading all of it 0.2 s and 4.7 s;
 * it grows with the number of tensors, not of bytes. Other ranks are told that this one is working.
 */
void model_identify(const char *folder, struct comm *world, struct buffer *lines);
