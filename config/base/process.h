/* config/base/process.h: how a program begins and ends; for files with a main. */
#pragma once

/* First thing in a main that writes files: a standard stream that is closed leaves its number to
 * the next file opened, and messages would go into that. From here on reading such a stream finds
 * its end, and writing to it fails. */
void standard_streams_open(void);

/* First of all in a main whose threads share cores with OpenMP's: those of FAISS. They wait for
 * their next work in busy loops of milliseconds, unless OMP_WAIT_POLICY is passive, and so take the
 * cores from the model. libgomp reads that variable once, when the program is loaded and before any
 * code of ours, and has no function for it: it is set here where the user has not, and the program
 * begins anew, as the same process. Where it cannot, only time is lost. */
void openmp_wait_passively(char **argv);

/* Files are mapped, and one that is cut while it is in use ends the program wherever a page of it
 * is touched: from here on with a line that says so, and the code of a failure. */
void bus_errors_explain(void);

/* Ends main: returns the program's exit code. Standard output is flushed first; when not all of it
 * could be written, stderr says so, and a code of 0 becomes 1. A program that has failed leaves
 * here, without the destructors of libraries: where memory is short (ulimit -v) OpenBLAS, which
 * comes with FAISS, could not start its threads, and its destructor waits for them without end.
 * Nothing is lost: what was printed is flushed, the rest goes with the process.
 */
int process_end(int code);
