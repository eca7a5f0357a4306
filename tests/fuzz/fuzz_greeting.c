/* tests/fuzz/fuzz_greeting.c: any bytes as what ranks say when they meet: the first says which of
 * their messages. */
#include <stdlib.h>
#include <string.h>

#include "kernels/comm/comm_tcp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RANKS = 3 };

static const char nonce[] = "00112233445566778899aabbccddeeff";
static const struct text_span secret = {"a secret of this test", 21};

/* A greeting that nobody made with the secret is never taken for one; one that was read says the
 * same when it is written with the secret. */
static void read_greeting(const char *text) {
    struct greeting g, again;
    struct buffer written = {0};
    bool proven;
    if (!greeting_read(&g, &proven, text, nonce, secret)) return;
    CHECK(!proven);
    greeting_print(&written, &g, nonce, secret);
    CHECK(greeting_read(&again, &proven, written.data, nonce, secret) && proven);
    CHECK(again.rank == g.rank && again.channel == g.channel &&
          strcmp(again.seat.machine, g.seat.machine) == 0);
    buffer_free(&written);
}

static void read_answer(const char *text, struct error *e) {
    struct greeting g = {.rank = 1};
    memcpy(g.nonce, nonce, sizeof nonce);
    CHECK(welcome_read(text, &g, secret, e) != STATUS_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct error e = {0};
    struct seat seats[RANKS];
    char challenge[NONCE_TEXT];
    if (size == 0 || size > GREETING_MOST) return 0;
    char *text = xstrndup((const char *)data + 1, size - 1);
    switch (data[0] % 5) {
        case 0: read_greeting(text); break;
        case 1: read_answer(text, &e); break;
        case 2:
            CHECK(!challenge_read(challenge, text) || strlen(challenge) == NONCE_TEXT - 1);
            break;
        case 3:
            CHECK(seats_read(seats, RANKS, text, &e) != STATUS_OK ||
                  strlen(seats[RANKS - 1].port) > 0);
            break;
        default: CHECK(endpoint_parse(seats, text, &e) != STATUS_OK || strlen(seats[0].port) > 0);
    }
    free(text);
    return 0;
}
