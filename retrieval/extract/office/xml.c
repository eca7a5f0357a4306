/* retrieval/extract/office/xml.c: the only file that includes libxml2's XML reader. See xml.h. */
#include "retrieval/extract/office/xml.h"

#include <libxml/xmlreader.h>
#include <string.h>

static bool is_text(int type) {
    return type == XML_READER_TYPE_TEXT || type == XML_READER_TYPE_CDATA ||
           type == XML_READER_TYPE_SIGNIFICANT_WHITESPACE;
}

static void give_event(xmlTextReaderPtr reader, int type, xml_taker *take, void *context) {
    struct xml_event event = {.source = (struct xml_source *)reader};
    if (is_text(type)) {
        event.kind = XML_EVENT_TEXT;
        event.text = (const char *)xmlTextReaderConstValue(reader);
        if (event.text) take(context, &event);
        return;
    }
    bool opens = type == XML_READER_TYPE_ELEMENT;
    bool closes =
        type == XML_READER_TYPE_END_ELEMENT || (opens && xmlTextReaderIsEmptyElement(reader) == 1);
    event.name = (const char *)xmlTextReaderConstLocalName(reader);
    event.kind = XML_EVENT_OPEN;
    if (opens) take(context, &event);
    event.kind = XML_EVENT_CLOSE;
    if (closes) take(context, &event);
}

static enum status read_xml(const char *name, struct text_span xml, xml_taker *take, void *context,
                            bool any_type, struct error *e) {
    const int options =
        XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING | XML_PARSE_COMPACT;
    if (xml.size > INT32_MAX)
        return error_set(e, STATUS_TOO_LARGE, "%s: %zu bytes of XML", name, xml.size);
    xmlTextReaderPtr reader = xmlReaderForMemory(xml.text, (int)xml.size, NULL, NULL, options);
    if (reader == NULL) return error_set(e, STATUS_NO_MEMORY, "%s: XML parser", name);
    enum status status = STATUS_OK;
    int more = xmlTextReaderRead(reader);
    while (more == 1 && status == STATUS_OK) {
        int type = xmlTextReaderNodeType(reader);
        if (type == XML_READER_TYPE_DOCUMENT_TYPE && !any_type)
            status = error_set(e, STATUS_INVALID,
                               "%s: it declares a document type, which its format does not", name);
        else if (type != XML_READER_TYPE_DOCUMENT_TYPE)
            give_event(reader, type, take, context);
        more = xmlTextReaderRead(reader);
    }
    if (status == STATUS_OK && more != 0)
        status = error_set(e, STATUS_INVALID, "%s: damaged: no well-formed XML", name);
    xmlFreeTextReader(reader);
    return status;
}

enum status xml_read(const char *name, struct text_span xml, xml_taker *take, void *context,
                     struct error *e) {
    return read_xml(name, xml, take, context, false, e);
}

enum status xml_read_any(const char *name, struct text_span xml, xml_taker *take, void *context,
                         struct error *e) {
    return read_xml(name, xml, take, context, true, e);
}

bool xml_attribute(const struct xml_event *event, const char *name, struct buffer *value) {
    xmlTextReaderPtr reader = (xmlTextReaderPtr)event->source;
    bool found = false;
    buffer_clear(value);
    bool prefixed = strchr(name, ':') != NULL;
    int more = event->kind == XML_EVENT_OPEN ? xmlTextReaderMoveToFirstAttribute(reader) : 0;
    while (more == 1 && !found) {
        const xmlChar *own =
            prefixed ? xmlTextReaderConstName(reader) : xmlTextReaderConstLocalName(reader);
        found = own && strcmp((const char *)own, name) == 0;
        const char *text = found ? (const char *)xmlTextReaderConstValue(reader) : NULL;
        buffer_append_string(value, text ? text : "");
        more = xmlTextReaderMoveToNextAttribute(reader);
    }
    xmlTextReaderMoveToElement(reader);
    return found;
}

bool xml_attribute_is(const struct xml_event *event, const char *name, const char *value) {
    struct buffer found = {0};
    bool is = xml_attribute(event, name, &found) && strcmp(found.data, value) == 0;
    buffer_free(&found);
    return is;
}
