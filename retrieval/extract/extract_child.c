/* retrieval/extract/extract_child.c: child processes that parse. A parser of ours runs in a fork of this process; a
 * program is started in place of one. Both are read through a pipe, with a limit on the time that is spent waiting.
 * See extract_child.h. */
#include "retrieval/extract/extract_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config/base/utf8.h"
#include "retrieval/extract/extract_filter.h"
#include "retrieval/extract/extract_private.h"

/* Exit codes of a program that did not begin. */
enum { CODE_REFUSED = 126, CODE_MISSING = 127 };
/* How often it is asked whether anybody waits. */
enum { LOOK_MILLISECONDS = 200 };

struct child {
    pid_t pid; /* 0: it is the keeper's */
    int fd;    /* the end of the pipe that is read */
    const char *name;
    struct extract_limits limits;
    double waited; /* seconds */
    bool killed;
};

/* Reading what a child writes. */

/* One that the keeper began ends by its limit on time, or when it writes and nobody reads. */
static void kill_child(struct child *c) {
    if (c->pid > 0 && !c->killed) kill(c->pid, SIGKILL);
    c->killed = true;
}

static enum status stop_waiting(struct child *c, struct error *e) {
    kill_child(c);
    return error_set(e, STATUS_INVALID, "%s: reading it takes over %d seconds", c->name, c->limits.seconds);
}

static bool is_cancelled(const struct child *c) { return c->limits.cancelled && atomic_load(c->limits.cancelled); }

/* Waits for bytes or the end. The taker's own work between two reads counts nothing. */
static enum status await_bytes(struct child *c, struct error *e) {
    for (;;) {
        double began = time_now(), left = (c->limits.seconds - c->waited) * 1000;
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        if (left <= 0) return stop_waiting(c, e);
        if (is_cancelled(c)) return error_set(e, STATUS_CANCELLED, "%s: interrupted", c->name);
        int ready = poll(&p, 1, left < LOOK_MILLISECONDS ? (int)left + 1 : LOOK_MILLISECONDS);
        c->waited += time_now() - began;
        if (ready > 0) return STATUS_OK;
        if (ready < 0 && errno != EINTR) return error_errno(e, "%s: poll", c->name);
    }
}

