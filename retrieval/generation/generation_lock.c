/* retrieval/generation/generation_lock.c: the right to change a collection, by a lock on the file
 * LOCK in its folder. The system lets go of it with the process. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "retrieval/generation/generation_private.h"

enum status generation_lock(int *lock, const char *dir, struct error *e) {
    *lock = -1;
    char *path = disk_path(dir, "LOCK");
    enum status status = STATUS_OK;
    *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*lock < 0)
        status = error_errno(e, "%s: create", path);
    else if (flock(*lock, LOCK_EX | LOCK_NB) != 0)
        status =
            errno == EWOULDBLOCK
                ? error_set(e, STATUS_BUSY, "%s: another program is changing this collection", path)
                : error_errno(e, "%s: lock", path);
    free(path);
    if (status) {
        generation_unlock(*lock);
        *lock = -1;
    }
    return status;
}

enum status generation_lock_soon(int *lock, const char *dir, struct error *e) {
    enum { WAIT_SECONDS = 10, LOOK_MILLISECONDS = 10 };
    double end = time_now() + WAIT_SECONDS;
    enum status status = generation_lock(lock, dir, e);
    while (status == STATUS_BUSY && time_now() < end) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MILLISECONDS * 1000000L}, NULL);
        status = generation_lock(lock, dir, e);
    }
    return status;
}

void generation_unlock(int lock) {
    if (lock >= 0) close(lock);
}
