/* tools/convert/formats/pickle.c: the machine that pickles are programs of, without its calls. See pickle.h. */
#include "tools/convert/formats/pickle.h"

#include <stdlib.h>
#include <string.h>

#include "tools/convert/formats/pickle_names.h"

enum {
    MEMORY_LIMIT = 512 << 20,
    BLOCK_BYTES = 1 << 16,
    NAME_LIMIT = 256,
    FIRST_ITEMS = 4,
    MOST_PROTOCOL = 5,
    SIZE_LIMIT = 256 << 20, /* of the pickle's bytes */
    DEPTH_LIMIT = 4 << 20   /* of the stack, and of numbered values */
};

/* Memory that goes with the pickle. */
struct pickle_block {
    struct pickle_block *next;
    size_t used, size;
    max_align_t bytes[];
};

struct pickle {
    struct pickle_block *blocks;
    size_t taken;
    const struct pickle_value *root;
};

typedef struct pickle_value *pickle_slot;

/* One pickle being read. */
struct pickle_machine {
    struct pickle *p;
    const char *name;
    const uint8_t *start, *at, *end;
    pickle_slot *stack;
    int n_stack, stack_capacity;
    int *marks; /* heights of the stack */
    int n_marks, mark_capacity;
    pickle_slot *memo;
    size_t n_memo, memo_capacity, next_memo;
    bool known; /* classes of modules that are not known are refused */
    struct error *e;
};

static enum status fail(const struct pickle_machine *m, const char *what) {
    return error_set(m->e, STATUS_CORRUPT, "%s: byte %zu of the pickle: %s", m->name, (size_t)(m->at - m->start), what);
}

/* NULL, with the error set, at the limit. */
static void *take_memory(struct pickle_machine *m, size_t bytes) {
    struct pickle_block *b = m->p->blocks;
    bytes = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (b == NULL || b->size - b->used < bytes) {
        size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        b = size > MEMORY_LIMIT - m->p->taken ? NULL : malloc(sizeof *b + size);
        if (b == NULL) {
            error_set(m->e, STATUS_TOO_LARGE, "%s: its pickle takes more than %d MB of memory", m->name,
                      MEMORY_LIMIT >> 20);
            return NULL;
        }
        *b = (struct pickle_block){.next = m->p->blocks, .size = size};
        m->p->blocks = b;
        m->p->taken += size;
    }
    void *p = (char *)b->bytes + b->used;
    b->used += bytes;
    memset(p, 0, bytes);
    return p;
}

static enum status take_bytes(struct pickle_machine *m, uint64_t n, const uint8_t **out) {
    if (n > (uint64_t)(m->end - m->at)) return fail(m, "a value is longer than the file");
    *out = m->at;
    m->at += n;
    return STATUS_OK;
}

/* A little-endian number of up to 8 bytes. */
static enum status take_number(struct pickle_machine *m, size_t n, uint64_t *out) {
    const uint8_t *p = NULL;
    *out = 0;
    if (take_bytes(m, n, &p)) return m->e->status;
    for (size_t i = n; i > 0; i--) *out = *out << 8 | p[i - 1];
    return STATUS_OK;
}

static enum status take_line(struct pickle_machine *m, struct text_span *out) {
    const uint8_t *end = memchr(m->at, '\n', (size_t)(m->end - m->at));
    if (end == NULL || end - m->at > NAME_LIMIT) return fail(m, "a name has no end");
    *out = (struct text_span){(const char *)m->at, (size_t)(end - m->at)};
    m->at = end + 1;
    return STATUS_OK;
}

/* The stack. */

static enum status push(struct pickle_machine *m, pickle_slot v) {
    if (m->n_stack == DEPTH_LIMIT) return fail(m, "the stack grows too high");
    m->stack = xgrow(m->stack, m->n_stack, &m->stack_capacity, sizeof *m->stack);
    m->stack[m->n_stack] = v;
    m->n_stack++;
    return STATUS_OK;
}

static enum status push_new(struct pickle_machine *m, enum pickle_kind kind, pickle_slot *out) {
    pickle_slot v = take_memory(m, sizeof *v);
    if (v == NULL) return m->e->status;
    v->kind = kind;
    *out = v;
    return push(m, v);
}

