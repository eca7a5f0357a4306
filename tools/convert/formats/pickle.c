/* tools/convert/formats/pickle.c: the opcodes of pickles, without calls. See pickle.h. */
#include "tools/convert/formats/pickle.h"

#include <stdlib.h>
#include <string.h>

#include "tools/convert/formats/pickle_machine.h"
#include "tools/convert/formats/pickle_names.h"

enum {
    MOST_PROTOCOL = 5,
    SIZE_LIMIT = 256 << 20 /* of the pickle's bytes */
};

/* Constants. */

static enum status push_int(struct pickle_machine *machine, int64_t number, enum pickle_kind kind) {
    pickle_slot v = NULL;
    if (machine_push_new(machine, kind, &v)) return machine->e->status;
    v->number = number;
    v->real = (double)number;
    return STATUS_OK;
}

static enum status push_number(struct pickle_machine *machine, size_t bytes) {
    uint64_t n;
    if (machine_take_number(machine, bytes, &n)) return machine->e->status;
    return push_int(machine, bytes == 4 ? (int64_t)(int32_t)(uint32_t)n : (int64_t)n, PICKLE_INT);
}

static enum status push_real(struct pickle_machine *machine) {
    const uint8_t *p = NULL;
    pickle_slot v = NULL;
    uint64_t bits = 0;
    if (machine_take_bytes(machine, 8, &p) || machine_push_new(machine, PICKLE_REAL, &v))
        return machine->e->status;
    for (int i = 0; i < 8; i++) bits = bits << 8 | p[i];
    memcpy(&v->real, &bits, sizeof v->real);
    return STATUS_OK;
}

/* A text or bytes with its length before it. */
static enum status push_text(struct pickle_machine *machine, size_t length_bytes,
                             enum pickle_kind kind) {
    uint64_t n;
    const uint8_t *p = NULL;
    pickle_slot v = NULL;
    if (machine_take_number(machine, length_bytes, &n) || machine_take_bytes(machine, n, &p) ||
        machine_push_new(machine, kind, &v))
        return machine->e->status;
    v->text = (struct text_span){(const char *)p, (size_t)n};
    return STATUS_OK;
}

/* A whole number in two's complement. */
static enum status push_long(struct pickle_machine *machine, size_t length_bytes) {
    pickle_slot v = NULL;
    if (push_text(machine, length_bytes, PICKLE_BYTES) || machine_top(machine, &v))
        return machine->e->status;
    if (v->text.size > 8) return STATUS_OK;
    const uint8_t *p = (const uint8_t *)v->text.text;
    size_t n = v->text.size;
    uint64_t bits = n > 0 && p[n - 1] >= 0x80 ? UINT64_MAX : 0;
    for (size_t i = n; i > 0; i--) bits = bits << 8 | p[i - 1];
    v->kind = PICKLE_INT;
    memcpy(&v->number, &bits, sizeof v->number);
    v->real = (double)v->number;
    return STATUS_OK;
}

/* Containers. */

static enum status push_tuple(struct pickle_machine *machine, int n) {
    pickle_slot v = NULL;
    if (machine->n_stack - machine_floor(machine) < n)
        return machine_fail(machine, "makes a tuple of an empty stack");
    int from = machine->n_stack - n;
    if (machine_push_new(machine, PICKLE_TUPLE, &v)) return machine->e->status;
    machine->n_stack--;
    if (machine_append_from(machine, v, from)) return machine->e->status;
    return machine_push(machine, v);
}

static enum status push_marked(struct pickle_machine *machine, enum pickle_kind kind) {
    pickle_slot v = NULL;
    int from = 0;
    if (machine_pop_mark(machine, &from) || machine_push_new(machine, kind, &v))
        return machine->e->status;
    machine->n_stack--;
    if (machine_append_from(machine, v, from)) return machine->e->status;
    if (kind == PICKLE_DICT && v->count % 2 != 0)
        return machine_fail(machine, "a key has no value");
    return machine_push(machine, v);
}

