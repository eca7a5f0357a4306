/* config/base/memory.h: how much memory this process can still take: of the machine's, and of what
 * the control groups that it is in may have, which is how containers and services are limited. */
#pragma once

#include <stddef.h>

struct memory {
    size_t available; /* bytes, without swapping; SIZE_MAX when nobody can tell */
    char limit[200];  /* the control group's file that decides; empty: the machine does */
};

/* `root` is put before /proc and /sys: "" but in tests. The least of MemAvailable and of what each
 * group from this process's own up to the topmost that can be seen has left, of version 1 and
 * version 2: its limit less what it uses, of which files' pages can be taken back. */
void memory_read(struct memory *memory, const char *root);

/* Bytes of this process that are in memory and are no file's, without what is free to it. */
size_t memory_own(void);
