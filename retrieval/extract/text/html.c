/* retrieval/extract/text/html.c: the only file that includes libxml2. Its HTML parser makes a tree
 * of whatever it is given, without network, external entities or messages; a walk without recursion
 * (pages nest as deep as they like) writes the readable part: no scripts, no menus, no side bars.
 */
#include <libxml/HTMLparser.h>
#include <libxml/parserInternals.h>
#include <string.h>
#include <strings.h>

#include "retrieval/extract/extract_private.h"
#include "retrieval/extract/text/html_tables.h"

enum element_role {
    ROLE_INLINE,
    ROLE_SKIP,  /* with everything in it */
    ROLE_LINE,  /* begins and ends a line */
    ROLE_BLOCK, /* blank lines around it */
    ROLE_PRE,   /* a block whose white space counts */
    ROLE_ITEM,  /* a line that begins with "- " */
    ROLE_CELL,  /* separated from the cell before by a tab */
    ROLE_BREAK  /* a new line, nothing in it */
};

static const struct {
    const char *name;
    enum element_role role;
} elements[] = {
    {"script", ROLE_SKIP},      {"style", ROLE_SKIP},    {"nav", ROLE_SKIP},
    {"header", ROLE_SKIP},      {"footer", ROLE_SKIP},   {"aside", ROLE_SKIP},
    {"form", ROLE_SKIP},        {"template", ROLE_SKIP}, {"head", ROLE_SKIP},
    {"noscript", ROLE_SKIP},    {"iframe", ROLE_SKIP},   {"svg", ROLE_SKIP},
    {"object", ROLE_SKIP},      {"button", ROLE_SKIP},   {"select", ROLE_SKIP},
    {"textarea", ROLE_SKIP},    {"p", ROLE_BLOCK},       {"h1", ROLE_BLOCK},
    {"h2", ROLE_BLOCK},         {"h3", ROLE_BLOCK},      {"h4", ROLE_BLOCK},
    {"h5", ROLE_BLOCK},         {"h6", ROLE_BLOCK},      {"ul", ROLE_BLOCK},
    {"ol", ROLE_BLOCK},         {"dl", ROLE_BLOCK},      {"table", ROLE_BLOCK},
    {"blockquote", ROLE_BLOCK}, {"section", ROLE_BLOCK}, {"article", ROLE_BLOCK},
    {"main", ROLE_BLOCK},       {"figure", ROLE_BLOCK},  {"hr", ROLE_BLOCK},
    {"details", ROLE_BLOCK},    {"pre", ROLE_PRE},       {"li", ROLE_ITEM},
    {"td", ROLE_CELL},          {"th", ROLE_CELL},       {"br", ROLE_BREAK},
    {"div", ROLE_LINE},         {"tr", ROLE_LINE},       {"dt", ROLE_LINE},
    {"dd", ROLE_LINE},          {"caption", ROLE_LINE},  {"address", ROLE_LINE},
    {"figcaption", ROLE_LINE},  {"summary", ROLE_LINE},  {"center", ROLE_LINE},
};

struct html_writer {
    struct buffer *out;
    struct buffer *marks;           /* NULL: none are made */
    struct document_text *document; /* of both, for tables; NULL: they are text */
    int newlines;                   /* owed before the next text */
    bool space;                     /* owed too, when no newline is */
    bool tab, item;
    bool fresh_cell; /* nothing written in this cell yet: what it, or an item, begins with does not
                        break the line */
    bool row_started;
    int pre;                /* depth of <pre> */
    bool pre_opened;        /* the newline right after <pre> does not count */
    const xmlNode *heading; /* the outermost that is open */
    size_t heading_start;   /* SIZE_MAX: nothing of it is written yet */
};

static enum element_role role_of(const xmlNode *node) {
    for (size_t i = 0; i < ARRAY_COUNT(elements); i++)
        if (strcmp((const char *)node->name, elements[i].name) == 0) return elements[i].role;
    return ROLE_INLINE;
}

/* The text of an attribute, which the parser keeps as the first child: "" when it has none, NULL
 * without one. */
static const char *attribute(const xmlNode *node, const char *name) {
    for (const xmlAttr *a = node->properties; a; a = a->next)
        if (strcmp((const char *)a->name, name) == 0)
            return a->children && a->children->content ? (const char *)a->children->content : "";
    return NULL;
}

/* One word of a class or id, of those that menus and side bars are called. Short names count only
 * as whole words: "protocol" is no "toc". */