static int floor_of(const struct pickle_machine *m) { return m->n_marks > 0 ? m->marks[m->n_marks - 1] : 0; }

static enum status pop(struct pickle_machine *m, pickle_slot *out) {
    if (m->n_stack <= floor_of(m)) return fail(m, "takes a value from an empty stack");
    m->n_stack--;
    *out = m->stack[m->n_stack];
    return STATUS_OK;
}

static enum status top(struct pickle_machine *m, pickle_slot *out) {
    if (m->n_stack <= floor_of(m)) return fail(m, "looks at an empty stack");
    *out = m->stack[m->n_stack - 1];
    return STATUS_OK;
}

/* Removes the newest mark; the values above it are stack[*from, n_stack). */
static enum status pop_mark(struct pickle_machine *m, int *from) {
    if (m->n_marks == 0) return fail(m, "ends a list that has no beginning");
    m->n_marks--;
    *from = m->marks[m->n_marks];
    return STATUS_OK;
}

static enum status append(struct pickle_machine *m, pickle_slot to, pickle_slot item) {
    if (to->count == to->capacity) {
        size_t capacity = to->capacity == 0 ? FIRST_ITEMS : 2 * to->capacity;
        const struct pickle_value **items = take_memory(m, capacity * sizeof *items);
        if (items == NULL) return m->e->status;
        if (to->count > 0) memcpy(items, to->items, to->count * sizeof *items);
        to->items = items;
        to->capacity = capacity;
    }
    to->items[to->count] = item;
    to->count++;
    return STATUS_OK;
}

/* Moves stack[from, n_stack) to the end of a value. */
static enum status append_from(struct pickle_machine *m, pickle_slot to, int from) {
    for (int i = from; i < m->n_stack; i++)
        if (append(m, to, m->stack[i])) return m->e->status;
    m->n_stack = from;
    return STATUS_OK;
}

/* Constants. */

static enum status push_int(struct pickle_machine *m, int64_t number, enum pickle_kind kind) {
    pickle_slot v = NULL;
    if (push_new(m, kind, &v)) return m->e->status;
    v->number = number;
    v->real = (double)number;
    return STATUS_OK;
}

static enum status push_number(struct pickle_machine *m, size_t bytes) {
    uint64_t n;
    if (take_number(m, bytes, &n)) return m->e->status;
    return push_int(m, bytes == 4 ? (int64_t)(int32_t)(uint32_t)n : (int64_t)n, PICKLE_INT);
}

static enum status push_real(struct pickle_machine *m) {
    const uint8_t *p = NULL;
    pickle_slot v = NULL;
    uint64_t bits = 0;
    if (take_bytes(m, 8, &p) || push_new(m, PICKLE_REAL, &v)) return m->e->status;
    for (int i = 0; i < 8; i++) bits = bits << 8 | p[i];
    memcpy(&v->real, &bits, sizeof v->real);
    return STATUS_OK;
}

/* A text or bytes with its length before it. */
static enum status push_text(struct pickle_machine *m, size_t length_bytes, enum pickle_kind kind) {
    uint64_t n;
    const uint8_t *p = NULL;
    pickle_slot v = NULL;
    if (take_number(m, length_bytes, &n) || take_bytes(m, n, &p) || push_new(m, kind, &v)) return m->e->status;
    v->text = (struct text_span){(const char *)p, (size_t)n};
    return STATUS_OK;
}

