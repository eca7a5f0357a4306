/* kernels/comm/comm_rendezvous.h: the meeting of ranks that nothing launched together: by a file, which rank 0 writes
 * and the others read. It says where rank 0 listens, and holds a secret that is new each time. Whoever connects
 * shows that it read the file, and whoever answers shows that it wrote it, so neither a file that an earlier run left
 * nor a stranger on the port is taken for one of these ranks. */
#pragma once

#include "kernels/comm/comm.h"

/* Joins this process, rank o->rank, with all other ranks: sockets [size * stages] gets a connection to each, -1 at its
 * own place. Takes o->timeout seconds at most; then the error says who did not come. When rank 0 refuses a rank, for
 * being another number of ranks or being there already, it says why to all and all fail. The file is gone when all have
 * met. */
enum status comm_rendezvous(int *sockets, const struct comm_options *o, struct error *e);
