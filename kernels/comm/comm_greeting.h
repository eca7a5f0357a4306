/* kernels/comm/comm_greeting.h: the words by which ranks that are processes get to know each other,
 * and the proof that both have the same secret. Only texts: comm_rendezvous.c sends them.
 *
 * A message is lines of text and an empty line. Whoever listens says the first; a stranger gets no
 * further than that:
 *
 *     listener   retro-server ranks 2       the number of this protocol
 *                challenge NONCE            16 random bytes, as 32 hexadecimal digits
 *     rank       rank 1 of 2 1              with parallel.tensor and parallel.pipeline
 *                channel 0                  its connections to the listener are numbered
 *                version 0.1.0
 *                seat MACHINE ADDRESS PORT  where others reach it
 *                challenge NONCE
 *                proof CODE                 HMAC-SHA-256 by the secret of the listener's challenge
 * and the lines above listener   welcome CODE               the same of the rank's challenge; or:
 * refused WHY
 *
 * The secret itself is never sent. */
#pragma once

#include "config/base/buffer.h"
#include "kernels/comm/comm.h"

enum { GREETING_MOST = 900, LIST_MOST = 1 << 14, NONCE_TEXT = 33, PROOF_TEXT = 65 };

/* A rank's machine and its numeric address there. */
struct seat {
    char machine[64], address[64], port[8];
};

struct greeting {
    int rank, tensor, pipeline, channel;
    char version[32];
    struct seat seat;
    char nonce[NONCE_TEXT];
};

enum status nonce_make(char nonce[NONCE_TEXT], struct error *e);
/* The name of this machine; other characters than letters, digits, '.', '_' and '-' become '-'. */
void seat_name_machine(struct seat *seat);

void challenge_print(struct buffer *out, const char *nonce);
/* The bytes are foreign here and below, and `text` ends with NUL. False when it is something else.
 */
bool challenge_read(char nonce[NONCE_TEXT], const char *text);

/* `nonce` is the listener's. */
void greeting_print(struct buffer *out, const struct greeting *greeting, const char *nonce,
                    struct text_span secret);
/* *proven: whoever made it has the secret, and knew our nonce. */
bool greeting_read(struct greeting *greeting, bool *proven, const char *text, const char *nonce,
                   struct text_span secret);

void welcome_print(struct buffer *out, const struct greeting *greeting, struct text_span secret);
/* STATUS_INVALID when it is a refusal, with its words; STATUS_CORRUPT when it is something else. */
enum status welcome_read(const char *text, const struct greeting *greeting, struct text_span secret,
                         struct error *e);
/* `why` is cut where it is longer than a message. */
void refusal_print(struct buffer *out, const char *why);

/* Where all [size] ranks sit. */
void seats_print(struct buffer *out, const struct seat *seats, int size);
/* As welcome_read. */
enum status seats_read(struct seat *seats, int size, const char *text, struct error *e);
