/* tests/reference/print_config_docs.c: writes what docs/config.md has to hold; `make
 * docs/config.md` runs it. */
#include "server/host/options/config.h"

int main(void) {
    config_print_markdown(stdout);
    return fflush(stdout) != 0;
}
