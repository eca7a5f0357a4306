/* config/base/process.c: how a program begins and ends. See process.h. */
#include "config/base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Why output failed is known of the last block alone, so a help text is one block. */
enum { OUTPUT_BLOCK = 64 << 10 };

void standard_streams_open(void) {
    static char block[OUTPUT_BLOCK];
    int fd;
    do fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
    if (!isatty(STDOUT_FILENO)) setvbuf(stdout, block, _IOFBF, sizeof block);
}

void openmp_wait_passively(char **argv) {
    static const char variable[] = "OMP_WAIT_POLICY";
    char program[PATH_MAX];
    if (getenv(variable) != NULL) return;

    /* By its own path: a process that runs /proc/self/exe is called "exe" in lists of processes. */
    ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);
    if (size < 0) return;
    program[size] = '\0';
    if (setenv(variable, "passive", 0) == 0) execv(program, argv);
}

/* Nothing but the system's own calls may be used here. */
static void explain_bus_error(int number) {
    static const char text[] =
        ": a page of memory cannot be read: a file of the model or of the collection was cut, or "
        "its "
        "disk fails; never change them in place, make new ones and start again\n";
    const char *name = program_invocation_short_name;
    ssize_t n = write(STDERR_FILENO, name, strlen(name));
    n += write(STDERR_FILENO, text, sizeof text - 1);
    (void)number, (void)n;
    _exit(EXIT_FAILURE);
}

void bus_errors_explain(void) { signal(SIGBUS, explain_bus_error); }

int process_end(int code) {
    bool failed_before = ferror(stdout) != 0;
    errno = 0;
    bool failed_now = fflush(stdout) != 0;
    if (failed_before || failed_now) {
        fprintf(stderr, "%s: standard output: not everything could be written%s%s\n",
                program_invocation_short_name, errno ? ": " : "", errno ? strerror(errno) : "");
        if (code == 0) code = 1;
    }
    if (code == 0) return 0;
    fflush(NULL);
    _exit(code);
}
