/* server/browser.c: see browser.h. */
#include "server/browser.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The shell ends at once: the browser is no child of the server, and keeps none of its streams. */
static const char script[] =
    "command -v xdg-open >/dev/null || exit 3; "
    "xdg-open \"$0\" </dev/null >/dev/null 2>&1 &";
enum { NO_PROGRAM = 3 };

static bool is_set(const char *name) {
    const char *value = getenv(name);
    return value && value[0];
}

/* Signals that the server blocks or ignores are the browser's to hear. */
static void free_signals(posix_spawnattr_t *attributes) {
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE);
    posix_spawnattr_init(attributes);
    posix_spawnattr_setsigmask(attributes, &none);
    posix_spawnattr_setsigdefault(attributes, &usual);
    posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

static enum status run_script(const char *address, int *code, struct error *e) {
    char *words[] = {(char[]){"sh"}, (char[]){"-c"}, xstrdup(script), xstrdup(address), NULL};
    posix_spawnattr_t attributes;
    pid_t child;
    int ended = 0;
    free_signals(&attributes);
    errno = posix_spawn(&child, "/bin/sh", NULL, &attributes, words, environ);
    enum status status = errno ? error_errno(e, "/bin/sh") : STATUS_OK;
    posix_spawnattr_destroy(&attributes);
    free(words[2]);
    free(words[3]);
    if (status) return status;

    pid_t waited = waitpid(child, &ended, 0);
    while (waited < 0 && errno == EINTR) waited = waitpid(child, &ended, 0);
    *code = waited == child && WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
    return STATUS_OK;
}

enum status browser_open(const char *address, struct error *e) {
    int code = 0;
    if (!is_set("DISPLAY") && !is_set("WAYLAND_DISPLAY"))
        return error_set(e, STATUS_UNSUPPORTED,
                         "--open: there is no desktop here (DISPLAY, WAYLAND_DISPLAY): open %s in "
                         "a browser",
                         address);
    if (run_script(address, &code, e)) return e->status;
    if (code == 0) return STATUS_OK;
    return error_set(e, STATUS_NOT_FOUND, "--open: %s: open %s in a browser",
                     code == NO_PROGRAM ? "xdg-open is not there (package xdg-utils)"
                                        : "the shell could not run xdg-open",
                     address);
}
