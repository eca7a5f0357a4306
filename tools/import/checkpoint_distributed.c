#include "tools/import/checkpoint.h"
enum status checkpoint_open_distributed(struct checkpoint *c, struct error *e) {
    return error_set(e, STATUS_UNSUPPORTED, "%s: not yet", c->folder);
}
