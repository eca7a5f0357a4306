/* retrieval/extract/office/rtf_pages.c: code pages of RTF. See rtf.h. */
#include <iconv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/office/rtf.h"

static const struct {
    int charset, page;
} charsets[] = {
    {0, 1252},   {1, 0},      {2, RTF_SYMBOL_PAGE}, {77, 10000}, {128, 932},  {129, 949},
    {134, 936},  {136, 950},  {161, 1253},          {162, 1254}, {163, 1258}, {177, 1255},
    {178, 1256}, {186, 1257}, {204, 1251},          {222, 874},  {238, 1250}, {255, 850}};

int rtf_page_of_charset(int charset) {
    for (size_t i = 0; i < ARRAY_COUNT(charsets); i++)
        if (charsets[i].charset == charset) return charsets[i].page;
    return 0;
}

/* Tables that are open, by code page. */
static struct {
    int page;
    iconv_t table;
} open_pages[32];
static size_t n_open_pages;

static bool find_page(int page, iconv_t *table) {
    for (size_t i = 0; i < n_open_pages; i++)
        if (open_pages[i].page == page) {
            *table = open_pages[i].table;
            return true;
        }
    return false;
}

static void open_page(int page) {
    iconv_t table;
    char name[24];
    if (page == 0 || page == RTF_SYMBOL_PAGE || find_page(page, &table) ||
        n_open_pages == ARRAY_COUNT(open_pages))
        return;
    snprintf(name, sizeof name, page == 10000 ? "MACINTOSH" : "CP%d", page);
    table = iconv_open("UTF-8", name);
    if (table == (iconv_t)-1) return;
    open_pages[n_open_pages].page = page;
    open_pages[n_open_pages].table = table;
    n_open_pages++;
}

/* The number behind each place where a word stands. */
static void open_named(struct text_span rtf, const char *word, bool is_charset) {
    size_t size = strlen(word);
    const char *end = rtf.text + rtf.size, *at = rtf.text;
    while ((at = memmem(at, (size_t)(end - at), word, size))) {
        at += size;
        int number = 0;
        for (; at < end && *at >= '0' && *at <= '9' && number < 100000; at++)
            number = number * 10 + (*at - '0');
        open_page(is_charset ? rtf_page_of_charset(number) : number);
    }
}

void rtf_open_pages(struct text_span rtf) {
    open_page(RTF_DEFAULT_PAGE);
    open_named(rtf, "\\ansicpg", false);
    open_named(rtf, "\\fcharset", true);
    open_named(rtf, "\\cpg", false);
    if (memmem(rtf.text, rtf.size, "\\mac", 4)) open_page(10000);
    if (memmem(rtf.text, rtf.size, "\\pc", 3)) open_page(437);
    if (memmem(rtf.text, rtf.size, "\\pca", 4)) open_page(850);
}

void rtf_decode(int page, struct text_span bytes, struct buffer *out) {
    iconv_t table;
    bool known = find_page(page, &table) || find_page(RTF_DEFAULT_PAGE, &table);
    char *from = (char *)(uintptr_t)bytes.text, block[4096];
    size_t left = known ? bytes.size : 0;
    if (known) iconv(table, NULL, NULL, NULL, NULL);
    while (left > 0) {
        char *to = block;
        size_t room = sizeof block, before = left;
        iconv(table, &from, &left, &to, &room);
        buffer_append(out, block, sizeof block - room);
        if (left < before || left == 0) continue;
        buffer_append_string(out, "\xef\xbf\xbd");
        from++;
        left--;
    }
}
