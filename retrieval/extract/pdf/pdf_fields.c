/* retrieval/extract/pdf/pdf_fields.c: see pdf_fields.h. Fields of forms know their values, and the
 * notes by which they are drawn know where a turned page shows them: both have one rectangle. */
#include "retrieval/extract/pdf/pdf_fields.h"

#include <dlfcn.h>
#include <math.h>
#include <poppler.h>
#include <string.h>

#include "config/base/text.h"
#include "config/base/utf8.h"

#define FUNCTIONS(X) \
    X(poppler_page_get_annot_mapping) \
    X(poppler_page_free_annot_mapping) \
    X(poppler_annot_get_annot_type) \
    X(poppler_annot_get_flags) \
    X(poppler_annot_get_contents) \
    X(poppler_annot_get_rectangle) \
    X(poppler_page_get_form_field_mapping) \
    X(poppler_page_free_form_field_mapping) \
    X(poppler_form_field_get_field_type) \
    X(poppler_form_field_text_get_text) \
    X(poppler_form_field_text_is_password) \
    X(poppler_form_field_button_get_button_type) \
    X(poppler_form_field_button_get_state) \
    X(poppler_form_field_choice_get_n_items) \
    X(poppler_form_field_choice_is_item_selected) \
    X(poppler_form_field_choice_get_item) \
    X(poppler_form_field_choice_get_text) \
    X(g_free)

#define AS_FIELD(name) __typeof__(&name) name;
static struct {
    bool open;
    FUNCTIONS(AS_FIELD)
} forms;

enum { MOST_FIELDS = 2000, MOST_ITEMS = 10000 }; /* on a page, of a list to choose from */

