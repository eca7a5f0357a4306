/* retrieval/extract/ocr/ocr_presence.c: see ocr_presence.h. */
#include "retrieval/extract/ocr/ocr_presence.h"

#include <stdatomic.h>

#include "config/sandbox/sandbox.h"
#include "retrieval/extract/ocr/tesseract.h"

enum { PROBE_MEMORY = 256 << 20, PROBE_SECONDS = 20 };

static bool opens; /* in the process that is asked */

static void prepare(const struct sandbox_call *call) {
    (void)call;
    opens = ocr_library_opens();
}

static void work(const struct sandbox_call *call) {
    if (opens) sandbox_write(call->output, "1", 1);
}

static bool ask_process(void) {
    struct sandbox_job job = {.name = "OCR",
                              .work = work,
                              .prepare = prepare,
                              .limits = {.memory = PROBE_MEMORY, .seconds = PROBE_SECONDS}};
    struct sandbox_child child;
    struct error ignored;
    size_t got = 0;
    char answer = 0;
    int code;
    if (sandbox_begin(&child, &job, &ignored)) return false;
    if (sandbox_read(&child, &answer, 1, &got, &ignored)) got = 0;
    sandbox_end(&child, &code, &ignored);
    return got == 1;
}

/* A library that is there stays; one that is missing may come while the program runs. */
static bool is_installed(void) {
    static atomic_bool known;
    if (!atomic_load(&known)) atomic_store(&known, ask_process());
    return atomic_load(&known);
}

int ocr_count_ready(const struct extract_ocr *ocr) {
    int n = ocr_count_languages(ocr);
    return n > 0 && is_installed() ? n : 0;
}
