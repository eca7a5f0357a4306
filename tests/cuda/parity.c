/* tests/cuda/parity.c: retro-eval parity as a program of its own, without the libraries that only
 * other commands need: what is carried to a machine with a GPU stays small. Same arguments, same
 * output. */
#include "tools/eval/eval.h"

int main(int argc, char **argv) {
    return eval_parity(&(struct usage){"parity", "[OPTION...] FOLDER...", "reference cases"},
                       argc - 1, argv + 1);
}
