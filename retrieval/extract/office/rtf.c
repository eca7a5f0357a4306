/* retrieval/extract/office/rtf.c: RTF as a state machine without recursion: groups, control words,
 * characters. Fonts, pictures, heads and feet of pages, and text that was deleted or hidden are
 * left out. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/base/utf8.h"
#include "retrieval/extract/office/rtf.h"

enum { MOST_GROUPS = 2000, MOST_FONTS = 4096, MOST_STYLES = 1024 };

enum rtf_place { PLACE_TEXT, PLACE_SKIPPED, PLACE_FONTS, PLACE_STYLES, PLACE_TITLE };

struct rtf_group {
    enum rtf_place place;
    int page;          /* code page of its font */
    int skipped_bytes; /* \ucN: characters that follow a \u and say the same */
    bool hidden, is_box;
    int font, style;
};

struct rtf_reader {
    const char *at, *end;
    struct office_writer writer;
    struct rtf_table table;
    struct rtf_group groups[MOST_GROUPS]; /* [depth + 1] */
    int depth;
    int default_page, default_font;
    int16_t pages[MOST_FONTS];   /* code pages of fonts */
    uint8_t levels[MOST_STYLES]; /* of headings, by number of style */
    struct buffer pending;       /* bytes of a code page that are no characters yet */
    struct buffer name;          /* of the style that is read */
    int skip;                    /* characters that are passed over, behind a \u */
    uint32_t high;               /* half of a pair */
    bool starred;                /* \* stood in front of the word */
    bool in_table;               /* \intbl */
    bool too_deep;
};

static struct rtf_group *top(struct rtf_reader *reader) { return &reader->groups[reader->depth]; }

static bool is_shown(struct rtf_reader *reader) {
    return top(reader)->place == PLACE_TEXT && !top(reader)->hidden;
}

/* A table ends where text stands outside of it. */
static void leave_table(struct rtf_reader *reader) {
    if (reader->in_table || reader->table.cells.size == 0 || reader->writer.boxes > 0) return;
    rtf_write_table(&reader->table, reader->writer.out);
}

static void put_text(struct rtf_reader *reader, const char *text) {
    struct rtf_group *group = top(reader);
    if (group->place == PLACE_STYLES) buffer_append_string(&reader->name, text);
    if (group->place == PLACE_TITLE) buffer_append_string(&reader->writer.out->title, text);
    if (!is_shown(reader)) return;
    if (strspn(text, " \n") < strlen(text)) leave_table(reader);
    office_text(&reader->writer, text);
}

static void flush(struct rtf_reader *reader) {
    struct buffer text = {0};
    if (reader->pending.size == 0) return;
    struct text_span bytes = {reader->pending.data, reader->pending.size};
    int page = top(reader)->page;
    if (page != RTF_SYMBOL_PAGE) rtf_decode(page ? page : reader->default_page, bytes, &text);
    buffer_clear(&reader->pending);
    if (text.size > 0) put_text(reader, text.data);
    buffer_free(&text);
}

static void put_byte(struct rtf_reader *reader, char byte) {
    if (reader->skip > 0) {
        reader->skip--;
        return;
    }
    buffer_append(&reader->pending, &byte, 1);
}