/* Adds stack[from, n_stack) to the value below. */
static enum status extend(struct pickle_machine *machine, int from, bool mapped) {
    if (from <= machine_floor(machine)) return machine_fail(machine, "adds to an empty stack");
    pickle_slot to = machine->stack[from - 1];
    bool fits = to->kind == PICKLE_OBJECT ? to->count == 0 || to->mapped == mapped
                : mapped                  ? to->kind == PICKLE_DICT
                                          : to->kind == PICKLE_LIST || to->kind == PICKLE_SET;
    if (!fits) return machine_fail(machine, "adds to a value that is no container");
    if (mapped && (machine->n_stack - from) % 2 != 0)
        return machine_fail(machine, "a key has no value");
    to->mapped = mapped;
    return machine_append_from(machine, to, from);
}

static enum status extend_marked(struct pickle_machine *machine, bool mapped) {
    int from = 0;
    return machine_pop_mark(machine, &from) ? machine->e->status : extend(machine, from, mapped);
}

static enum status extend_by(struct pickle_machine *machine, int n, bool mapped) {
    if (machine->n_stack - machine_floor(machine) <= n)
        return machine_fail(machine, "adds to an empty stack");
    return extend(machine, machine->n_stack - n, mapped);
}

/* Memo. */

static enum status memo_put(struct pickle_machine *machine, uint64_t at) {
    pickle_slot v = NULL;
    if (machine_top(machine, &v)) return machine->e->status;
    if (at >= (uint64_t)(machine->end - machine->start) || at >= DEPTH_LIMIT)
        return machine_fail(machine, "numbers a value beyond what the file can hold");
    if (at >= machine->memo_capacity) {
        size_t capacity = 2 * (size_t)at + 64;
        machine->memo = xrealloc(machine->memo, capacity * sizeof *machine->memo);
        memset(machine->memo + machine->memo_capacity, 0,
               (capacity - machine->memo_capacity) * sizeof *machine->memo);
        machine->memo_capacity = capacity;
    }
    machine->memo[at] = v;
    machine->next_memo++;
    return STATUS_OK;
}

static enum status memo_store(struct pickle_machine *machine, size_t bytes) {
    uint64_t at;
    return machine_take_number(machine, bytes, &at) ? machine->e->status : memo_put(machine, at);
}

static enum status memo_get(struct pickle_machine *machine, size_t bytes) {
    uint64_t at;
    if (machine_take_number(machine, bytes, &at)) return machine->e->status;
    if (at >= machine->memo_capacity || machine->memo[at] == NULL)
        return machine_fail(machine, "recalls a value that was never numbered");
    return machine_push(machine, machine->memo[at]);
}

/* Names and what would be called. */

static enum status push_global(struct pickle_machine *machine, struct text_span module,
                               struct text_span name) {
    pickle_slot v = NULL;
    if (module.size > NAME_LIMIT || name.size > NAME_LIMIT)
        return machine_fail(machine, "a name is too long");
    if (pickle_names_refuse(module, name))
        return error_set(machine->e, STATUS_UNSUPPORTED,
                         "%s: the pickle names the function %.*s.%.*s, which no checkpoint has a "
                         "use for: refused, "
                         "nothing of it was run",
                         machine->name, (int)module.size, module.text, (int)name.size, name.text);
    if (machine->known && !pickle_names_known(module))
        return error_set(machine->e, STATUS_UNSUPPORTED,
                         "%s: the pickle names the class %.*s.%.*s, which is none of torch's or "
                         "Megatron's: refused, "
                         "nothing of it was run",
                         machine->name, (int)module.size, module.text, (int)name.size, name.text);
    char *text = machine_take_memory(machine, module.size + name.size + 2);
    if (text == NULL || machine_push_new(machine, PICKLE_GLOBAL, &v)) return machine->e->status;
    memcpy(text, module.text, module.size);
    text[module.size] = '.';
    memcpy(text + module.size + 1, name.text, name.size);
    v->text = (struct text_span){text, module.size + name.size + 1};
    return STATUS_OK;
}

static enum status push_global_lines(struct pickle_machine *machine) {
    struct text_span module, name;
    if (machine_take_line(machine, &module) || machine_take_line(machine, &name))
        return machine->e->status;
    return push_global(machine, module, name);
}

