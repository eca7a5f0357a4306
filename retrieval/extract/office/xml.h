/* retrieval/extract/office/xml.h: XML as a stream of events. Entities are not expanded, nothing is
 * fetched, and a document type declaration is refused: the formats that are read here have none. */
#pragma once

#include "config/base/buffer.h"

enum xml_event_kind { XML_EVENT_OPEN, XML_EVENT_CLOSE, XML_EVENT_TEXT };

struct xml_source; /* behind an event, for its attributes */
struct xml_event {
    enum xml_event_kind kind;
    const char *name; /* of the element, without its prefix; NULL for text */
    const char *text;
    struct xml_source *source;
};
typedef void xml_taker(void *context, const struct xml_event *event);

/* Calls the taker for each event. An element without content opens and closes. STATUS_INVALID: it
 * is no XML. */
enum status xml_read(const char *name, struct text_span xml, xml_taker *take, void *context,
                     struct error *e);
/* The same of XML that may declare a document type, which is passed over. */
enum status xml_read_any(const char *name, struct text_span xml, xml_taker *take, void *context,
                         struct error *e);
/* The value of an attribute of the element that opens, by its name without a prefix, or with it
 * ("r:id"); false: it has none such. */
bool xml_attribute(const struct xml_event *event, const char *name, struct buffer *value);
bool xml_attribute_is(const struct xml_event *event, const char *name, const char *value);
static inline bool xml_is(const struct xml_event *event, const char *name) {
    return event->name && __builtin_strcmp(event->name, name) == 0;
}
