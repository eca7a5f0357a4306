/* tests/arm/count_plugin.c: a plugin of qemu-aarch64 that counts instructions, and bytes that they
 * load and store: qemu-aarch64 -plugin count_plugin.so PROGRAM.
 *
 * A line of totals goes to standard error where the program executes MARK, and at its end. Sizes
 * are read from the instructions (Arm Architecture Reference Manual, C4.1.94), each once, when qemu
 * translates it; SVE's are not known, so programs run without it (-cpu max,sve=off). With
 * `check=on` qemu's own accounts of memory are added up too, which is slow, and a difference at the
 * end is told; a prefetch counts as an instruction alone. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The part of qemu's interface (include/qemu/qemu-plugin.h, version 1) that is used here. */
#define EXPORT __attribute__((visibility("default")))
typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { INLINE_ADD = 0, NO_REGISTERS = 0, READS_AND_WRITES = 3 };
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *instruction);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id,
                                           void (*call)(plugin_id id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *instruction, int operation,
                                                void *total, uint64_t amount);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *instruction,
                                            void (*call)(unsigned cpu, void *data), int registers,
                                            void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *instruction,
                                      void (*call)(unsigned cpu, uint32_t access, uint64_t address,
                                                   void *data),
                                      int registers, int kinds, void *data);
unsigned qemu_plugin_mem_size_shift(uint32_t access);
bool qemu_plugin_mem_is_store(uint32_t access);
void qemu_plugin_register_atexit_cb(plugin_id id, void (*call)(plugin_id id, void *data),
                                    void *data);
EXPORT int qemu_plugin_version = 1;
EXPORT int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv);

#define MARK 0xd50327ffu /* HINT #63: see step_counts.c */

struct counts {
    uint64_t instructions, loaded, stored;
};

static struct counts total, seen;
static bool check;

/* Bits [low, low + n) of an instruction. */
static unsigned bits(uint32_t instruction, int low, int n) {
    return instruction >> low & ((1u << n) - 1);
}

struct access {
    unsigned bytes;
    bool store;
};

/* One register, and atomic operations. */
static struct access single_access(uint32_t i) {
    const unsigned size = bits(i, 30, 2), opc = bits(i, 22, 2);
    if (bits(i, 26, 1)) return (struct access){1u << (size | (opc >> 1) << 2), (opc & 1) == 0};
    if (size == 3 && opc == 2) return (struct access){0, false};
    return (struct access){1u << size, opc == 0};
}

static struct access pair_access(uint32_t i) {
    const unsigned opc = bits(i, 30, 2);
    const unsigned each = bits(i, 26, 1) ? 4u << opc : opc == 2 ? 8 : 4;
    return (struct access){2 * each, bits(i, 22, 1) == 0};
}

static struct access literal_access(uint32_t i) {
    const unsigned opc = bits(i, 30, 2);
    if (bits(i, 26, 1)) return (struct access){4u << opc, false};
    return (struct access){opc == 3 ? 0 : opc == 1 ? 8 : 4, false};
}

static unsigned structures_of(unsigned opcode) {
    switch (opcode) {
        case 7: return 1;
        case 8:
        case 10: return 2;
        case 4:
        case 6: return 3;
        default: return 4;
    }
}

/* LD1 to LD4 and their stores: whole registers, or one lane of each. */
static struct access structure_access(uint32_t i) {
    const bool store = bits(i, 22, 1) == 0;
    if (!bits(i, 24, 1))
        return (struct access){structures_of(bits(i, 12, 4)) * (bits(i, 30, 1) ? 16 : 8), store};
    const unsigned opcode = bits(i, 13, 3), size = bits(i, 10, 2),
                   registers = ((opcode & 1) << 1 | bits(i, 21, 1)) + 1, kind = opcode >> 1;
    const unsigned lane = kind == 3 ? 1u << size : kind < 2 ? 1u << kind : size & 1 ? 8 : 4;
    return (struct access){registers * lane, store};
}

static struct access access_of(uint32_t i) {
    if ((bits(i, 25, 4) & 5) != 4) return (struct access){0, false};
    switch (bits(i, 27, 3)) {
        case 7: return single_access(i);
        case 5: return pair_access(i);
        case 3: return bits(i, 24, 1) ? single_access(i) : literal_access(i);
        default: break;
    }
    if (bits(i, 26, 1)) return structure_access(i);
    return (struct access){1u << bits(i, 30, 2), bits(i, 22, 1) == 0};
}

static void print_totals(const char *what) {
    fprintf(stderr, "count %s instructions %" PRIu64 " loaded %" PRIu64 " stored %" PRIu64 "\n",
            what, total.instructions, total.loaded, total.stored);
}

static void reach_mark(unsigned cpu, void *data) {
    (void)cpu;
    (void)data;
    print_totals("mark");
}

static void see_access(unsigned cpu, uint32_t access, uint64_t address, void *data) {
    (void)cpu;
    (void)address;
    (void)data;
    uint64_t *bytes = qemu_plugin_mem_is_store(access) ? &seen.stored : &seen.loaded;
    *bytes += 1u << qemu_plugin_mem_size_shift(access);
}

static void translate(plugin_id id, struct qemu_plugin_tb *block) {
    (void)id;
    const size_t n = qemu_plugin_tb_n_insns(block);
    struct counts counts = {.instructions = n};
    for (size_t i = 0; i < n; i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        uint32_t word;
        memcpy(&word, qemu_plugin_insn_data(instruction), sizeof word);
        const struct access access = access_of(word);
        if (access.store)
            counts.stored += access.bytes;
        else
            counts.loaded += access.bytes;
        if (word == MARK)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, reach_mark, NO_REGISTERS, NULL);
        if (check)
            qemu_plugin_register_vcpu_mem_cb(instruction, see_access, NO_REGISTERS,
                                             READS_AND_WRITES, NULL);
    }

    struct qemu_plugin_insn *first = qemu_plugin_tb_get_insn(block, 0);
    qemu_plugin_register_vcpu_insn_exec_inline(first, INLINE_ADD, &total.instructions,
                                               counts.instructions);
    if (counts.loaded > 0)
        qemu_plugin_register_vcpu_insn_exec_inline(first, INLINE_ADD, &total.loaded, counts.loaded);
    if (counts.stored > 0)
        qemu_plugin_register_vcpu_insn_exec_inline(first, INLINE_ADD, &total.stored, counts.stored);
}

static void finish(plugin_id id, void *data) {
    (void)id;
    (void)data;
    print_totals("end");
    if (check)
        fprintf(stderr, "count check loaded %" PRIu64 " stored %" PRIu64 "\n", seen.loaded,
                seen.stored);
}

int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv) {
    (void)info;
    check = argc > 0 && strcmp(argv[0], "check=on") == 0;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    qemu_plugin_register_atexit_cb(id, finish, NULL);
    return 0;
}
