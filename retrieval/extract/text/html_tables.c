/* retrieval/extract/text/html_tables.c: see html_tables.h. */
#include "retrieval/extract/text/html_tables.h"

#include <stdlib.h>
#include <string.h>

#include "retrieval/extract/page/table_grid.h"

/* Text of a longer cell is prose that a table lays out. */
enum { LONG_CELL = 400 };

static bool is(const xmlNode *node, const char *name) {
    return node->type == XML_ELEMENT_NODE && strcmp((const char *)node->name, name) == 0;
}

static bool is_cell(const xmlNode *node) { return is(node, "td") || is(node, "th"); }

static const char *attribute_of(const xmlNode *node, const char *name) {
    for (const xmlAttr *a = node->properties; a; a = a->next)
        if (strcmp((const char *)a->name, name) == 0)
            return a->children && a->children->content ? (const char *)a->children->content : "";
    return NULL;
}

/* The node behind one in document order, within root. */
static xmlNode *next_of(xmlNode *node, const xmlNode *root, bool enter) {
    if (enter && node->children) return node->children;
    while (node != root && node->next == NULL) node = node->parent;
    return node == root ? NULL : node->next;
}

struct table_facts {
    size_t rows, cells, longest, cell_text;
    bool has_heads, has_inner;
};

static void note_node(struct table_facts *facts, const xmlNode *node, const xmlNode *root) {
    if (node != root && is(node, "table")) facts->has_inner = true;
    facts->has_heads =
        facts->has_heads || is(node, "th") || is(node, "caption") || is(node, "thead");
    facts->rows += is(node, "tr");
    if (is_cell(node)) {
        facts->cells++;
        facts->cell_text = 0;
    }
    if (node->type != XML_TEXT_NODE || node->content == NULL) return;
    facts->cell_text += strlen((const char *)node->content);
    if (facts->cell_text > facts->longest) facts->longest = facts->cell_text;
}

bool html_is_table(xmlNode *table) {
    struct table_facts facts = {0};
    const char *role = attribute_of(table, "role");
    if (role && (strcmp(role, "presentation") == 0 || strcmp(role, "none") == 0)) return false;
    for (xmlNode *node = table; node; node = next_of(node, table, true))
        note_node(&facts, node, table);
    if (facts.has_heads) return true;
    return facts.rows > 1 && facts.cells >= 2 * facts.rows && !facts.has_inner &&
           facts.longest <= LONG_CELL;
}

static uint32_t read_span(const xmlNode *cell, const char *name) {
    const char *value = attribute_of(cell, name);
    long n = value ? strtol(value, NULL, 10) : 1;
    return n < 1 ? 1 : n > GRID_MOST_ROWS ? GRID_MOST_ROWS : (uint32_t)n;
}

static bool is_in(const xmlNode *node, const char *name) {
    return node->parent && is(node->parent, name);
}

/* Names of rows are th, too; those over columns stand in thead, or in rows of nothing else. */
static bool row_is_head(const xmlNode *row) {
    if (is_in(row, "thead")) return true;
    if (is_in(row, "tbody") && row->prev && is_in(row, "tfoot")) return false;
    int heads = 0;
    for (const xmlNode *node = row->children; node; node = node->next) {
        const char *scope = attribute_of(node, "scope");
        if (is(node, "td")) return false;
        if (is(node, "th") && scope && strncmp(scope, "row", 3) == 0) return false;
        heads += is(node, "th");
    }
    return heads > 0;
}

static void add_row(struct table_grid *grid, const xmlNode *row, html_cell_writer *write_cell) {
    struct buffer text = {0};
    bool head = row_is_head(row);
    grid_open_row(grid);
    for (xmlNode *node = row->children; node; node = node->next) {
        if (node->type != XML_ELEMENT_NODE || !is_cell(node)) continue;
        buffer_clear(&text);
        write_cell(node, &text);
        grid_add_cell(grid, &(struct grid_cell){.text = {text.data, text.size},
                                                .rows = read_span(node, "rowspan"),
                                                .columns = read_span(node, "colspan"),
                                                .head = head});
    }
    grid_close_row(grid);
    buffer_free(&text);
}

void html_write_table(xmlNode *table, html_cell_writer *write_cell, struct document_text *out) {
    struct table_grid grid = {0};
    for (xmlNode *node = table; node;) {
        bool inner = node != table && (is(node, "table") || is_cell(node));
        if (is(node, "caption")) {
            buffer_clear(&grid.table.caption);
            write_cell(node, &grid.table.caption);
        }
        if (is(node, "tr")) add_row(&grid, node, write_cell);
        node = next_of(node, table, !inner && !is(node, "tr") && !is(node, "caption"));
    }
    grid_write(&grid, out);
    grid_free(&grid);
}
