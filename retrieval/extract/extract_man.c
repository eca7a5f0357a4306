/* retrieval/extract/extract_man.c: man pages, formatted by the mandoc program: a page is a program in roff, and no
 * parser of ours would do. It runs with a fixed argument list and no shell; what it may print and how long are bounded.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "retrieval/extract/extract_private.h"

enum { MANDOC_SECONDS = 30 };

/* Reads everything the program prints. */
static enum status read_output(int fd, const char *path, size_t limit, struct buffer *out, struct error *e) {
    char block[1 << 16];
    double deadline = time_now() + MANDOC_SECONDS;
    for (;;) {
        double left = deadline - time_now();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = left > 0 ? poll(&p, 1, (int)(left * 1000) + 1) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready < 0) return error_errno(e, "%s: poll", path);
        if (ready == 0) return error_set(e, STATUS_INVALID, "%s: mandoc takes over %d seconds", path, MANDOC_SECONDS);
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_errno(e, "%s: read from mandoc", path);
        if (n == 0) return STATUS_OK;
        if ((size_t)n > limit - out->size)
            return error_set(e, STATUS_TOO_LARGE, "%s: the page has more text than the limit of %zu bytes", path,
                             limit);
        buffer_append(out, block, (size_t)n);
    }
}

static enum status spawn_mandoc(const char *path, int output, pid_t *pid, struct error *e) {
    struct buffer argument = {0};
    /* A name that begins with a dash must not become an option. */
    buffer_printf(&argument, "%s%s", path[0] == '-' ? "./" : "", path);
    char *argv[] = {(char[]){"mandoc"},
                    (char[]){"-T"},
                    (char[]){"utf8"},
                    (char[]){"-O"},
                    (char[]){"width=500,indent=0"},
                    argument.data,
                    NULL};
    char *environment[] = {(char[]){"LC_ALL=C.UTF-8"}, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int failed = posix_spawnp(pid, "mandoc", &actions, NULL, argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    buffer_free(&argument);
    if (failed == ENOENT)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: man pages need the program mandoc; install the package of that "
                         "name",
                         path);
    errno = failed;
    return failed ? error_errno(e, "%s: start mandoc", path) : STATUS_OK;
}

static enum status run_mandoc(const char *path, size_t limit, struct buffer *out, struct error *e) {
    int pipes[2], code;
    pid_t pid;
    if (pipe2(pipes, O_CLOEXEC) != 0) return error_errno(e, "%s: pipe", path);
    enum status status = spawn_mandoc(path, pipes[1], &pid, e);
    close(pipes[1]);
    if (status == STATUS_OK) {
        status = read_output(pipes[0], path, limit, out, e);
        if (status) kill(pid, SIGKILL);
        while (waitpid(pid, &code, 0) < 0 && errno == EINTR) continue;
        if (status == STATUS_OK && (!WIFEXITED(code) || WEXITSTATUS(code) >= 5))
            status = error_set(e, STATUS_INVALID, "%s: mandoc could not format it", path);
    }
    close(pipes[0]);
    return status;
}

/* "N\bN" and "_\bN" become "N", as a terminal without bold shows them: a backspace takes the character before it. */
static void remove_overstrike(struct buffer *b) {
    size_t to = 0;
    for (size_t from = 0; from < b->size; from++) {
        if (b->data[from] != '\b') {
            b->data[to] = b->data[from];
            to++;
            continue;
        }
        while (to > 0 && ((uint8_t)b->data[to - 1] & 0xc0) == 0x80) to--;
        if (to > 0) to--;
    }
    b->size = to;
    if (b->data) b->data[to] = '\0';
}

/* Lines of text[*at, size): the next one that is not blank, without its newline; false at the end. */
static bool next_line(const struct buffer *text, size_t *at, struct text_span *line) {
    while (*at < text->size) {
        const char *start = text->data + *at;
        const char *end = memchr(start, '\n', text->size - *at);
        size_t size = end ? (size_t)(end - start) : text->size - *at;
        *at += size + (end != NULL);
        *line = (struct text_span){start, size};
        for (size_t i = 0; i < size; i++)
            if (start[i] != ' ') return true;
    }
    return false;
}

/* The line under the first heading, "name - what it does", without its indent and with a plain dash. */
static void write_title(const struct buffer *page, size_t at, struct buffer *title) {
    struct text_span line;
    if (!next_line(page, &at, &line) || !next_line(page, &at, &line)) return;
    while (line.size > 0 && *line.text == ' ') line.text++, line.size--;
    static const char dash[] = " \xe2\x80\x93 ";
    const char *found = memmem(line.text, line.size, dash, sizeof dash - 1);
    size_t before = found ? (size_t)(found - line.text) : line.size;
    buffer_append(title, line.text, before);
    if (found) {
        buffer_append_string(title, " - ");
        buffer_append(title, found + sizeof dash - 1, line.size - before - (sizeof dash - 1));
    }
}

/* Sections begin in the first column, their parts in the fourth behind an empty line or a section; nothing else does.
 */
static void mark_sections(const struct document_text *page, struct buffer *marks) {
    const struct buffer *text = &page->text;
    bool may_be_part = false;
    for (size_t at = 0; at < text->size;) {
        const char *line = text->data + at, *end = memchr(line, '\n', text->size - at);
        size_t size = end ? (size_t)(end - line) : text->size - at, indent = 0;
        while (indent < size && line[indent] == ' ') indent++;
        bool is_section = indent == 0 && size > 0, is_part = indent == 3 && may_be_part && size > indent;
        if (is_section || is_part) marks_add(marks, MARK_HEADING, is_section ? 1 : 2, at + indent, size - indent);
        may_be_part = is_section || indent == size;
        at += size + (end != NULL);
    }
}

/* The page between mandoc's header and footer lines. */
static enum status take_page(const char *path, const struct buffer *page, struct document_text *out, struct error *e) {
    size_t at = 0, body;
    struct text_span line, last = {0};
    if (!next_line(page, &at, &line) || *line.text == '(')
        return error_set(e, STATUS_INVALID, "%s: not a man page: it names no title (.TH or .Dd)", path);
    body = at;
    while (next_line(page, &at, &line)) last = line;
    if (last.text == NULL) return error_set(e, STATUS_INVALID, "%s: empty", path);
    size_t end = (size_t)(last.text - page->data);
    while (body < end && page->data[body] == '\n') body++;
    while (end > body && page->data[end - 1] == '\n') end--;
    buffer_append(&out->text, page->data + body, end - body);
    buffer_append(&out->text, "\n", 1);
    mark_sections(out, &out->marks);
    write_title(page, body, &out->title);
    return STATUS_OK;
}

/* mandoc prints "See the file NAME." under an empty title for a page that is a .so line and whose target is elsewhere.
 */
static bool is_redirect(const struct buffer *page) {
    size_t at = 0;
    struct text_span line;
    return next_line(page, &at, &line) && *line.text == '(' && next_line(page, &at, &line) && line.size > 13 &&
           memcmp(line.text, "See the file ", 13) == 0;
}

enum status extract_man(const char *path, size_t limit, struct document_text *out, struct error *e) {
    struct buffer source = {0}, page = {0};
    /* mandoc opens the file itself; reading it first refuses what is no regular file, too large or binary. */
    enum status status = file_read(path, limit, &source, e);
    size_t size = strlen(path);
    bool packed = size > 3 && strcmp(path + size - 3, ".gz") == 0;
    if (status == STATUS_OK && source.size == 0) status = error_set(e, STATUS_INVALID, "%s: empty", path);
    if (status == STATUS_OK && !packed && memchr(source.data, '\0', source.size))
        status = error_set(e, STATUS_INVALID, "%s: binary: it holds a NUL", path);
    buffer_free(&source);
    if (status == STATUS_OK) status = run_mandoc(path, limit, &page, e);
    if (status == STATUS_OK) {
        remove_overstrike(&page);
        status = is_redirect(&page) ? error_set(e, STATUS_INVALID,
                                                "%s: only refers to another page (.so), which is indexed itself "
                                                "where it lies",
                                                path)
                                    : take_page(path, &page, out, e);
    }
    buffer_free(&page);
    return status;
}