static enum status push_global_values(struct pickle_machine *machine) {
    pickle_slot module = NULL, name = NULL;
    if (machine_pop(machine, &name) || machine_pop(machine, &module)) return machine->e->status;
    if (module->kind != PICKLE_TEXT || name->kind != PICKLE_TEXT)
        return machine_fail(machine, "a name is no text");
    return push_global(machine, module->text, name->text);
}

/* The value of class(arguments), which is not computed. NEWOBJ_EX has named arguments beside, which
 * are kept as state.
 */
static enum status push_call(struct pickle_machine *machine, bool named) {
    pickle_slot more = NULL, arguments = NULL, class = NULL, v = NULL;
    if (named && machine_pop(machine, &more)) return machine->e->status;
    if (machine_pop(machine, &arguments) || machine_pop(machine, &class)) return machine->e->status;
    if (arguments->kind != PICKLE_TUPLE)
        return machine_fail(machine, "calls a function with something that is no tuple");
    if (machine_push_new(machine, PICKLE_OBJECT, &v)) return machine->e->status;
    v->class = class;
    v->arguments = arguments;
    v->state = more;
    return STATUS_OK;
}

static enum status set_state(struct pickle_machine *machine) {
    pickle_slot state = NULL, v = NULL;
    if (machine_pop(machine, &state) || machine_top(machine, &v)) return machine->e->status;
    if (v->kind == PICKLE_OBJECT) v->state = state;
    return STATUS_OK;
}

static enum status push_stored(struct pickle_machine *machine) {
    pickle_slot id = NULL, v = NULL;
    if (machine_pop(machine, &id) || machine_push_new(machine, PICKLE_STORED, &v))
        return machine->e->status;
    v->arguments = id;
    return STATUS_OK;
}

static enum status drop(struct pickle_machine *machine, bool marked) {
    pickle_slot v = NULL;
    if (!marked) return machine_pop(machine, &v);
    return machine_pop_mark(machine, &machine->n_stack);
}

static enum status repeat(struct pickle_machine *machine) {
    pickle_slot v = NULL;
    return machine_top(machine, &v) ? machine->e->status : machine_push(machine, v);
}

/* Frames only say how many bytes to read at once. */
static enum status pass_frame(struct pickle_machine *machine) {
    uint64_t n;
    if (machine_take_number(machine, 8, &n)) return machine->e->status;
    return n > (uint64_t)(machine->end - machine->at)
               ? machine_fail(machine, "a frame is longer than the file")
               : STATUS_OK;
}

static enum status check_protocol(struct pickle_machine *machine) {
    uint64_t protocol;
    if (machine_take_number(machine, 1, &protocol)) return machine->e->status;
    return protocol > MOST_PROTOCOL ? machine_fail(machine, "a protocol that is not known")
                                    : STATUS_OK;
}

static enum status fail_opcode(struct pickle_machine *machine, uint8_t opcode) {
    machine->at--;
    return error_set(machine->e, STATUS_UNSUPPORTED,
                     "%s: byte %zu of the pickle: opcode 0x%02x is not read", machine->name,
                     (size_t)(machine->at - machine->start), opcode);
}

static enum status run_constant(struct pickle_machine *machine, uint8_t opcode) {
    pickle_slot v = NULL;
    switch (opcode) {
        case 'N': return machine_push_new(machine, PICKLE_NONE, &v);
        case 0x88: return push_int(machine, 1, PICKLE_BOOL);
        case 0x89: return push_int(machine, 0, PICKLE_BOOL);
        case 'J': return push_number(machine, 4);
        case 'K': return push_number(machine, 1);
        case 'M': return push_number(machine, 2);
        case 'G': return push_real(machine);
        case 0x8a: return push_long(machine, 1);
        case 0x8b: return push_long(machine, 4);
        case 'X': return push_text(machine, 4, PICKLE_TEXT);
        case 0x8c: return push_text(machine, 1, PICKLE_TEXT);
        case 0x8d: return push_text(machine, 8, PICKLE_TEXT);
        case 'U':
        case 'C': return push_text(machine, 1, PICKLE_BYTES);
        case 'T':
        case 'B': return push_text(machine, 4, PICKLE_BYTES);
        case 0x8e:
        case 0x96: return push_text(machine, 8, PICKLE_BYTES);
        default: return fail_opcode(machine, opcode);
    }
}