/* A whole number in two's complement. */
static enum status push_long(struct pickle_machine *m, size_t length_bytes) {
    pickle_slot v = NULL;
    if (push_text(m, length_bytes, PICKLE_BYTES) || top(m, &v)) return m->e->status;
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

static enum status push_tuple(struct pickle_machine *m, int n) {
    pickle_slot v = NULL;
    if (m->n_stack - floor_of(m) < n) return fail(m, "makes a tuple of an empty stack");
    int from = m->n_stack - n;
    if (push_new(m, PICKLE_TUPLE, &v)) return m->e->status;
    m->n_stack--;
    if (append_from(m, v, from)) return m->e->status;
    return push(m, v);
}

static enum status push_marked(struct pickle_machine *m, enum pickle_kind kind) {
    pickle_slot v = NULL;
    int from = 0;
    if (pop_mark(m, &from) || push_new(m, kind, &v)) return m->e->status;
    m->n_stack--;
    if (append_from(m, v, from)) return m->e->status;
    if (kind == PICKLE_DICT && v->count % 2 != 0) return fail(m, "a key has no value");
    return push(m, v);
}

/* Adds stack[from, n_stack) to the value below. */
static enum status extend(struct pickle_machine *m, int from, bool mapped) {
    if (from <= floor_of(m)) return fail(m, "adds to an empty stack");
    pickle_slot to = m->stack[from - 1];
    bool fits = to->kind == PICKLE_OBJECT ? to->count == 0 || to->mapped == mapped
                : mapped                  ? to->kind == PICKLE_DICT
                                          : to->kind == PICKLE_LIST || to->kind == PICKLE_SET;
    if (!fits) return fail(m, "adds to a value that is no container");
    if (mapped && (m->n_stack - from) % 2 != 0) return fail(m, "a key has no value");
    to->mapped = mapped;
    return append_from(m, to, from);
}

static enum status extend_marked(struct pickle_machine *m, bool mapped) {
    int from = 0;
    return pop_mark(m, &from) ? m->e->status : extend(m, from, mapped);
}

static enum status extend_by(struct pickle_machine *m, int n, bool mapped) {
    if (m->n_stack - floor_of(m) <= n) return fail(m, "adds to an empty stack");
    return extend(m, m->n_stack - n, mapped);
}

/* Memo. */

static enum status memo_put(struct pickle_machine *m, uint64_t at) {
    pickle_slot v = NULL;
    if (top(m, &v)) return m->e->status;
    if (at >= (uint64_t)(m->end - m->start) || at >= DEPTH_LIMIT)
        return fail(m, "numbers a value beyond what the file can hold");
    if (at >= m->memo_capacity) {
        size_t capacity = 2 * (size_t)at + 64;
        m->memo = xrealloc(m->memo, capacity * sizeof *m->memo);
        memset(m->memo + m->memo_capacity, 0, (capacity - m->memo_capacity) * sizeof *m->memo);
        m->memo_capacity = capacity;
    }
    m->memo[at] = v;
    m->next_memo++;
    return STATUS_OK;
}

static enum status memo_store(struct pickle_machine *m, size_t bytes) {
    uint64_t at;
    return take_number(m, bytes, &at) ? m->e->status : memo_put(m, at);
}

static enum status memo_get(struct pickle_machine *m, size_t bytes) {
    uint64_t at;
    if (take_number(m, bytes, &at)) return m->e->status;
    if (at >= m->memo_capacity || m->memo[at] == NULL) return fail(m, "recalls a value that was never numbered");
    return push(m, m->memo[at]);
}

/* Names and what would be called. */

static enum status push_global(struct pickle_machine *m, struct text_span module, struct text_span name) {
    pickle_slot v = NULL;
    if (module.size > NAME_LIMIT || name.size > NAME_LIMIT) return fail(m, "a name is too long");
    if (pickle_names_refuse(module, name))
        return error_set(m->e, STATUS_UNSUPPORTED,
                         "%s: the pickle names the function %.*s.%.*s, which no checkpoint has a use for: refused, "
                         "nothing of it was run",
                         m->name, (int)module.size, module.text, (int)name.size, name.text);
    if (m->known && !pickle_names_known(module))
        return error_set(m->e, STATUS_UNSUPPORTED,
                         "%s: the pickle names the class %.*s.%.*s, which is none of torch's or Megatron's: refused, "
                         "nothing of it was run",
                         m->name, (int)module.size, module.text, (int)name.size, name.text);
    char *text = take_memory(m, module.size + name.size + 2);
    if (text == NULL || push_new(m, PICKLE_GLOBAL, &v)) return m->e->status;
    memcpy(text, module.text, module.size);
    text[module.size] = '.';
    memcpy(text + module.size + 1, name.text, name.size);
    v->text = (struct text_span){text, module.size + name.size + 1};
    return STATUS_OK;
}

static enum status push_global_lines(struct pickle_machine *m) {
    struct text_span module, name;
    if (take_line(m, &module) || take_line(m, &name)) return m->e->status;
    return push_global(m, module, name);
}

static enum status push_global_values(struct pickle_machine *m) {
    pickle_slot module = NULL, name = NULL;
    if (pop(m, &name) || pop(m, &module)) return m->e->status;
    if (module->kind != PICKLE_TEXT || name->kind != PICKLE_TEXT) return fail(m, "a name is no text");
    return push_global(m, module->text, name->text);
}

/* The value of class(arguments), which is not computed. NEWOBJ_EX has named arguments beside, which are kept as state.
 */
static enum status push_call(struct pickle_machine *m, bool named) {
    pickle_slot more = NULL, arguments = NULL, class = NULL, v = NULL;
    if (named && pop(m, &more)) return m->e->status;
    if (pop(m, &arguments) || pop(m, &class)) return m->e->status;
    if (arguments->kind != PICKLE_TUPLE) return fail(m, "calls a function with something that is no tuple");
    if (push_new(m, PICKLE_OBJECT, &v)) return m->e->status;
    v->class = class;
    v->arguments = arguments;
    v->state = more;
    return STATUS_OK;
}

static enum status set_state(struct pickle_machine *m) {
    pickle_slot state = NULL, v = NULL;
    if (pop(m, &state) || top(m, &v)) return m->e->status;
    if (v->kind == PICKLE_OBJECT) v->state = state;
    return STATUS_OK;
}

static enum status push_stored(struct pickle_machine *m) {
    pickle_slot id = NULL, v = NULL;
    if (pop(m, &id) || push_new(m, PICKLE_STORED, &v)) return m->e->status;
    v->arguments = id;
    return STATUS_OK;
}

static enum status push_mark(struct pickle_machine *m) {
    if (m->n_marks == DEPTH_LIMIT) return fail(m, "too many lists are open");
    m->marks = xgrow(m->marks, m->n_marks, &m->mark_capacity, sizeof *m->marks);
    m->marks[m->n_marks] = m->n_stack;
    m->n_marks++;
    return STATUS_OK;
}

static enum status drop(struct pickle_machine *m, bool marked) {
    pickle_slot v = NULL;
    if (!marked) return pop(m, &v);
    return pop_mark(m, &m->n_stack);
}

static enum status repeat(struct pickle_machine *m) {
    pickle_slot v = NULL;
    return top(m, &v) ? m->e->status : push(m, v);
}

/* Frames only say how many bytes to read at once. */
static enum status pass_frame(struct pickle_machine *m) {
    uint64_t n;
    if (take_number(m, 8, &n)) return m->e->status;
    return n > (uint64_t)(m->end - m->at) ? fail(m, "a frame is longer than the file") : STATUS_OK;
}

static enum status check_protocol(struct pickle_machine *m) {
    uint64_t protocol;
    if (take_number(m, 1, &protocol)) return m->e->status;
    return protocol > MOST_PROTOCOL ? fail(m, "a protocol that is not known") : STATUS_OK;
}

static enum status fail_opcode(struct pickle_machine *m, uint8_t opcode) {
    m->at--;
    return error_set(m->e, STATUS_UNSUPPORTED, "%s: byte %zu of the pickle: opcode 0x%02x is not read", m->name,
                     (size_t)(m->at - m->start), opcode);
}

static enum status run_constant(struct pickle_machine *m, uint8_t opcode) {
    pickle_slot v = NULL;
    switch (opcode) {
        case 'N': return push_new(m, PICKLE_NONE, &v);
        case 0x88: return push_int(m, 1, PICKLE_BOOL);
        case 0x89: return push_int(m, 0, PICKLE_BOOL);
        case 'J': return push_number(m, 4);
        case 'K': return push_number(m, 1);
        case 'M': return push_number(m, 2);
        case 'G': return push_real(m);
        case 0x8a: return push_long(m, 1);
        case 0x8b: return push_long(m, 4);
        case 'X': return push_text(m, 4, PICKLE_TEXT);
        case 0x8c: return push_text(m, 1, PICKLE_TEXT);
        case 0x8d: return push_text(m, 8, PICKLE_TEXT);
        case 'U':
        case 'C': return push_text(m, 1, PICKLE_BYTES);
        case 'T':
        case 'B': return push_text(m, 4, PICKLE_BYTES);
        case 0x8e:
        case 0x96: return push_text(m, 8, PICKLE_BYTES);
        default: return fail_opcode(m, opcode);
    }
}

static enum status run_container(struct pickle_machine *m, uint8_t opcode) {
    pickle_slot v = NULL;
    switch (opcode) {
        case '}': return push_new(m, PICKLE_DICT, &v);
        case ']': return push_new(m, PICKLE_LIST, &v);
        case 0x8f: return push_new(m, PICKLE_SET, &v);
        case ')': return push_tuple(m, 0);
        case 0x85: return push_tuple(m, 1);
        case 0x86: return push_tuple(m, 2);
        case 0x87: return push_tuple(m, 3);
        case 't': return push_marked(m, PICKLE_TUPLE);
        case 'l': return push_marked(m, PICKLE_LIST);
        case 'd': return push_marked(m, PICKLE_DICT);
        case 0x91: return push_marked(m, PICKLE_SET);
        case 'a': return extend_by(m, 1, false);
        case 'e':
        case 0x90: return extend_marked(m, false);
        case 's': return extend_by(m, 2, true);
        case 'u': return extend_marked(m, true);
        default: return run_constant(m, opcode);
    }
}

static enum status run_opcode(struct pickle_machine *m, uint8_t opcode) {
    switch (opcode) {
        case 0x80: return check_protocol(m);
        case 0x95: return pass_frame(m);
        case '(': return push_mark(m);
        case '0': return drop(m, false);
        case '1': return drop(m, true);
        case '2': return repeat(m);
        case 'q': return memo_store(m, 1);
        case 'r': return memo_store(m, 4);
        case 0x94: return memo_put(m, m->next_memo);
        case 'h': return memo_get(m, 1);
        case 'j': return memo_get(m, 4);
        case 'c': return push_global_lines(m);
        case 0x93: return push_global_values(m);
        case 'R':
        case 0x81: return push_call(m, false);
        case 0x92: return push_call(m, true);
        case 'b': return set_state(m);
        case 'Q': return push_stored(m);
        default: return run_container(m, opcode);
    }
}

static enum status run(struct pickle_machine *m) {
    while (m->at < m->end) {
        uint8_t opcode = *m->at;
        m->at++;
        if (opcode == '.') {
            pickle_slot root;
            if (pop(m, &root)) return m->e->status;
            m->p->root = root;
            return STATUS_OK;
        }
        if (run_opcode(m, opcode)) return m->e->status;
    }
    return fail(m, "the file ends before it does");
}

static enum status open_pickle(struct pickle **out, struct text_span bytes, const char *name, bool known,
                               struct error *e) {
    if (bytes.size == 0) return error_set(e, STATUS_CORRUPT, "%s: its pickle is empty", name);
    struct pickle *p = xcalloc(1, sizeof *p);
    const uint8_t *start = (const uint8_t *)bytes.text;
    struct pickle_machine m = {
        .p = p, .name = name, .start = start, .at = start, .end = start + bytes.size, .e = e, .known = known};
    enum status status = bytes.size > SIZE_LIMIT
                             ? error_set(e, STATUS_TOO_LARGE, "%s: a pickle of %zu MB", name, bytes.size >> 20)
                             : run(&m);
    free(m.stack);
    free(m.marks);
    free(m.memo);
    if (status) {
        pickle_close(p);
        return status;
    }
    *out = p;
    return STATUS_OK;
}

enum status pickle_open(struct pickle **out, struct text_span bytes, const char *name, struct error *e) {
    return open_pickle(out, bytes, name, false, e);
}

enum status pickle_open_known(struct pickle **out, struct text_span bytes, const char *name, struct error *e) {
    return open_pickle(out, bytes, name, true, e);
}

void pickle_close(struct pickle *p) {
    if (p == NULL) return;
    for (struct pickle_block *b = p->blocks, *next; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
    free(p);
}

const struct pickle_value *pickle_root(const struct pickle *p) { return p->root; }