/* *got is less than size at the end alone. */
static enum status read_bytes(struct child *c, void *bytes, size_t size, size_t *got, struct error *e) {
    *got = 0;
    while (*got < size) {
        if (await_bytes(c, e)) return e->status;
        ssize_t n = read(c->fd, (char *)bytes + *got, size - *got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_errno(e, "%s: reading from the process that parses it", c->name);
        if (n == 0) return STATUS_OK;
        *got += (size_t)n;
    }
    return STATUS_OK;
}

/* Returns how the child ended, as waitpid has it. */
static int end_child(struct child *c) {
    int code = 0;
    if (c->fd >= 0) close(c->fd);
    while (c->pid > 0 && waitpid(c->pid, &code, 0) < 0 && errno == EINTR) continue;
    return code;
}

static enum status tell_end(const struct child *c, int code, struct error *e) {
    size_t mebibytes = c->limits.memory >> 20;
    if (c->pid == 0)
        return error_set(
            e, STATUS_INVALID,
            "%s: its parser ended early: it is damaged, or takes more than %zu MiB of memory or %d seconds", c->name,
            mebibytes, c->limits.seconds);
    if (WIFSIGNALED(code) && (WTERMSIG(code) == SIGXCPU || WTERMSIG(code) == SIGKILL))
        return error_set(e, STATUS_INVALID, "%s: reading it takes over %d seconds", c->name, c->limits.seconds);
    if (WIFSIGNALED(code))
        return error_set(e, STATUS_INVALID,
                         "%s: its parser ended by signal %d (%s): it is damaged, or takes more than %zu "
                         "MiB of memory",
                         c->name, WTERMSIG(code), strsignal(WTERMSIG(code)), mebibytes);
    return error_set(e, STATUS_INVALID,
                     "%s: its parser ended with code %d: it is damaged, or takes more than %zu MiB of "
                     "memory",
                     c->name, WEXITSTATUS(code), mebibytes);
}

/* Pieces on the pipe: a head, then the parts that it gives the sizes of. */

enum piece_kind { PIECE_DOCUMENT = 0x52455430, PIECE_MEMBER, PIECE_SKIPPED, PIECE_END };

struct piece_head {
    uint32_t kind, status; /* of a document: enum extract_note; of a member: 0 */
    /* Of a document: part, text, title, marks; of a member: part and bytes, as text; else the first is that of the
     * error's text. */
    uint64_t sizes[4];
};

static void write_all(struct child_writer *w, const void *bytes, size_t size) {
    const char *at = bytes;
    while (size > 0) {
        ssize_t n = write(w->fd, at, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(1); /* nobody reads any more */
        at += n;
        size -= (size_t)n;
    }
}

static uint32_t note_number(const char *note) {
    uint32_t number = NOTE_NONE;
    for (uint32_t i = 0; note && i < NOTE_COUNT; i++)
        if (note == extract_notes[i]) number = i;
    return number;
}

void child_write_document(struct child_writer *w, const char *part, const struct document_text *d) {
    struct piece_head head = {.kind = PIECE_DOCUMENT,
                              .status = note_number(d->note),
                              .sizes = {strlen(part), d->text.size, d->title.size, d->marks.size}};
    write_all(w, &head, sizeof head);
    write_all(w, part, head.sizes[0]);
    write_all(w, d->text.data, d->text.size);
    write_all(w, d->title.data, d->title.size);
    write_all(w, d->marks.data, d->marks.size);
}

void child_write_member(struct child_writer *w, const char *part, struct text_span bytes) {
    struct piece_head head = {.kind = PIECE_MEMBER, .sizes = {strlen(part), bytes.size}};
    write_all(w, &head, sizeof head);
    write_all(w, part, head.sizes[0]);
    write_all(w, bytes.text, bytes.size);
}

static void write_error(struct child_writer *w, enum piece_kind kind, const struct error *why) {
    struct piece_head head = {.kind = kind, .status = why->status, .sizes = {strlen(why->text)}};
    write_all(w, &head, sizeof head);
    write_all(w, why->text, head.sizes[0]);
}

void child_write_skipped(struct child_writer *w, const struct error *why) { write_error(w, PIECE_SKIPPED, why); }

struct child_reader {
    struct child child;
    const struct piece_taker *taker;
    uint64_t left; /* bytes that may come */
    struct buffer part;
    struct document_text document;
    struct error end; /* what the parser says at its end */
    bool ended;
};

static enum status read_part(struct child_reader *r, struct buffer *out, uint64_t size, struct error *e) {
    char block[1 << 16];
    buffer_clear(out);
    if (size > r->left)
        return error_set(e, STATUS_TOO_LARGE, "%s: it has more text than the limit of %zu bytes", r->child.name,
                         r->child.limits.bytes);
    r->left -= size;
    while (size > 0) {
        size_t got, n = size < sizeof block ? (size_t)size : sizeof block;
        if (read_bytes(&r->child, block, n, &got, e)) return e->status;
        if (got < n) return error_set(e, STATUS_INVALID, "%s: its parser stopped", r->child.name);
        buffer_append(out, block, n);
        size -= n;
    }
    buffer_append(out, "", 0);
    return STATUS_OK;
}

/* A parser that was taken over by what it parsed may write anything. */
static enum status refuse_nonsense(const struct child_reader *r, struct error *e) {
    return error_set(e, STATUS_INVALID, "%s: its parser writes nonsense", r->child.name);
}

static enum status check_document(const struct child_reader *r, struct error *e) {
    const struct document_text *d = &r->document;
    bool sound = strlen(r->part.data) == r->part.size && strlen(d->title.data) == d->title.size &&
                 utf8_is_valid(d->text.data, d->text.size) && utf8_is_valid(d->title.data, d->title.size) &&
                 d->marks.size % sizeof(struct mark) == 0 && marks_fault(marks_of(&d->marks), d->text.size) == NULL;
    return sound ? STATUS_OK : refuse_nonsense(r, e);
}

static enum status read_document(struct child_reader *r, const struct piece_head *head, struct error *e) {
    struct buffer *parts[] = {&r->part, &r->document.text, &r->document.title, &r->document.marks};
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
        if (read_part(r, parts[i], head->sizes[i], e)) return e->status;
    if (check_document(r, e)) return e->status;
    r->document.note = head->status < NOTE_COUNT ? extract_notes[head->status] : NULL;
    return r->taker->documents->take(r->taker->documents->context, r->part.data, &r->document, e);
}

static enum status read_member(struct child_reader *r, const struct piece_head *head, struct error *e) {
    struct buffer *bytes = &r->document.text;
    if (r->taker->take_member == NULL) return refuse_nonsense(r, e);
    if (read_part(r, &r->part, head->sizes[0], e) || read_part(r, bytes, head->sizes[1], e)) return e->status;
    if (strlen(r->part.data) != r->part.size) return refuse_nonsense(r, e);
    return r->taker->take_member(r->taker->context, r->part.data, (struct text_span){bytes->data, bytes->size}, e);
}

static enum status read_error(struct child_reader *r, const struct piece_head *head, struct error *why,
                              struct error *e) {
    if (read_part(r, &r->part, head->sizes[0], e)) return e->status;
    bool known = head->status <= STATUS_INTERNAL;
    *why = (struct error){.status = STATUS_OK};
    if (head->status != STATUS_OK)
        error_set(why, known ? (enum status)head->status : STATUS_INVALID, "%s", r->part.data);
    return STATUS_OK;
}

static enum status read_piece(struct child_reader *r, bool *more, struct error *e) {
    struct piece_head head;
    struct error why;
    size_t got;
    *more = false;
    if (read_bytes(&r->child, &head, sizeof head, &got, e)) return e->status;
    if (got < sizeof head) return STATUS_OK;
    *more = head.kind != PIECE_END;
    if (head.kind == PIECE_DOCUMENT) return read_document(r, &head, e);
    if (head.kind == PIECE_MEMBER) return read_member(r, &head, e);
    if (head.kind == PIECE_END) {
        r->ended = true;
        return read_error(r, &head, &r->end, e);
    }
    if (head.kind != PIECE_SKIPPED) return refuse_nonsense(r, e);
    if (read_error(r, &head, &why, e)) return e->status;
    const struct document_taker *documents = r->taker->documents;
    if (documents->skip) documents->skip(documents->context, &why);
    return STATUS_OK;
}

/* The child's side. */

size_t child_address_space(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fscanf(file, "%lu", &pages) != 1) pages = 0;
    if (file) fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Standard streams lead nowhere, `kept` becomes descriptor 3, all others are closed. */
static void keep_descriptor(int kept) {
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++) dup2(null, fd);
    if (kept != 3) dup2(kept, 3);
    close_range(4, ~0U, 0);
}

_Noreturn void child_parse(const struct extract_file *f, int fd, size_t have) {
    struct child_writer writer = {.fd = 3};
    struct error e = {0};
    keep_descriptor(fd);
    enum status status = extract_prepare(f, &e);
    const char *refused = filter_limit(have, f->limits.memory, f->limits.seconds);
    if (refused == NULL) refused = filter_close();
    if (refused)
        status = error_errno(&e, "%s: the kernel refuses %s, and without it no foreign file is read", f->name, refused);
    if (status == STATUS_OK) status = extract_parse(f, &writer, &e);
    e.status = status;
    write_error(&writer, PIECE_END, &e);
    _exit(0);
}

static enum status fork_parser(struct child *c, const struct extract_file *f, int output, struct error *e) {
    size_t have = child_address_space();
    if (have == 0)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: /proc/self/statm cannot be read, and without it memory has no limit; mount /proc",
                         f->name);
    c->pid = fork();
    if (c->pid == 0) child_parse(f, output, have);
    return c->pid > 0 ? STATUS_OK : error_errno(e, "%s: fork", f->name);
}