static bool is_furniture_word(const char *word, size_t size) {
    static const char *const whole[] = {"nav",        "toc",       "footer",
                                        "headerlink", "navheader", "navfooter"};
    static const char *const inside[] = {"sidebar", "breadcrumb", "navbar", "navigation",
                                         "toctree"};
    char lower[64];
    if (size >= sizeof lower) return false;
    for (size_t i = 0; i < size; i++)
        lower[i] = word[i] >= 'A' && word[i] <= 'Z' ? (char)(word[i] + 32) : word[i];
    lower[size] = '\0';
    for (size_t i = 0; i < ARRAY_COUNT(whole); i++)
        if (strcmp(lower, whole[i]) == 0) return true;
    for (size_t i = 0; i < ARRAY_COUNT(inside); i++)
        if (strstr(lower, inside[i])) return true;
    return false;
}

static bool has_furniture_word(const char *names) {
    while (names && *names) {
        size_t size = strcspn(names, " \t\r\n-_");
        if (is_furniture_word(names, size)) return true;
        names += size + (names[size] != '\0');
    }
    return false;
}

/* The node after `node` in document order within root, not entering it when `enter` is false. */
static xmlNode *next_node(xmlNode *node, const xmlNode *root, bool enter) {
    if (enter && node->children) return node->children;
    while (node != root && node->next == NULL) node = node->parent;
    return node == root ? NULL : node->next;
}

static bool is_element(const xmlNode *node, const char *name) {
    return node->type == XML_ELEMENT_NODE && strcmp((const char *)node->name, name) == 0;
}

/* A wrapper of the whole page may be called "with-sidebar": what holds the page's heading is no
 * furniture. Only the beginning is looked at, which bounds the work on nested wrappers. */
static bool holds_page(xmlNode *container) {
    int seen = 0;
    for (xmlNode *n = container; n && seen < 1000; n = next_node(n, container, true), seen++)
        if (is_element(n, "h1") || is_element(n, "main")) return true;
    return false;
}

/* Texinfo's line of links to the next, previous and upper page is a plain <div class="header">. */
static bool is_link_line(xmlNode *node) {
    const char *class = attribute(node, "class");
    if (!is_element(node, "div") || class == NULL || strcmp(class, "header") != 0) return false;
    for (xmlNode *n = node; n; n = next_node(n, node, true))
        if (is_element(n, "a")) return attribute(n, "rel") != NULL;
    return false;
}

/* style="display: none" */
static bool has_no_display(const xmlNode *node) {
    const char *style = attribute(node, "style");
    const char *display = style ? strcasestr(style, "display") : NULL;
    if (display == NULL) return false;
    display += strlen("display");
    display += strspn(display, " \t\r\n:");
    return strncasecmp(display, "none", 4) == 0;
}

static bool is_furniture(xmlNode *node) {
    const char *role = attribute(node, "role"), *hidden = attribute(node, "aria-hidden");
    if (is_element(node, "body") || is_element(node, "main") || is_element(node, "article"))
        return false;
    if (role && (strcmp(role, "navigation") == 0 || strcmp(role, "search") == 0 ||
                 strcmp(role, "contentinfo") == 0))
        return true;
    if (attribute(node, "hidden") || is_link_line(node) || has_no_display(node)) return true;
    if (hidden && strcmp(hidden, "true") == 0) return true;
    return (has_furniture_word(attribute(node, "class")) ||
            has_furniture_word(attribute(node, "id"))) &&
           !holds_page(node);
}

static void owe_newlines(struct html_writer *writer, int n) {
    if (!writer->fresh_cell && !writer->item) writer->newlines = max_int(writer->newlines, n);
    writer->space = false;
}

/* Writes what is owed before a visible character. */
static void settle(struct html_writer *writer) {
    if (writer->out->size > 0) {
        for (int i = 0; i < writer->newlines; i++) buffer_append(writer->out, "\n", 1);
        if (writer->newlines == 0 && writer->tab)
            buffer_append(writer->out, "\t", 1);
        else if (writer->newlines == 0 && writer->space)
            buffer_append(writer->out, " ", 1);
    }
    if (writer->item) buffer_append(writer->out, "- ", 2);
    writer->newlines = 0;
    writer->space = writer->tab = writer->item = writer->fresh_cell = writer->pre_opened = false;
    if (writer->heading && writer->heading_start == SIZE_MAX)
        writer->heading_start = writer->out->size;
}

/* 1 .. 6 for <h1> .. <h6>, else 0. */
static int heading_level(const xmlNode *node) {
    const char *name = (const char *)node->name;
    return name[0] == 'h' && name[1] >= '1' && name[1] <= '6' && name[2] == '\0' ? name[1] - '0'
                                                                                 : 0;
}

static void open_heading(struct html_writer *writer, const xmlNode *node) {
    if (writer->marks == NULL || writer->heading || heading_level(node) == 0) return;
    writer->heading = node;
    writer->heading_start = SIZE_MAX;
}

static void close_heading(struct html_writer *writer, const xmlNode *node) {
    if (writer->heading != node) return;
    if (writer->heading_start != SIZE_MAX)
        marks_add(writer->marks, MARK_HEADING, heading_level(node), writer->heading_start,
                  writer->out->size - writer->heading_start);
    writer->heading = NULL;
}

