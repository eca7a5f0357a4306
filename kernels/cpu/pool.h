/* kernels/cpu/pool.h: the threads of one CPU backend.
 *
 * Not OpenMP, because its join waits for every thread of the team: on cores that other threads want
 * too (retrieval, HTTP, other programs) a step then waits for whole time slices of the scheduler;
 * measured on two busy cores, 0.7 GB/s of weights instead of 30. Here every thread takes over the
 * pieces of the others, and the caller waits only for a thread that is in the middle of one. */
#pragma once

#include "config/base/base.h"

struct pool;

/* Does piece `piece` of a job; `thread` is in [0, threads) and is no other thread's at that moment.
 */
typedef void pool_work(const void *context, int piece, int thread);

/* `threads` counts the caller: one thread starts none. */
enum status pool_open(struct pool **out, int threads, struct error *e);
void pool_close(struct pool *pool);
/* work(context, 0 .. pieces - 1), shared between the caller and the threads that are free; returns
 * when all are done. Neighbouring pieces go to one thread, in rising order, as long as nobody runs
 * out of work. `operations` > 0 says how much work all pieces are, in a unit that is the same for
 * every job of this function. One caller at a time. */
void pool_run(struct pool *pool, double operations, int pieces, pool_work *work,
              const void *context);
