/* retrieval/extract/page/page_losses.c: see page_losses.h. */
#include "retrieval/extract/page/page_losses.h"

#include <string.h>

void losses_end(struct losses *losses) {
    if (losses->first == 0) return;
    if (losses->first == losses->last)
        document_text_lose(losses->out, "page %d: %s", losses->first, losses->reason);
    else
        document_text_lose(losses->out, "pages %d to %d: %s", losses->first, losses->last,
                           losses->reason);
    losses->first = 0;
}

void losses_add(struct losses *losses, int page, const char *reason) {
    bool same =
        losses->first > 0 && losses->last == page - 1 && strcmp(losses->reason, reason) == 0;
    if (!same) losses_end(losses);
    if (!same) losses->first = page;
    losses->last = page;
    memmove(losses->reason, reason, strnlen(reason, sizeof losses->reason - 1) + 1);
    losses->reason[sizeof losses->reason - 1] = '\0';
}

enum status losses_refuse(const char *file, const struct buffer *losses, struct error *e) {
    int first = losses->size > 0 ? (int)strcspn(losses->data, "\n") : 0;
    bool more = losses->size > (size_t)first + 1;
    if (first == 0)
        return error_set(e, STATUS_INVALID, "%s: no text in it: nothing is on its pages", file);
    return error_set(e, STATUS_INVALID, "%s: no text in it: %.*s%s", file, first, losses->data,
                     more ? ", and more" : "");
}
