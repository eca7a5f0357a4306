/* retrieval/extract/extract_keeper.h: a process that begins the parsers' processes. A fork of a program with threads
 * copies locks that other threads hold, runs handlers of libraries that the other threads are using, and costs the time
 * of its memory; this one stays as it was when the program had one thread and little memory. */
#pragma once

#include "config/base/base.h"

/* To be called once, by a program that reads foreign files beside other threads, before it has any. The process ends
 * with the program. Without it parsers are forked from the program itself. */
enum status extract_keeper_start(struct error *e);
