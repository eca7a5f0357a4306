/* retrieval/extract/mail/message.c: the door to GMime: the only file that includes it. See
 * message.h.
 *
 * GMime brings GLib, GObject, GIO and GPGME. The process of a parser alone opens it, with dlopen,
 * before its files are out of reach; the program, its keeper and the parsers of other formats never
 * map it. A helper program would have to be installed and found beside ours, and would run under
 * the longer list of calls that allows programs to open files.
 */
#include "retrieval/extract/mail/message.h"

#include <dlfcn.h>
#include <gmime/gmime.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/base/utf8.h"
#include "retrieval/extract/extract_private.h"

enum { MAX_PARTS_DEEP = 8 };

#define FUNCTIONS(X) \
    X(g_mime_init) \
    X(g_mime_parser_options_get_default) \
    X(g_mime_parser_options_set_fallback_charsets) \
    X(g_mime_stream_mem_new) \
    X(g_mime_stream_mem_new_with_buffer) \
    X(g_mime_stream_mem_get_byte_array) \
    X(g_mime_parser_new_with_stream) \
    X(g_mime_parser_construct_message) \
    X(g_mime_encoding_base64_decode_step) \
    X(g_mime_utils_header_unfold) \
    X(g_mime_utils_header_decode_text) \
    X(g_mime_message_get_mime_part) \
    X(g_mime_message_part_get_type) \
    X(g_mime_message_part_get_message) \
    X(g_mime_multipart_get_type) \
    X(g_mime_multipart_get_count) \
    X(g_mime_multipart_get_part) \
    X(g_mime_part_get_type) \
    X(g_mime_part_get_content) \
    X(g_mime_data_wrapper_write_to_stream) \
    X(g_mime_object_get_header_list) \
    X(g_mime_header_get_raw_value) \
    X(g_mime_header_list_get_header) \
    X(g_mime_object_get_content_type) \
    X(g_mime_object_get_content_type_parameter) \
    X(g_mime_content_disposition_get_parameter) \
    X(g_mime_content_disposition_parse) \
    X(g_mime_content_type_get_parameter) \
    X(g_mime_content_type_parse) \
    X(g_mime_object_get_disposition) \
    X(g_mime_object_write_to_stream) \
    X(g_mime_content_type_get_media_type) \
    X(g_mime_content_type_get_media_subtype) \
    X(g_object_unref) \
    X(g_free) \
    X(g_type_check_instance_is_a)

#define AS_FIELD(name) __typeof__(&name) name;
static struct {
    void *library; /* NULL: not open */
    FUNCTIONS(AS_FIELD)
} gmime;

static bool find_functions(void) {
#define FIND(name) \
    *(void **)&gmime.name = dlsym(gmime.library, #name); \
    if (gmime.name == NULL) return false;
    FUNCTIONS(FIND)
    return true;
}

/* Bytes beyond ASCII in headers are read in the first of these that they fit. */
static const char *undeclared_charsets[] = {"utf-8", "windows-1252", NULL};

enum status mail_open_library(const char *file, struct error *e) {
    if (gmime.library) return STATUS_OK;
    gmime.library = dlopen("libgmime-3.0.so.0", RTLD_LAZY | RTLD_LOCAL);
    if (gmime.library == NULL || !find_functions()) {
        const char *reason = dlerror();
        gmime.library = NULL;
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: it needs the library GMime; install the package libgmime-3.0-0 (%s)",
                         file, reason ? reason : "");
    }
    gmime.g_mime_init();
    gmime.g_mime_parser_options_set_fallback_charsets(gmime.g_mime_parser_options_get_default(),
                                                      undeclared_charsets);
    return STATUS_OK;
}

/* The message. */

struct mail_message {
    GMimeMessage *message; /* NULL: it cannot be parsed */
    char **names;          /* of its parts' files, [n] */
    int n, capacity;
};

static bool begins_header(const char *line, size_t size) {
    size_t at = 0;
    while (at < size && line[at] > ' ' && line[at] < 0x7f && line[at] != ':') at++;
    bool is_named = at > 0;
    while (at < size && (line[at] == ' ' || line[at] == '\t')) at++;
    return is_named && at < size && line[at] == ':';
}

