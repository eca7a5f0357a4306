/* kernels/comm.c: what all communicators share. See comm.h. */
#include "kernels/comm.h"

void comm_close(struct comm *c) {
    if (c != NULL) c->ops->close(c);
}