static enum status start_parser(struct child *c, const struct extract_file *f, struct error *e) {
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) != 0) return error_errno(e, "%s: pipe", f->name);
    enum status status = keeper_is_there() ? keeper_begin(f, pipes[1], e) : fork_parser(c, f, pipes[1], e);
    close(pipes[1]);
    c->fd = pipes[0];
    if (status) close(c->fd);
    return status;
}

enum status child_run_parser(const struct extract_file *f, size_t output, const struct piece_taker *taker,
                             struct error *e) {
    struct child_reader r = {.child = {.name = f->name, .limits = f->limits}, .taker = taker, .left = output};
    if (start_parser(&r.child, f, e)) return e->status;
    bool more = true;
    enum status status = STATUS_OK;
    while (more && status == STATUS_OK) status = read_piece(&r, &more, e);
    if (!r.ended && status) kill_child(&r.child);
    int code = end_child(&r.child);
    if (status == STATUS_OK && !r.ended) status = tell_end(&r.child, code, e);
    if (status == STATUS_OK && r.end.status) {
        *e = r.end;
        status = r.end.status;
    }
    buffer_free(&r.part);
    document_text_free(&r.document);
    return status;
}

/* Programs. */

enum status child_open_input(struct text_span bytes, const char *name, int *fd, struct error *e) {
    *fd = memfd_create("input", MFD_CLOEXEC);
    if (*fd < 0) return error_errno(e, "%s: a file in memory", name);
    for (size_t at = 0; at < bytes.size;) {
        ssize_t n = write(*fd, bytes.text + at, bytes.size - at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            error_errno(e, "%s: a file in memory", name);
            close(*fd);
            return e->status;
        }
        at += (size_t)n;
    }
    lseek(*fd, 0, SEEK_SET);
    return STATUS_OK;
}

