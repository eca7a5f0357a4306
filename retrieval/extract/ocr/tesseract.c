/* retrieval/extract/ocr/tesseract.c: the only file that includes tesseract's header. See
 * tesseract.h. */
#include "retrieval/extract/ocr/tesseract.h"

#include <dirent.h>
#include <dlfcn.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <tesseract/capi.h>
#include <time.h>
#include <unistd.h>

#define FUNCTIONS(X) \
    X(TessBaseAPICreate) \
    X(TessBaseAPIDelete) \
    X(TessBaseAPIInit5) \
    X(TessBaseAPISetVariable) \
    X(TessBaseAPISetPageSegMode) \
    X(TessBaseAPISetImage) \
    X(TessBaseAPISetSourceResolution) \
    X(TessBaseAPIRecognize) \
    X(TessBaseAPIGetIterator) \
    X(TessBaseAPIClear) \
    X(TessDeleteText) \
    X(TessMonitorCreate) \
    X(TessMonitorDelete) \
    X(TessMonitorSetCancelFunc) \
    X(TessMonitorSetCancelThis) \
    X(TessPageIteratorBoundingBox) \
    X(TessPageIteratorBaseline) \
    X(TessResultIteratorDelete) \
    X(TessResultIteratorGetPageIteratorConst) \
    X(TessResultIteratorNext) \
    X(TessResultIteratorGetUTF8Text) \
    X(TessResultIteratorConfidence)

#define AS_FIELD(name) __typeof__(&name) name;
static struct {
    void *library; /* NULL: not open */
    FUNCTIONS(AS_FIELD)
} tess;

enum { MOST_MODEL = 1 << 28 }; /* bytes of a file */

static bool find_functions(void) {
#define FIND(name) \
    *(void **)&tess.name = dlsym(tess.library, #name); \
    if (tess.name == NULL) return false;
    FUNCTIONS(FIND)
    return true;
}

struct ocr_engine {
    struct ocr_languages languages;
    int recent;
    struct buffer models[OCR_MOST_LANGUAGES]; /* [languages.n] the bytes of the files */
    TessBaseAPI *handles[OCR_MOST_LANGUAGES]; /* [languages.n]; NULL: not asked for yet */
};

/* Languages. */

static bool is_language(const char *name, size_t size) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    return size > 0 && size < OCR_LANGUAGE_SIZE && strspn(name, letters) >= size;
}

static void add_language(struct ocr_languages *languages, const char *name, size_t size) {
    char *to = languages->names[languages->n];
    memcpy(to, name, size);
    to[size] = '\0';
    languages->n++;
}

enum status ocr_languages_parse(struct ocr_languages *languages, const char *list,
                                struct error *e) {
    *languages = (struct ocr_languages){0};
    for (const char *at = list; *at;) {
        size_t size = strcspn(at, "+");
        if (!is_language(at, size) || (at[size] == '+' && at[size + 1] == '\0'))
            return error_set(e, STATUS_INVALID,
                             "\"%s\": languages are named as tesseract has them, as in eng+deu",
                             list);
        if (languages->n == OCR_MOST_LANGUAGES)
            return error_set(e, STATUS_INVALID, "\"%s\": more than %d languages", list,
                             OCR_MOST_LANGUAGES);
        add_language(languages, at, size);
        at += size + (at[size] == '+');
    }
    return STATUS_OK;
}

static const char *find_models(void) {
    static const char *const folders[] = {"/usr/share/tesseract-ocr/5/tessdata",
                                          "/usr/share/tessdata", "/usr/local/share/tessdata",
                                          "/usr/share/tesseract/tessdata"};
    for (size_t i = 0; i < ARRAY_COUNT(folders); i++) {
        DIR *folder = opendir(folders[i]);
        if (folder == NULL) continue;
        closedir(folder);
        return folders[i];
    }
    return NULL;
}

static int compare_names(const void *left, const void *right) {
    bool first = strcmp(left, "eng") == 0, second = strcmp(right, "eng") == 0;
    return first != second ? second - first : strcmp(left, right);
}

/* Models of orientation and of formulas read no text. */
static size_t count_language_name(const char *file) {
    static const char ending[] = ".traineddata";
    size_t size = strlen(file), n = sizeof ending - 1;
    if (size <= n || strcmp(file + size - n, ending) != 0) return 0;
    size -= n;
    bool other = (size == 3 && (memcmp(file, "osd", 3) == 0 || memcmp(file, "equ", 3) == 0));
    return other || !is_language(file, size) ? 0 : size;
}

