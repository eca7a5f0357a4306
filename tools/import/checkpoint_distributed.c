/* tools/import/checkpoint_distributed.c: Megatron's distributed checkpoints. */
#include "tools/import/checkpoint.h"

enum status checkpoint_open_distributed(struct checkpoint *c, struct error *e) {
    return error_set(e, STATUS_UNSUPPORTED, "%s is a distributed checkpoint (torch_dist), which is not read",
                     c->folder);
}
