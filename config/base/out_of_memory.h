/* config/base/out_of_memory.h: what xmalloc and its family do where memory is out. */
#pragma once

/* Calls this in place of their message and abort: it must not return. For a process whose end
 * somebody explains. */
void set_out_of_memory(void (*end)(void));