void pdf_fields_prepare(void *library) {
#define FIND(name) \
    *(void **)&forms.name = dlsym(library, #name); \
    if (forms.name == NULL) return;
    FUNCTIONS(FIND)
    forms.open = true;
}

void pdf_fields_free(struct pdf_fields *fields) {
    buffer_free(&fields->list);
    buffer_free(&fields->text);
}

/* Values. */

/* Appends a text of the library's, which is freed. */
static void take_text(char *text, struct buffer *value) {
    size_t size = text ? strlen(text) : 0;
    if (size > 0 && utf8_is_valid(text, size)) {
        if (value->size > 0) buffer_append_string(value, ", ");
        buffer_append(value, text, size);
    }
    forms.g_free(text);
}

/* The items that are chosen, or what was typed in place of one. */
static void read_choice(PopplerFormField *field, struct buffer *value) {
    int n = min_int(forms.poppler_form_field_choice_get_n_items(field), MOST_ITEMS);
    for (int i = 0; i < n; i++)
        if (forms.poppler_form_field_choice_is_item_selected(field, i))
            take_text(forms.poppler_form_field_choice_get_item(field, i), value);
    if (value->size == 0) take_text(forms.poppler_form_field_choice_get_text(field), value);
}

static void read_button(PopplerFormField *field, struct buffer *value) {
    bool pushed =
        forms.poppler_form_field_button_get_button_type(field) == POPPLER_FORM_BUTTON_PUSH;
    if (!pushed && forms.poppler_form_field_button_get_state(field))
        buffer_append_string(value, "[x]");
}

static void read_value(PopplerFormField *field, struct buffer *value) {
    switch (forms.poppler_form_field_get_field_type(field)) {
        case POPPLER_FORM_FIELD_TEXT:
            if (!forms.poppler_form_field_text_is_password(field))
                take_text(forms.poppler_form_field_text_get_text(field), value);
            break;
        case POPPLER_FORM_FIELD_CHOICE: read_choice(field, value); break;
        case POPPLER_FORM_FIELD_BUTTON: read_button(field, value); break;
        default: break;
    }
}

/* Fields that are shown. */

static bool is_same(const PopplerRectangle *a, const PopplerRectangle *b) {
    static const double NEAR = 0.01; /* points */
    return fabs(a->x1 - b->x1) < NEAR && fabs(a->y1 - b->y1) < NEAR && fabs(a->x2 - b->x2) < NEAR &&
           fabs(a->y2 - b->y2) < NEAR;
}

/* The value of the field that the note draws. */
static void read_widget(PopplerAnnot *note, const GList *widgets, struct buffer *value) {
    PopplerRectangle box;
    int n = 0;
    forms.poppler_annot_get_rectangle(note, &box);
    for (const GList *at = widgets; at && n < MOST_FIELDS; at = at->next) {
        const PopplerFormFieldMapping *mapping = at->data;
        n++;
        if (!is_same(&mapping->area, &box)) continue;
        read_value(mapping->field, value);
        return;
    }
}

static void add_field(struct pdf_fields *fields, const PopplerRectangle *area, float height,
                      const struct buffer *value) {
    struct pdf_field field = {
        .area = {(float)fmin(area->x1, area->x2), height - (float)fmax(area->y1, area->y2),
                 (float)fmax(area->x1, area->x2), height - (float)fmin(area->y1, area->y2)},
        .text = (uint32_t)fields->text.size,
        .size = (uint32_t)value->size};
    if (value->size == 0) return;
    buffer_append(&fields->text, value->data, value->size);
    buffer_append(&fields->list, &field, sizeof field);
}

void pdf_fields_read(const struct pdf_page *page, struct pdf_fields *fields) {
    enum { HIDDEN = POPPLER_ANNOT_FLAG_HIDDEN | POPPLER_ANNOT_FLAG_NO_VIEW };
    struct buffer value = {0};
    PopplerPage *handle = pdf_page_handle(page);
    float width, height;
    int n = 0;
    buffer_clear(&fields->list);
    buffer_clear(&fields->text);
    GList *notes = forms.open ? forms.poppler_page_get_annot_mapping(handle) : NULL;
    if (notes == NULL) return;
    GList *widgets = forms.poppler_page_get_form_field_mapping(handle);
    pdf_page_size(page, &width, &height);
    for (const GList *at = notes; at && n < MOST_FIELDS; at = at->next) {
        const PopplerAnnotMapping *mapping = at->data;
        PopplerAnnotType type = forms.poppler_annot_get_annot_type(mapping->annot);
        n++;
        if (forms.poppler_annot_get_flags(mapping->annot) & HIDDEN) continue;
        buffer_clear(&value);
        if (type == POPPLER_ANNOT_WIDGET)
            read_widget(mapping->annot, widgets, &value);
        else if (type == POPPLER_ANNOT_FREE_TEXT)
            take_text(forms.poppler_annot_get_contents(mapping->annot), &value);
        add_field(fields, &mapping->area, height, &value);
    }
    forms.poppler_page_free_form_field_mapping(widgets);
    forms.poppler_page_free_annot_mapping(notes);
    buffer_free(&value);
}

/* The picture. */

static int pixel_of(float points, float per_point, int most) {
    float at = points * per_point;
    if (!(at > 0)) return 0;
    return at < (float)most ? (int)at : most;
}

/* The frame of a field stays: it is a rule. */
static void clear_area(const struct page_rect *area, struct pdf_pixels *pixels) {
    enum { FRAME = 2 }; /* pixels */
    int left = pixel_of(area->left, pixels->per_point, pixels->width) + FRAME,
        right = pixel_of(area->right, pixels->per_point, pixels->width) - FRAME,
        top = pixel_of(area->top, pixels->per_point, pixels->height) + FRAME,
        bottom = pixel_of(area->bottom, pixels->per_point, pixels->height) - FRAME;
    if (right <= left) return;
    for (int y = top; y < bottom; y++) {
        uint8_t *row = pixels->grey + (size_t)y * (size_t)pixels->width;
        memset(row + left, row[left], (size_t)(right - left));
    }
}

void pdf_fields_clear_ink(const struct pdf_fields *fields, struct pdf_pixels *pixels) {
    const struct pdf_field *list = (const void *)fields->list.data;
    for (size_t i = 0; i < fields->list.size / sizeof *list; i++) clear_area(&list[i].area, pixels);
}

/* Words. */

static const float LETTER_WIDTH = 0.5F, LEADING = 1.2F; /* parts of the type's size */

struct field_writer {
    struct page *page;
    struct page_rect line; /* the one that is written */
    float size, across;    /* of the type, of a letter */
};

static int count_letters(struct text_span text) { return (int)utf8_count(text.text, text.size); }

static void write_word(struct field_writer *writer, struct text_span word, int column) {
    float left = writer->line.left + writer->across * (float)column;
    struct page_word made = {
        .box = {left, writer->line.top, left + writer->across * (float)count_letters(word),
                writer->line.bottom},
        .font_size = writer->size,
        .confidence = 100};
    page_add_word(writer->page, word, &made);
}

static void write_line(struct field_writer *writer, struct text_span line) {
    int column = 0;
    for (size_t at = 0; at < line.size;) {
        size_t end = at;
        while (end < line.size && !is_blank(line.text[end])) end++;
        struct text_span word = {line.text + at, end - at};
        if (word.size > 0) write_word(writer, word, column);
        column += count_letters(word) + 1;
        at = end + 1;
    }
}

/* The bytes of the next line: up to its end, or the last blank that leaves it narrow enough. */
static size_t measure_line(struct text_span text, int most_letters) {
    size_t end = 0, blank = 0;
    int n = 0;
    while (end < text.size && text.text[end] != '\n' && text.text[end] != '\r') {
        if (is_blank(text.text[end])) blank = end;
        n += utf8_begins(text.text[end]);
        if (n > most_letters && blank > 0) return blank;
        end++;
    }
    return end;
}

static int count_lines(struct text_span text, int most_letters) {
    int n = 0;
    for (size_t at = 0; at < text.size; n++) {
        size_t size =
            measure_line((struct text_span){text.text + at, text.size - at}, most_letters);
        at += size + 1;
    }
    return n;
}

static void write_field(const struct page_rect *area, struct text_span text, struct page *page) {
    static const float LEAST = 4, MOST = 11; /* points */
    float height = rect_height(area), width = rect_width(area);
    float size = fminf(fmaxf(0.7F * height, LEAST), MOST);
    int most_letters = (int)fminf(fmaxf(width / (LETTER_WIDTH * size), 1), 10000);
    bool one = memchr(text.text, '\n', text.size) == NULL &&
               memchr(text.text, '\r', text.size) == NULL && height < 2 * LEADING * size;
    if (one) most_letters = max_int(most_letters, count_letters(text));
    int n = count_lines(text, most_letters);
    float leading = fminf(LEADING * size, height / (float)max_int(n, 1)),
          above = one ? (height - leading) / 2 : 0;
    struct field_writer writer = {
        .page = page, .size = fminf(size, leading), .across = width / (float)(most_letters + 1)};
    writer.across = fminf(writer.across, LETTER_WIDTH * size);
    writer.line =
        (struct page_rect){area->left, area->top + above, area->right, area->top + above + leading};
    for (size_t at = 0; at < text.size;) {
        struct text_span rest = {text.text + at, text.size - at};
        rest.size = measure_line(rest, most_letters);
        write_line(&writer, rest);
        at += rest.size + 1;
        writer.line.top += leading;
        writer.line.bottom += leading;
    }
}

void pdf_fields_add_words(const struct pdf_fields *fields, struct page *page) {
    const struct pdf_field *list = (const void *)fields->list.data;
    for (size_t i = 0; i < fields->list.size / sizeof *list; i++) {
        struct text_span text = {fields->text.data + list[i].text, list[i].size};
        if (rect_width(&list[i].area) > 1 && rect_height(&list[i].area) > 1)
            write_field(&list[i].area, text, page);
    }
}