static enum status run_container(struct pickle_machine *machine, uint8_t opcode) {
    pickle_slot v = NULL;
    switch (opcode) {
        case '}': return machine_push_new(machine, PICKLE_DICT, &v);
        case ']': return machine_push_new(machine, PICKLE_LIST, &v);
        case 0x8f: return machine_push_new(machine, PICKLE_SET, &v);
        case ')': return push_tuple(machine, 0);
        case 0x85: return push_tuple(machine, 1);
        case 0x86: return push_tuple(machine, 2);
        case 0x87: return push_tuple(machine, 3);
        case 't': return push_marked(machine, PICKLE_TUPLE);
        case 'l': return push_marked(machine, PICKLE_LIST);
        case 'd': return push_marked(machine, PICKLE_DICT);
        case 0x91: return push_marked(machine, PICKLE_SET);
        case 'a': return extend_by(machine, 1, false);
        case 'e':
        case 0x90: return extend_marked(machine, false);
        case 's': return extend_by(machine, 2, true);
        case 'u': return extend_marked(machine, true);
        default: return run_constant(machine, opcode);
    }
}

static enum status run_opcode(struct pickle_machine *machine, uint8_t opcode) {
    switch (opcode) {
        case 0x80: return check_protocol(machine);
        case 0x95: return pass_frame(machine);
        case '(': return machine_push_mark(machine);
        case '0': return drop(machine, false);
        case '1': return drop(machine, true);
        case '2': return repeat(machine);
        case 'q': return memo_store(machine, 1);
        case 'r': return memo_store(machine, 4);
        case 0x94: return memo_put(machine, machine->next_memo);
        case 'h': return memo_get(machine, 1);
        case 'j': return memo_get(machine, 4);
        case 'c': return push_global_lines(machine);
        case 0x93: return push_global_values(machine);
        case 'R':
        case 0x81: return push_call(machine, false);
        case 0x92: return push_call(machine, true);
        case 'b': return set_state(machine);
        case 'Q': return push_stored(machine);
        default: return run_container(machine, opcode);
    }
}

static enum status run(struct pickle_machine *machine) {
    while (machine->at < machine->end) {
        uint8_t opcode = *machine->at;
        machine->at++;
        if (opcode == '.') {
            pickle_slot root;
            if (machine_pop(machine, &root)) return machine->e->status;
            machine->p->root = root;
            return STATUS_OK;
        }
        if (run_opcode(machine, opcode)) return machine->e->status;
    }
    return machine_fail(machine, "the file ends before it does");
}

static enum status open_pickle(struct pickle **out, struct text_span bytes, const char *name,
                               bool known, struct error *e) {
    if (bytes.size == 0) return error_set(e, STATUS_CORRUPT, "%s: its pickle is empty", name);
    struct pickle *pickle = xcalloc(1, sizeof *pickle);
    const uint8_t *start = (const uint8_t *)bytes.text;
    struct pickle_machine machine = {.p = pickle,
                                     .name = name,
                                     .start = start,
                                     .at = start,
                                     .end = start + bytes.size,
                                     .e = e,
                                     .known = known};
    enum status status =
        bytes.size > SIZE_LIMIT
            ? error_set(e, STATUS_TOO_LARGE, "%s: a pickle of %zu MB", name, bytes.size >> 20)
            : run(&machine);
    free(machine.stack);
    free(machine.marks);
    free(machine.memo);
    if (status) {
        pickle_close(pickle);
        return status;
    }
    *out = pickle;
    return STATUS_OK;
}

enum status pickle_open(struct pickle **out, struct text_span bytes, const char *name,
                        struct error *e) {
    return open_pickle(out, bytes, name, false, e);
}

enum status pickle_open_known(struct pickle **out, struct text_span bytes, const char *name,
                              struct error *e) {
    return open_pickle(out, bytes, name, true, e);
}

void pickle_close(struct pickle *pickle) {
    if (pickle == NULL) return;
    for (struct pickle_block *block = pickle->blocks, *next; block != NULL; block = next) {
        next = block->next;
        free(block);
    }
    free(pickle);
}

const struct pickle_value *pickle_root(const struct pickle *pickle) { return pickle->root; }