static void write_pre(struct html_writer *writer, const char *s) {
    while (*s) {
        size_t size = strcspn(s, "\r\n");
        if (size > 0) {
            settle(writer);
            buffer_append(writer->out, s, size);
            s += size;
        } else {
            if (*s == '\n' && !writer->pre_opened) writer->newlines++;
            if (*s == '\n') writer->pre_opened = false;
            s++;
        }
    }
}

/* Runs of white space, no-break spaces among them, become one space; soft hyphens vanish. */
static void write_text(struct html_writer *writer, const char *s) {
    while (*s) {
        bool nbsp = s[0] == '\xc2' && s[1] == '\xa0', soft = s[0] == '\xc2' && s[1] == '\xad';
        if (strchr(" \t\r\n\f\v", *s) || nbsp) {
            writer->space = true;
            s += nbsp ? 2 : 1;
        } else if (soft) {
            s += 2;
        } else {
            size_t size = strcspn(s, " \t\r\n\f\v\xc2");
            if (size == 0) size = 2; /* another character of lead byte C2, which has two bytes */
            settle(writer);
            buffer_append(writer->out, s, size);
            s += size;
        }
    }
}

static void open_element(struct html_writer *writer, const xmlNode *node, enum element_role role) {
    switch (role) {
        case ROLE_LINE:
        case ROLE_BREAK: owe_newlines(writer, 1); break;
        case ROLE_BLOCK: owe_newlines(writer, 2); break;
        case ROLE_PRE:
            owe_newlines(writer, 2);
            writer->pre++;
            writer->pre_opened = true;
            break;
        case ROLE_ITEM:
            owe_newlines(writer, 1);
            writer->item = true;
            break;
        case ROLE_CELL:
            writer->tab = writer->row_started;
            if (writer->row_started) writer->newlines = 0;
            writer->fresh_cell = writer->row_started = true;
            break;
        case ROLE_INLINE:
        case ROLE_SKIP: break;
    }
    if (is_element(node, "tr")) writer->row_started = false;
    open_heading(writer, node);
}

static void close_element(struct html_writer *writer, const xmlNode *node) {
    enum element_role role = role_of(node);
    close_heading(writer, node);
    if (role == ROLE_PRE) {
        writer->pre--;
        writer->newlines = 0;
    }
    if (role == ROLE_BLOCK || role == ROLE_PRE) owe_newlines(writer, 2);
    if (role == ROLE_ITEM) writer->item = false;
    if (role == ROLE_LINE || role == ROLE_ITEM) {
        writer->fresh_cell = writer->tab = false;
        owe_newlines(writer, 1);
    }
    if (role == ROLE_CELL) writer->fresh_cell = false;
}

static void walk(struct html_writer *writer, xmlNode *root);

/* A part by itself: a cell or a caption. Tables within it are text of it. */
static void write_part(xmlNode *node, struct buffer *text) {
    struct html_writer writer = {.out = text};
    walk(&writer, node);
}

/* A table that holds data, with a blank line around it. False: it lays out the page. */
static bool write_table(struct html_writer *writer, xmlNode *node) {
    if (writer->document == NULL || writer->heading || writer->pre > 0 ||
        !is_element(node, "table") || !html_is_table(node))
        return false;
    if (writer->out->size > 0) buffer_append(writer->out, "\n\n", 2);
    html_write_table(node, write_part, writer->document);
    /* The rows end with a newline. */
    while (writer->out->size > 0 && writer->out->data[writer->out->size - 1] == '\n')
        writer->out->size--;
    writer->newlines = 2;
    writer->space = writer->tab = writer->item = writer->fresh_cell = false;
    return true;
}

/* Writes the subtree. Elements are closed on the way up, as next_node does not say what it leaves.
 */
static void walk(struct html_writer *writer, xmlNode *root) {
    xmlNode *node = root;
    while (node) {
        bool enter = false;
        if (node->type == XML_TEXT_NODE && node->content) {
            if (writer->pre)
                write_pre(writer, (const char *)node->content);
            else
                write_text(writer, (const char *)node->content);
        } else if (node->type == XML_ELEMENT_NODE && role_of(node) != ROLE_SKIP &&
                   (node == root || !is_furniture(node)) && !write_table(writer, node)) {
            open_element(writer, node, role_of(node));
            if (node->children == NULL) close_element(writer, node);
            enter = node->children != NULL;
        }
        if (enter) {
            node = node->children;
            continue;
        }
        while (node != root && node->next == NULL) {
            node = node->parent;
            close_element(writer, node);
        }
        node = node == root ? NULL : node->next;
    }
}

