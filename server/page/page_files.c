/* server/page/page_files.c: the assembler copies the page's files into the program. See
 * page_files.h. The Makefile knows that this object depends on them. */
#include "server/page/page_files.h"

#include <string.h>

#include "config/base/base.h"

/* The bytes of a file from NAME_start to NAME_end. Paths are from the root, where make runs. */
#define EMBED_FILE(name, file) \
    __asm__( \
        ".pushsection .rodata\n" \
        ".global " #name "_start, " #name "_end\n" #name \
        "_start:\n" \
        ".incbin \"" file "\"\n" #name \
        "_end:\n" \
        ".byte 0\n" \
        ".popsection\n"); \
    extern const char name##_start[], name##_end[]

#define EMBED(name, file) EMBED_FILE(name, "server/page/" file)

/* Libraries of others, from Debian's packages libjs-marked and libjs-katex. */
EMBED_FILE(page_marked_js, PAGE_LIBRARIES "/marked/marked.umd.min.js");
EMBED_FILE(page_katex_js, PAGE_LIBRARIES "/katex/katex.min.js");

/* Pages of documentation that have the configurations of clients. */
EMBED_FILE(page_agents_md, "docs/agents.md");
EMBED_FILE(page_mcp_md, "docs/mcp.md");

EMBED(page_html, "page.html");
EMBED(page_css, "page.css");
EMBED(page_js, "page.js");
EMBED(page_server_js, "server.js");
EMBED(page_answer_js, "answer.js");
EMBED(page_sources_js, "sources.js");
EMBED(page_settings_js, "settings.js");
EMBED(page_pictures_js, "pictures.js");
EMBED(page_store_js, "store.js");
EMBED(page_conversation_js, "conversation.js");
EMBED(page_entry_js, "entry.js");
EMBED(page_writing_js, "writing.js");
EMBED(page_shelf_js, "shelf.js");
EMBED(page_export_js, "export.js");
EMBED(page_welcome_js, "welcome.js");
EMBED(page_documents_js, "documents.js");
EMBED(page_uploads_js, "uploads.js");
EMBED(page_folders_js, "folders.js");
EMBED(page_markdown_js, "markdown.js");
EMBED(page_formulas_js, "formulas.js");
EMBED(page_clients_js, "clients.js");
EMBED(page_clipboard_js, "clipboard.js");
EMBED(page_reader_js, "reader.js");
EMBED(page_lines_js, "lines.js");
EMBED(page_passages_js, "passages.js");
EMBED(page_icon, "icon.svg");

#define MARKDOWN "text/markdown; charset=utf-8"
#define SCRIPT "text/javascript; charset=utf-8"
static const struct page_file page_files[] = {
    {"/", "text/html; charset=utf-8", page_html_start, page_html_end},
    {"/page/page.css", "text/css; charset=utf-8", page_css_start, page_css_end},
    {"/page/page.js", SCRIPT, page_js_start, page_js_end},
    {"/page/server.js", SCRIPT, page_server_js_start, page_server_js_end},
    {"/page/answer.js", SCRIPT, page_answer_js_start, page_answer_js_end},
    {"/page/sources.js", SCRIPT, page_sources_js_start, page_sources_js_end},
    {"/page/settings.js", SCRIPT, page_settings_js_start, page_settings_js_end},
    {"/page/pictures.js", SCRIPT, page_pictures_js_start, page_pictures_js_end},
    {"/page/store.js", SCRIPT, page_store_js_start, page_store_js_end},
    {"/page/conversation.js", SCRIPT, page_conversation_js_start, page_conversation_js_end},
    {"/page/entry.js", SCRIPT, page_entry_js_start, page_entry_js_end},
    {"/page/writing.js", SCRIPT, page_writing_js_start, page_writing_js_end},
    {"/page/shelf.js", SCRIPT, page_shelf_js_start, page_shelf_js_end},
    {"/page/export.js", SCRIPT, page_export_js_start, page_export_js_end},
    {"/page/welcome.js", SCRIPT, page_welcome_js_start, page_welcome_js_end},
    {"/page/documents.js", SCRIPT, page_documents_js_start, page_documents_js_end},
    {"/page/uploads.js", SCRIPT, page_uploads_js_start, page_uploads_js_end},
    {"/page/folders.js", SCRIPT, page_folders_js_start, page_folders_js_end},
    {"/page/markdown.js", SCRIPT, page_markdown_js_start, page_markdown_js_end},
    {"/page/formulas.js", SCRIPT, page_formulas_js_start, page_formulas_js_end},
    {"/page/marked.js", SCRIPT, page_marked_js_start, page_marked_js_end},
    {"/page/katex.js", SCRIPT, page_katex_js_start, page_katex_js_end},
    {"/page/clients.js", SCRIPT, page_clients_js_start, page_clients_js_end},
    {"/page/clipboard.js", SCRIPT, page_clipboard_js_start, page_clipboard_js_end},
    {"/page/agents.md", MARKDOWN, page_agents_md_start, page_agents_md_end},
    {"/page/mcp.md", MARKDOWN, page_mcp_md_start, page_mcp_md_end},
    {"/page/reader.js", SCRIPT, page_reader_js_start, page_reader_js_end},
    {"/page/lines.js", SCRIPT, page_lines_js_start, page_lines_js_end},
    {"/page/passages.js", SCRIPT, page_passages_js_start, page_passages_js_end},
    {"/page/icon.svg", "image/svg+xml", page_icon_start, page_icon_end},
};

const struct page_file *page_file_find(const char *path) {
    for (size_t i = 0; i < ARRAY_COUNT(page_files); i++)
        if (strcmp(page_files[i].path, path) == 0) return &page_files[i];
    return NULL;
}
