/* tests/fuzz/fuzz_config.c: any bytes as a configuration file; what is accepted prints to text that
 * parses to itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/host/options/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *print(const struct config *c, size_t *size) {
    char *text = NULL;
    FILE *out = open_memstream(&text, size);
    config_print_json(c, out);
    fclose(out);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct config c, again;
    struct error e = {0};
    config_init(&c);
    config_init(&again);
    enum status status = config_parse(&c, (const char *)data, size, "input", "base", &e);
    CHECK(status == STATUS_OK || (e.status == status && e.text[0] != '\0'));
    if (status == STATUS_OK) {
        size_t first_size, second_size;
        char *first = print(&c, &first_size);
        CHECK(config_parse(&again, first, first_size, "printed", "", &e) == STATUS_OK);
        char *second = print(&again, &second_size);
        CHECK(strcmp(first, second) == 0);
        free(first);
        free(second);
    }
    char *assignment = xstrndup((const char *)data, size);
    config_set(&c, assignment, &e);
    free(assignment);
    config_free(&c);
    config_free(&again);
    return 0;
}