/* Those that are installed, English first, then by name. */
static void find_installed(struct ocr_languages *languages, const char *folder) {
    char(*names)[OCR_LANGUAGE_SIZE] = NULL;
    int n = 0, capacity = 0;
    DIR *list = opendir(folder);
    for (struct dirent *entry = list ? readdir(list) : NULL; entry; entry = readdir(list)) {
        size_t size = count_language_name(entry->d_name);
        if (size == 0) continue;
        names = xgrow(names, n, &capacity, sizeof *names);
        memset(names[n], 0, sizeof names[n]);
        memcpy(names[n], entry->d_name, size);
        n++;
    }
    if (list) closedir(list);
    if (n > 0) qsort(names, (size_t)n, sizeof *names, compare_names);
    for (int i = 0; i < n && i < OCR_MOST_LANGUAGES; i++)
        add_language(languages, names[i], strlen(names[i]));
    free(names);
}

/* Those of the list whose models are there. */
static int count_models(const struct ocr_languages *languages, const char *folder) {
    struct buffer path = {0};
    int n = 0;
    for (int i = 0; i < languages->n; i++) {
        buffer_clear(&path);
        buffer_printf(&path, "%s/%s.traineddata", folder, languages->names[i]);
        n += access(path.data, R_OK) == 0;
    }
    buffer_free(&path);
    return n;
}

int ocr_count_languages(const struct extract_ocr *ocr) {
    struct ocr_languages languages = {0};
    struct error ignored;
    const char *folder = find_models(), *list = ocr->languages ? ocr->languages : "";
    if (ocr->off || folder == NULL || ocr_languages_parse(&languages, list, &ignored)) return 0;
    if (languages.n == 0) find_installed(&languages, folder);
    return count_models(&languages, folder);
}

/* Opening. */

static enum status refuse_language(const char *name, struct error *e) {
    char package[OCR_LANGUAGE_SIZE] = "";
    for (size_t i = 0; name[i]; i++) package[i] = name[i] == '_' ? '-' : name[i];
    return error_set(e, STATUS_UNSUPPORTED,
                     "OCR has no model of the language \"%s\": package tesseract-ocr-%s", name,
                     package);
}

/* The bytes are read while files can be, and become a model when it is needed: that takes a tenth
 * of a second. */
static enum status read_models(struct ocr_engine *engine, const char *folder, struct error *e) {
    struct buffer path = {0};
    struct error why;
    const struct ocr_languages *languages = &engine->languages;
    enum status status = STATUS_OK;
    for (int i = 0; i < languages->n && status == STATUS_OK; i++) {
        buffer_clear(&path);
        buffer_printf(&path, "%s/%s.traineddata", folder, languages->names[i]);
        if (file_read(path.data, MOST_MODEL, &engine->models[i], &why))
            status = refuse_language(languages->names[i], e);
    }
    buffer_free(&path);
    return status;
}

/* NULL: its model is damaged. */
static TessBaseAPI *find_handle(struct ocr_engine *engine, int language) {
    const struct buffer *model = &engine->models[language];
    TessBaseAPI *handle = engine->handles[language];
    if (handle) return handle;
    handle = tess.TessBaseAPICreate();
    if (tess.TessBaseAPIInit5(handle, model->data, (int)model->size,
                              engine->languages.names[language], OEM_LSTM_ONLY, NULL, 0, NULL, NULL,
                              0, false) == 0)
        engine->handles[language] = handle;
    else
        tess.TessBaseAPIDelete(handle);
    return engine->handles[language];
}

static enum status open_library(const char *library, struct error *e) {
    if (tess.library) return STATUS_OK;
    /* It starts threads for each page, and is slower with them. The environment has been read by
     * then: what OMP_THREAD_LIMIT would do is said by a call. */
    omp_set_max_active_levels(0);
    tess.library = dlopen(library ? library : "libtesseract.so.5", RTLD_NOW | RTLD_LOCAL);
    if (tess.library && find_functions()) return STATUS_OK;
    const char *reason = dlerror();
    tess.library = NULL;
    return error_set(e, STATUS_UNSUPPORTED, "OCR is not installed: package tesseract-ocr (%s)",
                     reason ? reason : "");
}

bool ocr_library_opens(void) {
    struct error ignored;
    return open_library(NULL, &ignored) == STATUS_OK;
}

enum status ocr_engine_open(struct ocr_engine **out, const struct ocr_languages *languages,
                            const char *library, struct error *e) {
    *out = NULL;
    if (open_library(library, e)) return e->status;
    const char *folder = find_models();
    struct ocr_engine *engine = xcalloc(1, sizeof *engine);
    engine->languages = *languages;
    if (folder && languages->n == 0) find_installed(&engine->languages, folder);
    enum status status = engine->languages.n > 0 && folder
                             ? read_models(engine, folder, e)
                             : refuse_language(languages->n > 0 ? languages->names[0] : "eng", e);
    if (status == STATUS_OK)
        *out = engine;
    else
        ocr_engine_close(engine);
    return status;
}

