/* retrieval/extract/office/links.c: see links.h. */
#include "retrieval/extract/office/links.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "retrieval/extract/office/xml.h"

void part_list_add(struct part_list *list) {
    list->list = xgrow(list->list, list->n, &list->capacity, sizeof *list->list);
    list->list[list->n] = (struct named_part){xstrdup(list->id.data), xstrdup(list->name.data),
                                              xstrdup(list->type.data ? list->type.data : "")};
    list->n++;
}

void part_list_add_order(struct part_list *list) {
    list->order = xgrow(list->order, list->n_order, &list->order_capacity, sizeof *list->order);
    list->order[list->n_order] = xstrdup(list->id.data);
    list->n_order++;
}

const char *part_list_find(const struct part_list *list, const char *id) {
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->list[i].id, id) == 0) return list->list[i].name;
    return NULL;
}

const char *part_list_find_type(const struct part_list *list, const char *end, int *i) {
    while (*i < list->n) {
        const struct named_part *part = &list->list[*i];
        (*i)++;
        if (ends_with(part->type, end)) return part->name;
    }
    return NULL;
}

void part_list_free(struct part_list *list) {
    for (int i = 0; i < list->n; i++) {
        free(list->list[i].id);
        free(list->list[i].name);
        free(list->list[i].type);
    }
    for (int i = 0; i < list->n_order; i++) free(list->order[i]);
    free(list->list);
    free(list->order);
    buffer_free(&list->id);
    buffer_free(&list->name);
    buffer_free(&list->type);
}

static void decode_percents(struct buffer *name) {
    size_t to = 0;
    for (size_t from = 0; from < name->size; from++, to++) {
        unsigned c;
        name->data[to] = name->data[from];
        if (name->data[from] != '%' || name->size - from < 3 ||
            sscanf(name->data + from + 1, "%2x", &c) != 1)
            continue;
        name->data[to] = (char)c;
        from += 2;
    }
    name->size = to;
    buffer_append(name, "", 0);
}

void resolve_name(const char *base, const char *name, struct buffer *out) {
    const char *slash = strrchr(base, '/');
    buffer_clear(out);
    if (slash && name[0] != '/') buffer_append(out, base, (size_t)(slash - base));
    while (*name == '/') name++;
    while (*name && *name != '#') {
        size_t n = strcspn(name, "/#");
        if (n == 2 && memcmp(name, "..", 2) == 0) {
            while (out->size > 0 && out->data[out->size - 1] != '/') out->size--;
            if (out->size > 0) out->size--;
        } else if (n > 0 && !(n == 1 && *name == '.')) {
            if (out->size > 0) buffer_append(out, "/", 1);
            buffer_append(out, name, n);
        }
        name += n;
        while (*name == '/') name++;
    }
    decode_percents(out);
}

static void take_relationship(void *context, const struct xml_event *event) {
    struct part_list *list = context;
    if (!xml_is(event, "Relationship") || event->kind != XML_EVENT_OPEN) return;
    xml_attribute(event, "Type", &list->type);
    if (xml_attribute(event, "Id", &list->id) && xml_attribute(event, "Target", &list->name))
        part_list_add(list);
}

enum status office_read_links(const struct office_parts *parts, const char *part,
                              struct part_list *list, struct error *e) {
    const char *slash = strrchr(part, '/');
    struct buffer name = {0};
    buffer_printf(&name, "%.*s_rels/%s.rels", slash ? (int)(slash - part) + 1 : 0, part,
                  slash ? slash + 1 : part);
    const struct buffer *links = office_find(parts, name.data);
    enum status status =
        links ? xml_read(parts->file->name, office_span(links), take_relationship, list, e)
              : STATUS_OK;
    buffer_free(&name);
    return status;
}

void office_main_part(const struct office_parts *parts, const char *usual, struct buffer *name) {
    struct part_list list = {0};
    struct error unreadable;
    int i = 0;
    const char *target = NULL;
    if (office_read_links(parts, "", &list, &unreadable) == STATUS_OK)
        target = part_list_find_type(&list, "/officeDocument", &i);
    if (target)
        resolve_name("", target, name);
    else
        buffer_append_string(name, usual);
    if (office_find(parts, name->data) == NULL) {
        buffer_clear(name);
        buffer_append_string(name, usual);
    }
    part_list_free(&list);
}
