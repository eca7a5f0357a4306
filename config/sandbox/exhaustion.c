/* config/sandbox/exhaustion.c: how a child ends that has no memory left: by a code of its own, so
 * that the program can say so. See sandbox_private.h.
 *
 * Libraries meet a refused allocation in many ways: they abort, trap, or use the pointer. All of
 * these are signals, and so is a stack that may not grow. A signal that comes while the limit is
 * near is taken for that, and any other ends the child as it would have. */
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config/base/out_of_memory.h"
#include "config/sandbox/sandbox_private.h"

/* The stack that is there before the rest of the memory is given away, and that of the handler. */
enum { STACK_BYTES = 1 << 20, HANDLER_BYTES = 1 << 16 };
/* The limit is near where an eighth of the memory cannot be had. */
enum { NEAR_PART = 8 };

static size_t probe;

static _Noreturn void end_child(void) { _exit(CODE_NO_MEMORY); }

/* The handler was reset by the kernel: the signal comes again where the child did not return from
 * what caused it, and a trap, which would go on behind itself, is made to. */
static void take_signal(int number) {
    void *room = mmap(NULL, probe, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) end_child();
    munmap(room, probe);
    if (number == SIGTRAP) __builtin_trap();
}

/* Pages of a stack are had when they are touched, and stay. */
static void grow_stack(void) {
    volatile char room[STACK_BYTES];
    room[0] = 0;
    (void)room[0];
}

void exhaustion_watch(size_t memory) {
    static char handler_stack[HANDLER_BYTES];
    static const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGTRAP};
    const stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
    struct sigaction action = {.sa_handler = take_signal,
                               .sa_flags = SA_ONSTACK | (int)SA_RESETHAND};
    probe = memory / NEAR_PART;
    grow_stack();
    sigaltstack(&stack, NULL);
    for (size_t i = 0; i < ARRAY_COUNT(signals); i++) sigaction(signals[i], &action, NULL);
    set_out_of_memory(end_child);
}