/* Programs like to seek in their input. */
static enum status open_input(const struct child_program *program, int *fd, struct error *e) {
    if (program->input.text) return child_open_input(program->input, program->name, fd, e);
    *fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return *fd >= 0 ? STATUS_OK : error_errno(e, "/dev/null");
}

/* A relative name leads nowhere: the directory is empty, and has no name any more. */
static bool enter_empty_directory(void) {
    char name[] = "/tmp/retro-empty-XXXXXX";
    return mkdtemp(name) != NULL && chdir(name) == 0 && rmdir(name) == 0;
}

/* In the child, which shares nothing with the threads of its parent: no memory is allocated. */
static _Noreturn void run_program(const struct child_program *program, int input, int output) {
    char *environment[] = {(char[]){"LC_ALL=C.UTF-8"}, NULL};
    int null = open("/dev/null", O_RDWR);
    if (dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(null, 2) < 0) _exit(CODE_REFUSED);
    close_range(3, ~0U, 0);
    if (!enter_empty_directory()) _exit(CODE_REFUSED);
    if (filter_limit(0, program->limits.memory, program->limits.seconds) || filter_program()) _exit(CODE_REFUSED);
    execvpe(program->argv[0], program->argv, environment);
    _exit(errno == ENOENT ? CODE_MISSING : CODE_REFUSED);
}

static enum status start_program(struct child *c, const struct child_program *program, struct error *e) {
    int pipes[2], input;
    if (open_input(program, &input, e)) return e->status;
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        close(input);
        return error_errno(e, "%s: pipe", program->name);
    }
    /* Without what libraries do around a fork: nothing of theirs runs in the child. */
    c->pid = _Fork();
    if (c->pid == 0) run_program(program, input, pipes[1]);
    close(input);
    close(pipes[1]);
    c->fd = pipes[0];
    if (c->pid > 0) return STATUS_OK;
    error_errno(e, "%s: fork", program->name);
    close(c->fd);
    return e->status;
}

static enum status read_output(struct child *c, struct buffer *out, struct error *e) {
    char block[1 << 16];
    size_t got = sizeof block, before = out->size;
    while (got == sizeof block) {
        if (read_bytes(c, block, sizeof block, &got, e)) return e->status;
        if (got > c->limits.bytes - (out->size - before))
            return error_set(e, STATUS_TOO_LARGE, "%s: it has more text than the limit of %zu bytes", c->name,
                             c->limits.bytes);
        buffer_append(out, block, got);
    }
    return STATUS_OK;
}

static enum status judge_program(const struct child *c, const struct child_program *program, int code,
                                 struct error *e) {
    const char *command = program->argv[0];
    if (!WIFEXITED(code)) return tell_end(c, code, e);
    if (WEXITSTATUS(code) == CODE_MISSING)
        return error_set(e, STATUS_UNSUPPORTED, "%s: it needs the program %s; install the package %s", c->name, command,
                         program->package);
    if (WEXITSTATUS(code) == CODE_REFUSED)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: %s does not begin: the kernel refuses limits or a filter of system calls (seccomp), and "
                         "without them no foreign file is read",
                         c->name, command);
    if (WEXITSTATUS(code) <= program->worst) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "%s: %s could not read it (exit code %d): it is damaged or locked", c->name,
                     command, WEXITSTATUS(code));
}

enum status child_run_program(const struct child_program *program, struct buffer *out, struct error *e) {
    struct child c = {.name = program->name, .limits = program->limits};
    if (start_program(&c, program, e)) return e->status;
    enum status status = read_output(&c, out, e);
    if (status) kill_child(&c);
    int code = end_child(&c);
    return status ? status : judge_program(&c, program, code, e);
}
