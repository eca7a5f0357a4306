/* kernels/comm/comm_greeting.c: see comm_greeting.h. */
#include "kernels/comm/comm_greeting.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "config/base/sha256.h"

static const char heading[] = "retro-server ranks 2";

static void hex_print(char *text, const uint8_t *bytes, int n) {
    for (int i = 0; i < n; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

enum status nonce_make(char nonce[NONCE_TEXT], struct error *e) {
    uint8_t bytes[NONCE_TEXT / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return error_errno(e, "no random numbers");
    hex_print(nonce, bytes, (int)sizeof bytes);
    return STATUS_OK;
}

void seat_name_machine(struct seat *seat) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    memset(seat->machine, 0, sizeof seat->machine);
    if (gethostname(seat->machine, sizeof seat->machine - 1) != 0 || seat->machine[0] == '\0')
        snprintf(seat->machine, sizeof seat->machine, "unnamed");
    for (char *c = seat->machine; *c; c++)
        if (strchr(allowed, *c) == NULL) *c = '-';
}

/* The side that proves comes first, so that its proof is never that of the other. */
static void proof_make(char proof[PROOF_TEXT], const char *side, const char *nonce,
                       struct text_span text, struct text_span secret) {
    uint8_t code[SHA256_BYTES];
    const struct text_span parts[] = {{side, strlen(side) + 1}, {nonce, strlen(nonce) + 1}, text};
    sha256_authenticate(secret, parts, (int)ARRAY_COUNT(parts), code);
    hex_print(proof, code, SHA256_BYTES);
}

/* Takes the same time wherever they differ. */
static bool proofs_equal(const char *a, const char *b) {
    unsigned differ = 0;
    for (int i = 0; i < PROOF_TEXT - 1; i++) differ |= (unsigned char)a[i] ^ (unsigned char)b[i];
    return differ == 0;
}

/* True when `rest` is what remains of a message that was read: nothing but its end. */
static bool is_end(const char *rest) { return strcmp(rest, "\n\n") == 0; }

void challenge_print(struct buffer *out, const char *nonce) {
    buffer_printf(out, "%s\nchallenge %s\n\n", heading, nonce);
}

bool challenge_read(char nonce[NONCE_TEXT], const char *text) {
    int end = 0;
    if (strncmp(text, heading, sizeof heading - 1) != 0) return false;
    text += sizeof heading - 1;
    return sscanf(text, "\nchallenge %32[0-9a-f]%n", nonce, &end) == 1 && is_end(text + end) &&
           strlen(nonce) == NONCE_TEXT - 1;
}

static void seat_print(struct buffer *out, const struct seat *seat) {
    buffer_printf(out, "seat %s %s %s\n", seat->machine, seat->address, seat->port);
}

#define SEAT_FORMAT "seat %63[a-zA-Z0-9._-] %63[a-zA-Z0-9.:%%_-] %7[0-9]"

void greeting_print(struct buffer *out, const struct greeting *greeting, const char *nonce,
                    struct text_span secret) {
    char proof[PROOF_TEXT];
    size_t begin = out->size;
    buffer_printf(out, "rank %d of %d %d\nchannel %d\nversion %s\n", greeting->rank,
                  greeting->tensor, greeting->pipeline, greeting->channel, greeting->version);
    seat_print(out, &greeting->seat);
    buffer_printf(out, "challenge %s\n", greeting->nonce);
    proof_make(proof, "rank", nonce, (struct text_span){out->data + begin, out->size - begin},
               secret);
    buffer_printf(out, "proof %s\n\n", proof);
}

bool greeting_read(struct greeting *greeting, bool *proven, const char *text, const char *nonce,
                   struct text_span secret) {
    char proof[PROOF_TEXT], expected[PROOF_TEXT];
    int shown = 0, end = 0;
    *greeting = (struct greeting){0};
    *proven = false;
    int n = sscanf(text,
                   "rank %2d of %2d %2d\nchannel %1d\nversion %31[a-zA-Z0-9._+-]\n" SEAT_FORMAT
                   "\nchallenge %32[0-9a-f]\n%nproof %64[0-9a-f]%n",
                   &greeting->rank, &greeting->tensor, &greeting->pipeline, &greeting->channel,
                   greeting->version, greeting->seat.machine, greeting->seat.address,
                   greeting->seat.port, greeting->nonce, &shown, proof, &end);
    if (n != 10 || !is_end(text + end) || strlen(greeting->nonce) != NONCE_TEXT - 1 ||
        strlen(proof) != PROOF_TEXT - 1)
        return false;
    proof_make(expected, "rank", nonce, (struct text_span){text, (size_t)shown}, secret);
    *proven = proofs_equal(proof, expected);
    return true;
}

void welcome_print(struct buffer *out, const struct greeting *greeting, struct text_span secret) {
    char proof[PROOF_TEXT];
    proof_make(proof, "listener", greeting->nonce, (struct text_span){"", 0}, secret);
    buffer_printf(out, "welcome %s\n\n", proof);
}

void refusal_print(struct buffer *out, const char *why) {
    buffer_printf(out, "refused %.*s\n\n", GREETING_MOST - 20, why);
}

/* Words of others are shown as far as they are printable ASCII. */
static enum status refusal_read(const char *text, struct error *e) {
    static const char word[] = "refused ";
    char why[GREETING_MOST];
    if (strncmp(text, word, sizeof word - 1) != 0)
        return error_set(e, STATUS_CORRUPT, "it answers like another program");
    snprintf(why, sizeof why, "%.*s", (int)strcspn(text + sizeof word - 1, "\n"),
             text + sizeof word - 1);
    for (char *c = why; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
    return error_set(e, STATUS_INVALID, "%s", why);
}

enum status welcome_read(const char *text, const struct greeting *greeting, struct text_span secret,
                         struct error *e) {
    char proof[PROOF_TEXT], expected[PROOF_TEXT];
    int end = 0;
    if (sscanf(text, "welcome %64[0-9a-f]%n", proof, &end) != 1) return refusal_read(text, e);
    proof_make(expected, "listener", greeting->nonce, (struct text_span){"", 0}, secret);
    if (!is_end(text + end) || strlen(proof) != PROOF_TEXT - 1 || !proofs_equal(proof, expected))
        return error_set(e, STATUS_CORRUPT, "it does not have the secret");
    return STATUS_OK;
}

void seats_print(struct buffer *out, const struct seat *seats, int size) {
    for (int r = 0; r < size; r++) seat_print(out, &seats[r]);
    buffer_append_string(out, "\n");
}

enum status seats_read(struct seat *seats, int size, const char *text, struct error *e) {
    if (strncmp(text, "seat ", 5) != 0) return refusal_read(text, e);
    for (int r = 0; r < size; r++) {
        int end = 0;
        if (sscanf(text, SEAT_FORMAT "\n%n", seats[r].machine, seats[r].address, seats[r].port,
                   &end) != 3 ||
            end == 0)
            return error_set(e, STATUS_CORRUPT, "rank 0 names %d of %d ranks", r, size);
        text += end;
    }
    return STATUS_OK;
}