/* GMime takes nothing of a message whose first line is no header. Such lines are left out. */
static struct text_span skip_to_header(struct text_span text) {
    struct text_span rest = text;
    while (rest.size > 0) {
        const char *end = memchr(rest.text, '\n', rest.size);
        size_t size = end ? (size_t)(end - rest.text) : rest.size;
        bool is_blank = size == 0 || (size == 1 && rest.text[0] == '\r');
        if (is_blank || begins_header(rest.text, size)) return rest;
        size += end != NULL;
        rest = (struct text_span){rest.text + size, rest.size - size};
    }
    return text;
}

struct mail_message *mail_parse(struct text_span whole) {
    struct mail_message *mail = xcalloc(1, sizeof *mail);
    struct text_span text = skip_to_header(whole);
    GMimeStream *stream = gmime.g_mime_stream_mem_new_with_buffer(text.text, text.size);
    GMimeParser *parser = gmime.g_mime_parser_new_with_stream(stream);
    mail->message = gmime.g_mime_parser_construct_message(parser, NULL);
    gmime.g_object_unref(parser);
    gmime.g_object_unref(stream);
    return mail;
}

void mail_free(struct mail_message *mail) {
    if (mail->message) gmime.g_object_unref(mail->message);
    for (int i = 0; i < mail->n; i++) free(mail->names[i]);
    free(mail->names);
    free(mail);
}

/* Headers. */

/* "=?utf-8?B?w7Y=?=" becomes "=?utf-8?Q?=C3=B6?="; its length, 0: there is no such word at `at`.
 * GMime 3.2.13, which Debian 12 has, loses all words behind one whose base64 ends in "=". */
static size_t spell_word(const char *at, struct buffer *out) {
    size_t charset = strncmp(at, "=?", 2) == 0 ? strcspn(at + 2, "?") : 0;
    if (charset == 0 || strncasecmp(at + 2 + charset, "?B?", 3) != 0) return 0;
    const char *text = at + 2 + charset + 3;
    size_t size = strcspn(text, "?");
    if (text[size] == '\0' || text[size + 1] != '=') return 0;
    struct buffer bytes = {0};
    guint32 save = 0;
    int state = 0;
    buffer_append(&bytes, text, size);
    unsigned char *letters = (unsigned char *)bytes.data;
    bytes.size = gmime.g_mime_encoding_base64_decode_step(letters, size, letters, &state, &save);
    buffer_printf(out, "=?%.*s?Q?", (int)charset, at + 2);
    for (size_t i = 0; i < bytes.size; i++) buffer_printf(out, "=%02X", letters[i]);
    buffer_append_string(out, "?=");
    buffer_free(&bytes);
    return (size_t)(text + size + 2 - at);
}

/* The first header of that name as it stands there, on one line and without base64; false: there is
 * none. */
static bool find_raw(GMimeObject *object, const char *name, struct buffer *value) {
    GMimeHeader *header =
        gmime.g_mime_header_list_get_header(gmime.g_mime_object_get_header_list(object), name);
    const char *raw = header ? gmime.g_mime_header_get_raw_value(header) : NULL;
    char *line = raw ? gmime.g_mime_utils_header_unfold(raw) : NULL;
    buffer_clear(value);
    for (size_t i = 0; line && line[i];) {
        size_t n = spell_word(line + i, value);
        if (n == 0) buffer_append(value, line + i, 1);
        i += n > 0 ? n : 1;
    }
    buffer_append(value, "", 0);
    gmime.g_free(line);
    return line != NULL;
}

bool mail_find_header(const struct mail_message *mail, const char *name, struct buffer *value) {
    struct buffer raw = {0};
    bool found = mail->message && find_raw((GMimeObject *)mail->message, name, &raw);
    char *text = found ? gmime.g_mime_utils_header_decode_text(NULL, raw.data) : NULL;
    buffer_clear(value);
    buffer_append_string(value, text ? text : "");
    if (!utf8_is_valid(value->data, value->size)) extract_repair(value);
    gmime.g_free(text);
    buffer_free(&raw);
    return found;
}

/* Parts. */

