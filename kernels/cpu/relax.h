/* kernels/cpu/relax.h: one turn of a loop that waits for another thread. */
#pragma once

/* Tells the processor that this thread only waits: it saves power, and leaves the core to a second
 * hardware thread. */
static inline void cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#else
    __asm__ volatile("" ::: "memory");
#endif
}