void ocr_engine_close(struct ocr_engine *engine) {
    if (engine == NULL) return;
    for (int i = 0; i < engine->languages.n; i++) {
        if (engine->handles[i]) tess.TessBaseAPIDelete(engine->handles[i]);
        buffer_free(&engine->models[i]);
    }
    free(engine);
}

const struct ocr_languages *ocr_engine_languages(const struct ocr_engine *engine) {
    return &engine->languages;
}

int *ocr_engine_recent(struct ocr_engine *engine) { return &engine->recent; }

/* Reading. */

void ocr_words_free(struct ocr_words *words) {
    buffer_free(&words->text);
    buffer_free(&words->list);
}

static void take_word(TessResultIterator *at, struct ocr_words *words) {
    const TessPageIterator *place = tess.TessResultIteratorGetPageIteratorConst(at);
    struct ocr_word word = {.text = (uint32_t)words->text.size};
    int left, top, right, bottom, x0, y0, x1, y1;
    char *text = tess.TessResultIteratorGetUTF8Text(at, RIL_WORD);
    if (text && tess.TessPageIteratorBoundingBox(place, RIL_WORD, &left, &top, &right, &bottom)) {
        word.size = (uint32_t)strlen(text);
        word.box = (struct page_rect){(float)left, (float)top, (float)right, (float)bottom};
        word.baseline = word.box.bottom;
        word.height = word.box.bottom - word.box.top;
        word.confidence = tess.TessResultIteratorConfidence(at, RIL_WORD);
        if (tess.TessPageIteratorBaseline(place, RIL_WORD, &x0, &y0, &x1, &y1))
            word.baseline = (float)(y0 + y1) / 2;
        if (tess.TessPageIteratorBoundingBox(place, RIL_TEXTLINE, &left, &top, &right, &bottom))
            word.height = (float)(bottom - top);
        buffer_append(&words->text, text, word.size);
        buffer_append(&words->list, &word, sizeof word);
    }
    if (text) tess.TessDeleteText(text);
}

static void take_words(TessBaseAPI *handle, struct ocr_words *words) {
    TessResultIterator *at = tess.TessBaseAPIGetIterator(handle);
    bool more = at != NULL;
    while (more) {
        take_word(at, words);
        more = tess.TessResultIteratorNext(at, RIL_WORD);
    }
    if (at) tess.TessResultIteratorDelete(at);
}

static void show_picture(TessBaseAPI *handle, const struct ocr_reading *reading) {
    const struct grey *picture = reading->picture;
    tess.TessBaseAPISetPageSegMode(handle, (TessPageSegMode)reading->mode);
    tess.TessBaseAPISetImage(handle, picture->pixels, picture->width, picture->height, 1,
                             picture->width);
    tess.TessBaseAPISetSourceResolution(handle, reading->dpi);
}

double ocr_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Asked between words. */
static bool is_over(void *reading, int words) {
    (void)words;
    return ocr_clock() >= ((const struct ocr_reading *)reading)->until;
}

enum status ocr_engine_read(struct ocr_engine *engine, const struct ocr_reading *reading,
                            struct ocr_words *words, struct error *e) {
    TessBaseAPI *handle = find_handle(engine, reading->language);
    buffer_clear(&words->text);
    buffer_clear(&words->list);
    if (ocr_clock() >= reading->until) return error_set(e, STATUS_TOO_LARGE, "its time is over");
    if (handle == NULL)
        return error_set(e, STATUS_INVALID, "OCR's model of the language \"%s\" is damaged",
                         engine->languages.names[reading->language]);
    show_picture(handle, reading);
    ETEXT_DESC *monitor = tess.TessMonitorCreate();
    tess.TessMonitorSetCancelFunc(monitor, is_over);
    tess.TessMonitorSetCancelThis(monitor, (void *)(uintptr_t)reading);
    int fault = tess.TessBaseAPIRecognize(handle, monitor);
    tess.TessMonitorDelete(monitor);
    take_words(handle, words);
    tess.TessBaseAPIClear(handle);
    if (ocr_clock() >= reading->until) return error_set(e, STATUS_TOO_LARGE, "its time is over");
    return fault ? error_set(e, STATUS_INVALID, "OCR failed") : STATUS_OK;
}

float ocr_words_confidence(const struct ocr_words *words) {
    size_t n;
    const struct ocr_word *list = ocr_words_list(words, &n);
    double sum = 0, bytes = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)list[i].confidence * list[i].size;
        bytes += list[i].size;
    }
    return bytes > 0 ? (float)(sum / bytes) : 0;
}
