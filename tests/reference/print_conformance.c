/* tests/reference/print_conformance.c: writes what docs/agents-conformance.md has to hold; `make
 * docs/agents-conformance.md` runs it. */
#include <stdio.h>

#include "server/doors/conformance/conformance.h"

int main(void) {
    struct buffer text = {0};
    conformance_print(&text);
    fwrite(text.data, 1, text.size, stdout);
    buffer_free(&text);
    return fflush(stdout) != 0;
}
