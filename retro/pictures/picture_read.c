/* retro/pictures/picture_read.c: pictures decoded in a process of their own
 * (config/sandbox/sandbox.h): the libraries that read foreign files never run in this one. A reply
 * is a head, then pixels or the words of an error. */
#include <string.h>
#include <unistd.h>

#include "config/base/utf8.h"
#include "config/sandbox/sandbox.h"
#include "retro/pictures/decoders.h"

enum { READ_SECONDS = 60, REPLY_MAGIC = 0x52504943 };
/* Beside the pixels: tables of the libraries. */
static const size_t BASE_MEMORY = (size_t)64 << 20;

struct picture_reply {
    uint32_t magic;
    int32_t status, width, height; /* of the picture: 0 where there is none */
    uint32_t text_size;            /* of an error */
};

/* In the process. */

static void decode_call(const struct sandbox_call *call) {
    struct picture picture;
    struct error e = {0};
    enum status status = picture_decode(&picture, call->input, call->options, &e);
    struct picture_reply reply = {.magic = REPLY_MAGIC,
                                  .status = (int32_t)status,
                                  .width = picture.width,
                                  .height = picture.height};
    if (status) reply.text_size = (uint32_t)strlen(e.text);
    sandbox_write(call->output, &reply, sizeof reply);
    sandbox_write(call->output, e.text, reply.text_size);
    if (picture.pixels)
        sandbox_write(call->output, picture.pixels,
                      (size_t)picture.width * (size_t)picture.height * 3);
}

/* Here: a decoder that was taken over may reply anything. */

static enum status refuse_reply(struct error *e) {
    return error_set(e, STATUS_INVALID,
                     "the picture is damaged: its decoder stopped, or writes nonsense");
}

static enum status take_error(struct sandbox_child *child, const struct picture_reply *reply,
                              struct error *e) {
    char text[sizeof e->text];
    size_t got;
    bool known = reply->status > STATUS_OK && reply->status <= STATUS_INTERNAL;
    if (!known || reply->text_size >= sizeof text) return refuse_reply(e);
    if (sandbox_read(child, text, reply->text_size, &got, e)) return e->status;
    text[got] = '\0';
    if (got < reply->text_size || !utf8_is_valid(text, got)) return refuse_reply(e);
    return error_set(e, (enum status)reply->status, "%s", text);
}

static enum status take_reply(struct picture *out, struct sandbox_child *child,
                              const struct picture_rules *rules, struct error *e) {
    struct picture_reply reply;
    size_t got;
    if (sandbox_read(child, &reply, sizeof reply, &got, e)) return e->status;
    if (got < sizeof reply || reply.magic != REPLY_MAGIC) return refuse_reply(e);
    if (reply.status != STATUS_OK) return take_error(child, &reply, e);
    if (picture_check_size(reply.width, reply.height, rules, e)) return e->status;
    if (picture_take(out, reply.width, reply.height, e)) return e->status;
    size_t size = (size_t)out->width * (size_t)out->height * 3;
    if (sandbox_read(child, out->pixels, size, &got, e)) return e->status;
    return got == size ? STATUS_OK : refuse_reply(e);
}

enum status picture_read(struct picture *out, struct text_span bytes,
                         const struct picture_rules *rules, struct error *e) {
    size_t memory = (size_t)rules->most_pixels * PICTURE_PIXEL_BYTES + BASE_MEMORY;
    struct sandbox_job job = {.name = "the picture",
                              .input = bytes,
                              .work = decode_call,
                              .options = {(const char *)rules, sizeof *rules},
                              .limits = {.memory = memory, .seconds = READ_SECONDS}};
    struct sandbox_child child;
    struct error end;
    int code;
    /* Bytes of no known kind reach no library. */
    if (picture_kind_of(bytes) == PICTURE_UNKNOWN) return picture_decode(out, bytes, rules, e);
    *out = (struct picture){0};
    if (sandbox_begin(&child, &job, e)) return e->status;
    enum status status = take_reply(out, &child, rules, e);
    if (status) sandbox_kill(&child);
    enum status ended = sandbox_end(&child, &code, &end);
    /* A refusal of the kernel says more than that nothing came. */
    if (status && ended == STATUS_UNSUPPORTED) *e = end, status = ended;
    if (status) picture_free(out);
    return status;
}