/* <main> or role=main, else the page's only <article>, else <body>. */
static xmlNode *find_content(xmlNode *root) {
    xmlNode *article = NULL, *body = NULL;
    int articles = 0;
    for (xmlNode *n = root; n; n = next_node(n, root, true)) {
        if (n->type != XML_ELEMENT_NODE) continue;
        const char *role = attribute(n, "role");
        if (is_element(n, "main") || (role && strcmp(role, "main") == 0)) return n;
        if (is_element(n, "article")) {
            article = n;
            articles++;
        }
        if (is_element(n, "body") && body == NULL) body = n;
    }
    return articles == 1 ? article : body ? body : root;
}

static void write_title(xmlNode *root, struct buffer *title) {
    struct html_writer writer = {.out = title};
    for (xmlNode *n = root; n; n = next_node(n, root, true))
        if (is_element(n, "title")) {
            for (xmlNode *t = n->children; t; t = t->next)
                if (t->type == XML_TEXT_NODE && t->content)
                    write_text(&writer, (const char *)t->content);
            return;
        }
}

enum status extract_html(const char *path, struct text_span html, bool is_utf8,
                         struct document_text *out, struct error *e) {
    const int options =
        HTML_PARSE_RECOVER | HTML_PARSE_NOERROR | HTML_PARSE_NOWARNING | HTML_PARSE_NONET;
    if (html.size > INT32_MAX)
        return error_set(e, STATUS_TOO_LARGE, "%s: %zu bytes of HTML, at most 2 GiB", path,
                         html.size);
    htmlParserCtxtPtr parser = htmlNewParserCtxt();
    if (parser == NULL) return error_set(e, STATUS_NO_MEMORY, "%s: HTML parser", path);
    htmlDocPtr doc = htmlCtxtReadMemory(parser, html.text, (int)html.size, NULL,
                                        is_utf8 ? "UTF-8" : NULL, options);
    xmlNode *root = doc ? xmlDocGetRootElement(doc) : NULL;
    enum status status = STATUS_OK;
    /* libxml2 says the same of a memory that is out and of a text that is too long for it. */
    if (parser->errNo == XML_ERR_NO_MEMORY)
        status = error_set(e, STATUS_TOO_LARGE,
                           "%s: it needs more memory than there is, or has over 10 MB of text "
                           "without a tag; split it into smaller files",
                           path);
    else if (root == NULL)
        status = error_set(e, STATUS_INVALID, "%s: no element in it; it is not HTML", path);
    else if (parser->disableSAX)
        /* The parser stopped early and would silently give half a page. */
        status = error_set(e, STATUS_INVALID,
                           "%s: the HTML parser gave up: elements nest deeper than %u", path,
                           xmlParserMaxDepth);
    if (status == STATUS_OK) {
        struct html_writer writer = {.out = &out->text, .marks = &out->marks, .document = out};
        write_title(root, &out->title);
        walk(&writer, find_content(root));
        if (out->text.size > 0) buffer_append(&out->text, "\n", 1);
    }
    xmlFreeDoc(doc);
    htmlFreeParserCtxt(parser);
    return status;
}

enum status extract_html_file(const struct extract_file *file, struct document_text *out,
                              struct error *e) {
    struct text_reading reading;
    struct buffer html = {0};
    enum status status = extract_read_text(file, &html, &reading, e);
    if (status == STATUS_OK) {
        /* A page in another encoding says so; one that is UTF-8 apart from a few bytes is UTF-8,
         * whatever it says. */
        bool is_utf8 = text_is_utf8(&reading);
        if (is_utf8 && reading.damaged > 0) {
            extract_repair(&html);
            reading.note = NOTE_REPAIRED;
        }
        out->note = extract_notes[reading.note];
        extract_drop_bom(&html);
        status =
            extract_html(file->name, (struct text_span){html.data, html.size}, is_utf8, out, e);
    }
    buffer_free(&html);
    return status;
}

/* The handler of the encoding stays open, and so does the table that it was loaded from. */
void extract_html_prepare(const struct extract_file *file) {
    struct text_span html = file->bytes;
    static const char attribute_name[] = "charset=";
    size_t n = html.size < 4096 ? html.size : 4096;
    char name[64];
    for (size_t at = 0; at + sizeof attribute_name < n; at++) {
        if (strncasecmp(html.text + at, attribute_name, sizeof attribute_name - 1) != 0) continue;
        size_t start = at + sizeof attribute_name - 1, size = 0;
        while (start < n && strchr("\"' ", html.text[start]) && html.text[start]) start++;
        while (start + size < n && size < sizeof name - 1 && html.text[start + size] &&
               !strchr("\"' ;/>", html.text[start + size]))
            size++;
        memcpy(name, html.text + start, size);
        name[size] = '\0';
        if (size > 0) xmlFindCharEncodingHandler(name);
    }
    xmlFindCharEncodingHandler("windows-1252");
}