static bool is_a(const void *object, GType type) {
    return object && gmime.g_type_check_instance_is_a((GTypeInstance *)(uintptr_t)object, type);
}

static const char *or_empty(const char *text) {
    return text && utf8_is_valid(text, strlen(text)) ? text : "";
}

/* The name of a part's file: that where it says what is to be done with the part, else that of its
 * type. */
static char *find_name(GMimeObject *object) {
    struct buffer raw = {0};
    char *name = NULL;
    if (find_raw(object, "Content-Disposition", &raw)) {
        GMimeContentDisposition *position = gmime.g_mime_content_disposition_parse(NULL, raw.data);
        name =
            xstrdup(or_empty(gmime.g_mime_content_disposition_get_parameter(position, "filename")));
        gmime.g_object_unref(position);
    }
    if ((name == NULL || name[0] == '\0') && find_raw(object, "Content-Type", &raw)) {
        GMimeContentType *type = gmime.g_mime_content_type_parse(NULL, raw.data);
        free(name);
        name = xstrdup(or_empty(gmime.g_mime_content_type_get_parameter(type, "name")));
        gmime.g_object_unref(type);
    }
    buffer_free(&raw);
    return name ? name : xstrdup("");
}

static struct mail_part describe_part(struct mail_message *mail, GMimeObject *object) {
    GMimeContentType *type = gmime.g_mime_object_get_content_type(object);
    const char *position = gmime.g_mime_object_get_disposition(object);
    const char *charset = gmime.g_mime_object_get_content_type_parameter(object, "charset");
    mail->names = xgrow(mail->names, mail->n, &mail->capacity, sizeof *mail->names);
    mail->names[mail->n] = find_name(object);
    mail->n++;
    return (struct mail_part){
        .type = or_empty(type ? gmime.g_mime_content_type_get_media_type(type) : "text"),
        .subtype = or_empty(type ? gmime.g_mime_content_type_get_media_subtype(type) : "plain"),
        .charset = or_empty(charset),
        .name = mail->names[mail->n - 1],
        .is_attached = position && strcasecmp(position, "attachment") == 0,
        .content = object};
}

struct part_walk {
    struct mail_message *message;
    void (*take)(void *context, const struct mail_part *part);
    void *context;
};

static void walk_object(const struct part_walk *walk, GMimeObject *object, int depth) {
    if (object == NULL || depth > MAX_PARTS_DEEP) return;
    if (!is_a(object, gmime.g_mime_multipart_get_type())) {
        struct mail_part part = describe_part(walk->message, object);
        walk->take(walk->context, &part);
        return;
    }
    GMimeMultipart *parts = (GMimeMultipart *)object;
    int n = gmime.g_mime_multipart_get_count(parts);
    for (int i = 0; i < n; i++)
        walk_object(walk, gmime.g_mime_multipart_get_part(parts, i), depth + 1);
}

void mail_walk(struct mail_message *mail, void (*take)(void *context, const struct mail_part *part),
               void *context) {
    struct part_walk walk = {mail, take, context};
    if (mail->message) walk_object(&walk, gmime.g_mime_message_get_mime_part(mail->message), 0);
}

static void write_object(GMimeObject *object, GMimeStream *out) {
    if (is_a(object, gmime.g_mime_message_part_get_type())) {
        GMimeMessage *inner = gmime.g_mime_message_part_get_message((GMimeMessagePart *)object);
        if (inner) gmime.g_mime_object_write_to_stream((GMimeObject *)inner, NULL, out);
    } else if (is_a(object, gmime.g_mime_part_get_type())) {
        GMimeDataWrapper *content = gmime.g_mime_part_get_content((GMimePart *)object);
        if (content) gmime.g_mime_data_wrapper_write_to_stream(content, out);
    }
}

void mail_read_part(const struct mail_part *part, struct buffer *out) {
    GMimeStream *stream = gmime.g_mime_stream_mem_new();
    write_object(part->content, stream);
    GByteArray *bytes = gmime.g_mime_stream_mem_get_byte_array((GMimeStreamMem *)stream);
    buffer_append(out, (const char *)bytes->data, bytes->len);
    gmime.g_object_unref(stream);
}
