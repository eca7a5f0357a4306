/* retrieval/extract/pdf/pdf_structure.c: see pdf_structure.h. Poppler hands out no places of tags,
 * and reads a whole page for the text of each, so headings alone are asked for theirs, page by
 * page, and for a part of a second. */
#include "retrieval/extract/pdf/pdf_structure.h"

#include <dlfcn.h>
#include <math.h>
#include <poppler.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config/base/text.h"
#include "config/base/utf8.h"

#define FUNCTIONS(X) \
    X(poppler_structure_element_iter_new) \
    X(poppler_structure_element_iter_get_element) \
    X(poppler_structure_element_iter_get_child) \
    X(poppler_structure_element_iter_next) \
    X(poppler_structure_element_iter_free) \
    X(poppler_structure_element_get_kind) \
    X(poppler_structure_element_get_page) \
    X(poppler_structure_element_get_text) \
    X(poppler_structure_element_get_alt_text) \
    X(g_object_unref) \
    X(g_free)

#define AS_FIELD(name) __typeof__(&name) name;
static struct {
    bool open;
    FUNCTIONS(AS_FIELD)
} tags;

enum { MOST_ELEMENTS = 100000, MOST_DEPTH = 64, MOST_TEXT = 2000, MOST_LEVEL = 6 };
/* Seconds of the processor for the texts of one page, and of all pages that a process reads: words
 * need the rest of a file's time. */
static const double PAGE_SECONDS = 0.25, ALL_SECONDS = 4;

void pdf_structure_prepare(void *library) {
#define FIND(name) \
    *(void **)&tags.name = dlsym(library, #name); \
    if (tags.name == NULL) return;
    FUNCTIONS(FIND)
    tags.open = true;
}

/* A heading or a picture. */
struct pdf_tag {
    int page;  /* from 0 */
    int level; /* 0: a picture */
    PopplerStructureElement *element;
};

struct pdf_structure {
    struct pdf_tag *list; /* [n] in the order of the tree */
    int n, capacity;
    int n_seen;  /* elements */
    double left; /* of ALL_SECONDS */
};

/* The level of a heading by its tag, or by how deep its section lies; 0: a picture; -1: neither. */
static int level_of(PopplerStructureElementKind kind, int sections) {
    switch (kind) {
        case POPPLER_STRUCTURE_ELEMENT_HEADING: return min_int(max_int(sections, 1), MOST_LEVEL);
        case POPPLER_STRUCTURE_ELEMENT_HEADING_1: return 1;
        case POPPLER_STRUCTURE_ELEMENT_HEADING_2: return 2;
        case POPPLER_STRUCTURE_ELEMENT_HEADING_3: return 3;
        case POPPLER_STRUCTURE_ELEMENT_HEADING_4: return 4;
        case POPPLER_STRUCTURE_ELEMENT_HEADING_5: return 5;
        case POPPLER_STRUCTURE_ELEMENT_HEADING_6: return 6;
        case POPPLER_STRUCTURE_ELEMENT_FIGURE:
        case POPPLER_STRUCTURE_ELEMENT_FORMULA: return 0;
        default: return -1;
    }
}

/* The page of an element, which may be said of its first part alone; -1: it is not said. */
static int page_of(PopplerStructureElementIter *at, int depth) {
    PopplerStructureElement *element = tags.poppler_structure_element_iter_get_element(at);
    int page = element ? tags.poppler_structure_element_get_page(element) : -1;
    if (element) tags.g_object_unref(element);
    if (page >= 0 || depth == MOST_DEPTH) return page;
    PopplerStructureElementIter *child = tags.poppler_structure_element_iter_get_child(at);
    if (child == NULL) return -1;
    page = page_of(child, depth + 1);
    tags.poppler_structure_element_iter_free(child);
    return page;
}

static void add_tag(struct pdf_structure *structure, PopplerStructureElement *element, int page,
                    int level) {
    structure->list =
        xgrow(structure->list, structure->n, &structure->capacity, sizeof *structure->list);
    structure->list[structure->n] = (struct pdf_tag){page, level, element};
    structure->n++;
}

static void walk_level(struct pdf_structure *structure, PopplerStructureElementIter *at, int depth,
                       int sections) {
    do {
        PopplerStructureElement *element = tags.poppler_structure_element_iter_get_element(at);
        structure->n_seen++;
        if (element == NULL) continue;
        PopplerStructureElementKind kind = tags.poppler_structure_element_get_kind(element);
        int level = level_of(kind, sections), page = level >= 0 ? page_of(at, 0) : -1;
        int within = sections + (kind == POPPLER_STRUCTURE_ELEMENT_SECTION);
        if (page >= 0)
            add_tag(structure, element, page, level);
        else
            tags.g_object_unref(element);
        PopplerStructureElementIter *child = level < 0 && depth < MOST_DEPTH
                                                 ? tags.poppler_structure_element_iter_get_child(at)
                                                 : NULL;
        if (child == NULL) continue;
        walk_level(structure, child, depth + 1, within);
        tags.poppler_structure_element_iter_free(child);
    } while (structure->n_seen < MOST_ELEMENTS && tags.poppler_structure_element_iter_next(at));
}

struct pdf_structure *pdf_structure_open(const struct pdf *pdf) {
    PopplerStructureElementIter *root =
        tags.open ? tags.poppler_structure_element_iter_new(pdf_document(pdf)) : NULL;
    if (root == NULL) return NULL;
    struct pdf_structure *structure = xcalloc(1, sizeof *structure);
    structure->left = ALL_SECONDS;
    walk_level(structure, root, 0, 0);
    tags.poppler_structure_element_iter_free(root);
    return structure;
}

static double read_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* On one line. False: it says nothing, or is none. */
static bool make_line(char *text) {
    size_t size = text ? strlen(text) : 0, blanks = 0;
    if (size == 0 || size > MOST_TEXT || !utf8_is_valid(text, size)) return false;
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f) text[i] = ' ';
        blanks += is_blank(text[i]);
    }
    return blanks < size;
}

void pdf_structure_walk(struct pdf_structure *structure, int i, pdf_tag_taker *take,
                        void *context) {
    double began = read_clock(), until = began + fmin(PAGE_SECONDS, structure->left);
    for (int j = 0; j < structure->n; j++) {
        const struct pdf_tag *tag = &structure->list[j];
        if (tag->page != i) continue;
        if (tag->level > 0 && read_clock() > until) continue;
        char *text = tag->level > 0 ? tags.poppler_structure_element_get_text(
                                          tag->element, POPPLER_STRUCTURE_GET_TEXT_RECURSIVE)
                                    : tags.poppler_structure_element_get_alt_text(tag->element);
        if (make_line(text))
            take(context, (struct text_span){text, strlen(text)}, i + 1, tag->level);
        tags.g_free(text);
    }
    structure->left -= read_clock() - began;
}