static void put_character(struct rtf_reader *reader, uint32_t c) {
    char text[5] = {0};
    flush(reader);
    if (c >= 0xd800 && c < 0xdc00) {
        reader->high = c;
        return;
    }
    if (c >= 0xdc00 && c < 0xe000)
        c = reader->high ? 0x10000 + ((reader->high - 0xd800) << 10) + (c - 0xdc00) : 0xfffd;
    reader->high = 0;
    if (c < 0x20) c = ' ';
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t leads[] = {0, 0x00, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--) {
        text[i] = (char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    text[0] = (char)(leads[n] | c);
    put_text(reader, text);
}

/* Groups. */

static void open_group(struct rtf_reader *reader) {
    flush(reader);
    reader->skip = 0;
    if (reader->depth + 1 == MOST_GROUPS) {
        reader->too_deep = true;
        return;
    }
    reader->depth++;
    *top(reader) = reader->groups[reader->depth - 1];
    top(reader)->is_box = false;
}

/* The end of a description of a style: its name says whether it is a heading. */
static void end_style(struct rtf_reader *reader) {
    const char *name = reader->name.data ? reader->name.data : "";
    int style = top(reader)->style;
    name += strspn(name, " ");
    bool is_heading = strncasecmp(name, "heading ", 8) == 0 && name[8] >= '1' && name[8] <= '9';
    if (style >= 0 && style < MOST_STYLES && is_heading)
        reader->levels[style] = (uint8_t)min_int(name[8] - '0', MARK_LEVELS);
    if (style >= 0 && style < MOST_STYLES && strncasecmp(name, "title;", 6) == 0)
        reader->levels[style] = 1;
    buffer_clear(&reader->name);
}

static void close_group(struct rtf_reader *reader) {
    flush(reader);
    reader->skip = 0;
    if (reader->depth == 0) return;
    struct rtf_group *group = top(reader);
    if (group->place == PLACE_STYLES) end_style(reader);
    if (group->is_box) {
        office_end_paragraph(&reader->writer);
        reader->writer.boxes--;
    }
    reader->depth--;
}

static void open_box(struct rtf_reader *reader) {
    struct rtf_group *group = top(reader);
    if (group->place == PLACE_SKIPPED && reader->depth > 0) group->place = PLACE_TEXT;
    if (group->is_box || group->place != PLACE_TEXT) return;
    group->is_box = true;
    reader->writer.boxes++;
    office_end_paragraph(&reader->writer);
}

/* Words that begin a part which is not text of the document. */
static const char *const skipped_words[] = {"colortbl",
                                            "pict",
                                            "header",
                                            "headerl",
                                            "headerr",
                                            "headerf",
                                            "footer",
                                            "footerl",
                                            "footerr",
                                            "footerf",
                                            "object",
                                            "objdata",
                                            "fldinst",
                                            "themedata",
                                            "colorschememapping",
                                            "listtable",
                                            "listoverridetable",
                                            "rsidtbl",
                                            "generator",
                                            "xmlnstbl",
                                            "datastore",
                                            "latentstyles",
                                            "filetbl",
                                            "revtbl",
                                            "annotation",
                                            "atnid",
                                            "atnauthor",
                                            "shppict",
                                            "nonshppict",
                                            "info",
                                            "ftnsep",
                                            "ftnsepc",
                                            "aftnsep",
                                            "aftnsepc",
                                            "tc",
                                            "tcn",
                                            "xe",
                                            "bkmkstart",
                                            "bkmkend",
                                            "template",
                                            "operator",
                                            "author",
                                            "pnseclvl",
                                            "nesttableprops",
                                            "sp",
                                            "mmathPr",
                                            "userprops",
                                            "wgrffmtfilter",
                                            "falt",
                                            "panose",
                                            "sn",
                                            "sv"};

static bool find_place(const char *word, enum rtf_place *place) {
    for (size_t i = 0; i < ARRAY_COUNT(skipped_words); i++)
        if (strcmp(word, skipped_words[i]) == 0) {
            *place = PLACE_SKIPPED;
            return true;
        }
    *place = strcmp(word, "fonttbl") == 0      ? PLACE_FONTS
             : strcmp(word, "stylesheet") == 0 ? PLACE_STYLES
             : strcmp(word, "title") == 0      ? PLACE_TITLE
                                               : PLACE_TEXT;
    return *place != PLACE_TEXT;
}

/* Words. */

struct rtf_word {
    char name[33];
    bool has_number;
    int number;
};

static bool is_word(const struct rtf_word *word, const char *name) {
    return strcmp(word->name, name) == 0;
}

static bool is_off(const struct rtf_word *word) { return word->has_number && word->number == 0; }

static void take_font(struct rtf_reader *reader, const struct rtf_word *word) {
    struct rtf_group *group = top(reader);
    int font = group->font;
    bool known = font >= 0 && font < MOST_FONTS;
    if (is_word(word, "f")) {
        group->font = word->number;
        font = word->number;
        known = font >= 0 && font < MOST_FONTS;
        if (group->place != PLACE_FONTS) group->page = known ? reader->pages[font] : 0;
    }
    if (group->place != PLACE_FONTS || !known) return;
    if (is_word(word, "fcharset")) reader->pages[font] = (int16_t)rtf_page_of_charset(word->number);
    if (is_word(word, "cpg") && word->number > 0 && word->number < 20000)
        reader->pages[font] = (int16_t)word->number;
}

static void take_page_word(struct rtf_reader *reader, const struct rtf_word *word) {
    if (is_word(word, "ansicpg") && word->number > 0) reader->default_page = word->number;
    if (is_word(word, "mac")) reader->default_page = 10000;
    if (is_word(word, "pc")) reader->default_page = 437;
    if (is_word(word, "pca")) reader->default_page = 850;
    if (is_word(word, "deff")) reader->default_font = word->number;
    if (is_word(word, "uc")) top(reader)->skipped_bytes = max_int(0, min_int(word->number, 100));
}

/* Words that stand for characters. */
static bool take_symbol(struct rtf_reader *reader, const struct rtf_word *word) {
    static const struct {
        const char *name, *text;
    } symbols[] = {{"line", "\n"},       {"tab", "\t"},           {"emdash", "\u2014"},
                   {"endash", "\u2013"}, {"bullet", "\u2022"},    {"lquote", "\u2018"},
                   {"rquote", "\u2019"}, {"ldblquote", "\u201c"}, {"rdblquote", "\u201d"},
                   {"emspace", " "},     {"enspace", " "},        {"qmspace", " "}};
    for (size_t i = 0; i < ARRAY_COUNT(symbols); i++)
        if (is_word(word, symbols[i].name)) {
            put_text(reader, symbols[i].text);
            return true;
        }
    return false;
}

static void take_character_facts(struct rtf_reader *reader, const struct rtf_word *word) {
    struct rtf_group *group = top(reader);
    if (is_word(word, "v") || is_word(word, "deleted")) group->hidden = !is_off(word);
    if (is_word(word, "plain")) {
        group->hidden = false;
        int font = reader->default_font;
        group->page = font >= 0 && font < MOST_FONTS ? reader->pages[font] : 0;
    }
}

static void take_paragraph_facts(struct rtf_reader *reader, const struct rtf_word *word) {
    struct office_writer *writer = &reader->writer;
    bool shown = top(reader)->place == PLACE_TEXT && writer->boxes == 0;
    if (is_word(word, "s")) top(reader)->style = word->number;
    if (!shown) return;
    if (is_word(word, "pard")) {
        reader->in_table = false;
        writer->level = 0;
    }
    if (is_word(word, "intbl")) reader->in_table = true;
    bool known = word->number >= 0 && word->number < MOST_STYLES;
    if (is_word(word, "s") && known) writer->level = reader->levels[word->number];
    if (is_word(word, "outlinelevel") && word->number >= 0 && word->number < 9)
        writer->level = word->number + 1;
}

static void end_cell(struct rtf_reader *reader) {
    struct office_writer *writer = &reader->writer;
    writer->tables = 1;
    office_end_paragraph(writer);
    writer->tables = 0;
    rtf_add_cell(&reader->table, (struct text_span){writer->cell.data, writer->cell.size});
    buffer_clear(&writer->cell);
}

/* A paragraph of a cell is text of the cell. */
static void end_paragraph(struct rtf_reader *reader) {
    struct office_writer *writer = &reader->writer;
    int level = writer->level;
    bool in_cell = reader->in_table && writer->boxes == 0;
    if (in_cell) writer->tables = 1;
    office_end_paragraph(writer);
    if (in_cell) writer->tables = 0;
    writer->level = in_cell ? 0 : level;
}

static void take_table_word(struct rtf_reader *reader, const struct rtf_word *word) {
    struct rtf_table *table = &reader->table;
    if (top(reader)->place != PLACE_TEXT || reader->writer.boxes > 0) return;
    if (is_word(word, "trowd")) rtf_begin_row(table);
    if (is_word(word, "trhdr")) table->is_head = true;
    if (is_word(word, "clvmrg")) table->next_edge.goes_on = true;
    if (is_word(word, "clmrg")) table->next_edge.joins = true;
    if (is_word(word, "cellx")) rtf_add_edge(table, word->number);
    if (is_word(word, "cell")) end_cell(reader);
    if (is_word(word, "nestcell") || is_word(word, "nestrow")) office_text(&reader->writer, "; ");
    if (is_word(word, "row")) rtf_end_row(table);
}

static void take_break(struct rtf_reader *reader, const struct rtf_word *word) {
    static const char *const breaks[] = {"par", "sect", "page", "column"};
    for (size_t i = 0; i < ARRAY_COUNT(breaks); i++)
        if (is_word(word, breaks[i]) && is_shown(reader)) end_paragraph(reader);
}

/* Bytes behind \bin are no RTF. */
static void skip_binary(struct rtf_reader *reader, const struct rtf_word *word) {
    size_t left = (size_t)(reader->end - reader->at);
    size_t n = word->number > 0 ? (size_t)word->number : 0;
    reader->at += n < left ? n : left;
}

static void take_unicode(struct rtf_reader *reader, const struct rtf_word *word) {
    int number = word->number < 0 ? word->number + 65536 : word->number;
    bool is_character = number >= 0 && number < 0x110000;
    put_character(reader, is_character ? (uint32_t)number : 0xfffd);
    reader->skip = top(reader)->skipped_bytes;
}

static void take_word(struct rtf_reader *reader, const struct rtf_word *word) {
    enum rtf_place place;
    bool starred = reader->starred;
    reader->starred = false;
    if (is_word(word, "bin")) skip_binary(reader, word);
    if (reader->skip > 0) {
        reader->skip--;
        return;
    }
    flush(reader);
    if (is_word(word, "footnote") || is_word(word, "shptxt")) {
        open_box(reader);
    } else if (find_place(word->name, &place)) {
        bool within = top(reader)->place == PLACE_SKIPPED && place != PLACE_TITLE;
        if (!within) top(reader)->place = place;
    } else if (starred) {
        top(reader)->place = PLACE_SKIPPED;
    } else if (is_word(word, "u")) {
        take_unicode(reader, word);
    } else if (!take_symbol(reader, word)) {
        take_font(reader, word);
        take_page_word(reader, word);
        take_character_facts(reader, word);
        take_paragraph_facts(reader, word);
        take_table_word(reader, word);
        take_break(reader, word);
    }
}

/* The letters behind a backslash, and a number; a blank behind them is part of them. */
static void read_word(struct rtf_reader *reader) {
    struct rtf_word word = {.number = 0};
    size_t n = 0;
    while (reader->at < reader->end && isalpha((unsigned char)*reader->at)) {
        if (n < sizeof word.name - 1) word.name[n] = *reader->at;
        n += n < sizeof word.name - 1;
        reader->at++;
    }
    bool negative = reader->end - reader->at > 1 && reader->at[0] == '-' &&
                    isdigit((unsigned char)reader->at[1]);
    reader->at += negative;
    while (reader->at < reader->end && isdigit((unsigned char)*reader->at)) {
        word.has_number = true;
        if (word.number < 100000000) word.number = word.number * 10 + (*reader->at - '0');
        reader->at++;
    }
    if (negative) word.number = -word.number;
    if (reader->at < reader->end && *reader->at == ' ') reader->at++;
    take_word(reader, &word);
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void read_hex(struct rtf_reader *reader) {
    if (reader->end - reader->at < 2) return;
    int high = hex_digit(reader->at[0]), low = hex_digit(reader->at[1]);
    if (high < 0 || low < 0) return;
    reader->at += 2;
    put_byte(reader, (char)(high * 16 + low));
}

/* A word or a character behind a backslash. */
static void read_control(struct rtf_reader *reader) {
    if (reader->at == reader->end) return;
    char c = *reader->at;
    if (isalpha((unsigned char)c)) {
        read_word(reader);
        return;
    }
    reader->at++;
    if (c == '\'') {
        read_hex(reader);
        return;
    }
    if (c == '*') {
        reader->starred = true;
        return;
    }
    if (c == '\\' || c == '{' || c == '}') {
        put_byte(reader, c);
        return;
    }
    flush(reader);
    if (c == '~') put_text(reader, "\u00a0");
    if (c == '_') put_text(reader, "-");
    if ((c == '\n' || c == '\r') && is_shown(reader)) end_paragraph(reader);
}

static void read_all(struct rtf_reader *reader) {
    while (reader->at < reader->end && !reader->too_deep) {
        char c = *reader->at;
        reader->at++;
        if (c == '\\')
            read_control(reader);
        else if (c == '{')
            open_group(reader);
        else if (c == '}')
            close_group(reader);
        else if (c != '\r' && c != '\n' && c != '\0')
            put_byte(reader, c);
    }
    flush(reader);
}

void extract_rtf_prepare(const struct extract_file *file) { rtf_open_pages(file->bytes); }

enum status extract_rtf(const struct extract_file *file, struct document_text *out,
                        struct error *e) {
    if (file->bytes.size < 5 || memcmp(file->bytes.text, "{\\rtf", 5) != 0)
        return error_set(e, STATUS_INVALID, "%s: no RTF: it does not begin with {\\rtf",
                         file->name);
    struct rtf_reader *reader = xcalloc(1, sizeof *reader);
    reader->at = file->bytes.text;
    reader->end = file->bytes.text + file->bytes.size;
    reader->default_page = RTF_DEFAULT_PAGE;
    reader->writer.out = out;
    top(reader)->skipped_bytes = 1;
    read_all(reader);
    enum status status = STATUS_OK;
    if (reader->too_deep)
        status = error_set(e, STATUS_INVALID, "%s: groups lie within groups more than %d deep",
                           file->name, MOST_GROUPS - 1);
    reader->writer.boxes = 0;
    end_paragraph(reader);
    reader->in_table = false;
    leave_table(reader);
    office_writer_free(&reader->writer);
    rtf_free_table(&reader->table);
    buffer_free(&reader->pending);
    buffer_free(&reader->name);
    free(reader);
    return status;
}
