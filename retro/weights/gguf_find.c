/* retro/weights/gguf_find.c: the GGUF file or the folder that a model's path stands for. See
 * gguf_folder.h. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/base/text.h"
#include "config/json/json_value.h"
#include "retro/weights/gguf_tower.h"

bool gguf_find_file(const char *path, struct buffer *file) {
    struct stat st;
    struct buffer config = {0}, model = {0};
    if (stat(path, &st) != 0) return false;
    if (!S_ISDIR(st.st_mode)) {
        bool found = ends_with(path, ".gguf");
        if (found) buffer_append_string(file, path);
        return found;
    }
    buffer_printf(&config, "%s/config.json", path);
    buffer_printf(&model, "%s/model.gguf", path);
    bool found = stat(config.data, &st) != 0 && stat(model.data, &st) == 0;
    if (found) buffer_append_string(file, model.data);
    buffer_free(&config);
    buffer_free(&model);
    return found;
}

static int is_gguf(const struct dirent *entry) { return ends_with(entry->d_name, ".gguf"); }

static bool is_tower(const char *name) { return strstr(name, "mmproj") != NULL; }

/* The length of a file's name without what numbers the parts of a model, "-00001-of-00003.gguf". */
static size_t stem_length(const char *name) {
    static const char form[] = "-00000-of-00000.gguf";
    size_t size = strlen(name), tail = strlen(form);
    if (size <= tail) return size;
    for (size_t i = 0; i < tail; i++) {
        char c = name[size - tail + i];
        if (form[i] == '0' ? c < '0' || c > '9' : c != form[i]) return size;
    }
    return size - tail;
}

/* Towers of one model in several precisions. */

static bool is_word_byte(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The part of a type of blocks at the text's front, as _0 or _XXS: its bytes, 0 where none is. */
static size_t part_length(const char *text) {
    size_t size = 1;
    while (*text == '_' && is_word_byte(text[size])) size++;
    return size > 1 && size <= 4 ? size : 0;
}

/* The bytes of a precision's name that the text begins with, as f16, BF16, q8_0 or IQ4_NL; 0: it
 * begins with none. */
static size_t precision_length(const char *text) {
    static const char *const floats[] = {"bf16", "f16", "fp16", "f32", "fp32"};
    size_t size = 0;
    for (size_t i = 0; i < ARRAY_COUNT(floats) && size == 0; i++)
        if (strncasecmp(text, floats[i], strlen(floats[i])) == 0) size = strlen(floats[i]);
    const char *letter = text + (*text == 'i' || *text == 'I');
    if ((*letter == 'q' || *letter == 'Q') && is_digit(letter[1])) {
        size = (size_t)(letter - text) + 2;
        for (size_t part; (part = part_length(text + size)) > 0;) size += part;
    }
    return is_word_byte(text[size]) ? 0 : size;
}

/* Appends a file's name without the names of precisions in it. */
static void put_bare_name(const char *name, struct buffer *out) {
    bool begins = true;
    for (size_t i = 0, size; name[i] != '\0'; i += size) {
        size_t precision = begins ? precision_length(name + i) : 0;
        size = precision > 0 ? precision : 1;
        if (precision == 0) buffer_append(out, name + i, 1);
        begins = !is_word_byte(name[i]);
    }
    buffer_append(out, "", 1);
}

/* Bytes of the tensors, and of them those in BF16. */
struct tower_bytes {
    size_t all, bf16;
};

static struct tower_bytes count_bytes(const struct gguf *tower) {
    struct tower_bytes bytes = {0};
    for (int i = 0; i < gguf_count(tower); i++) {
        const struct gguf_tensor *tensor = gguf_at(tower, i);
        bytes.all += tensor->bytes;
        if (strcmp(tensor->form->name, "BF16") == 0) bytes.bf16 += tensor->bytes;
    }
    return bytes;
}

/* Whether the tower loses less than the other one, which is the same with other bits: the larger
 * one does, and F16, whose numbers have three bits more than those of BF16; what BF16 has beyond is
 * smaller than 6e-8 or larger than any weight. */
static bool is_finer(const struct gguf *tower, const struct gguf *other) {
    struct tower_bytes bytes = count_bytes(tower), others = count_bytes(other);
    return bytes.all != others.all ? bytes.all > others.all : bytes.bf16 < others.bf16;
}

enum { NAMES_SHOWN = 8 };

/* The folder of a model's file, as its towers are sought there. */
struct tower_search {
    const char *folder; /* ends with '/' */
    const char *model;  /* the name of the model's file there */
    struct dirent **entries;
    int n;
    bool alone;          /* no other model is in the folder */
    int towers;          /* files of towers */
    int fits;            /* of them those that go with the model */
    struct gguf *tower;  /* the finest of these */
    struct buffer bare;  /* their name without precisions */
    bool differ;         /* their names differ in more than these */
    struct buffer names; /* of some of these */
    struct error reason; /* why the first tower that does not fit does not */
};

static bool names_other_model(const struct tower_search *search, const char *name) {
    size_t size = stem_length(search->model);
    bool same = size == stem_length(name) && strncmp(name, search->model, size) == 0;
    return !is_tower(name) && !same;
}

/* Opens the tower of an entry and checks that it goes with the model. */
static enum status open_tower(struct gguf **out, const struct tower_search *search, int entry,
                              const struct gguf *model, struct error *e) {
    struct buffer path = {0};
    buffer_printf(&path, "%s%s", search->folder, search->entries[entry]->d_name);
    enum status status = gguf_open(out, path.data, e);
    buffer_free(&path);
    if (status) return status;
    if (gguf_check_tower(model, *out, e) == STATUS_OK) return STATUS_OK;
    gguf_close(*out);
    return e->status;
}

static enum status fail_ambiguous(const struct tower_search *search, struct error *e) {
    return error_set(e, STATUS_INVALID,
                     "%s: %d files could be the vision tower of %s: %s%s: keep the model in a "
                     "folder with one of them, or give them one name but for the precision, as "
                     "mmproj-F16.gguf and mmproj-F32.gguf",
                     search->folder, search->fits, search->model, search->names.data,
                     search->fits > NAMES_SHOWN ? ", ..." : "");
}

/* A tower that goes with the model: the finest stays open. */
static void add_fit(struct tower_search *search, struct gguf *tower, const char *name) {
    struct buffer bare = {0};
    put_bare_name(name, &bare);
    if (search->fits == 0) buffer_append_string(&search->bare, bare.data);
    search->differ = search->differ || strcasecmp(search->bare.data, bare.data) != 0;
    buffer_free(&bare);

    if (search->fits < NAMES_SHOWN)
        buffer_printf(&search->names, "%s%s", search->fits ? ", " : "", name);
    search->fits++;
    bool finer = search->tower == NULL || is_finer(tower, search->tower);
    gguf_close(finer ? search->tower : tower);
    if (finer) search->tower = tower;
}

/* Tries all towers of the folder. */
static void try_towers(struct tower_search *search, const struct gguf *model) {
    for (int i = 0; i < search->n; i++) {
        const char *name = search->entries[i]->d_name;
        struct gguf *tower;
        struct error e = {0};
        if (names_other_model(search, name)) search->alone = false;
        if (!is_tower(name)) continue;
        search->towers++;
        if (open_tower(&tower, search, i, model, &e) == STATUS_OK)
            add_fit(search, tower, name);
        else if (search->reason.status == STATUS_OK)
            search->reason = e;
    }
}

/* Joins the tower that goes with the model. In a folder of its own a model has no tower but its
 * own; among other models, what does not go with this one is theirs. */
static enum status join_found(struct tower_search *search, struct gguf *model, struct error *e) {
    if (search->differ) return fail_ambiguous(search, e);
    if (search->fits == 0 && search->alone && search->towers > 0) {
        *e = search->reason;
        return e->status;
    }
    if (search->fits == 0) {
        gguf_leave_towers(model, search->towers);
        return STATUS_OK;
    }
    gguf_join(model, search->tower);
    gguf_leave_towers(model, search->fits - 1);
    search->tower = NULL;
    return STATUS_OK;
}

static enum status find_tower(struct gguf *model, const char *file, struct error *e) {
    const char *slash = strrchr(file, '/');
    struct buffer folder = {0};
    buffer_printf(&folder, "%.*s", slash ? (int)(slash - file) + 1 : 2, slash ? file : "./");
    struct tower_search search = {
        .folder = folder.data, .model = slash ? slash + 1 : file, .alone = true};
    search.n = scandir(search.folder, &search.entries, is_gguf, alphasort);
    enum status status = STATUS_OK;
    if (search.n < 0) {
        status = error_errno(e, "%s", search.folder);
    } else {
        try_towers(&search, model);
        status = join_found(&search, model, e);
        gguf_close(search.tower);
        for (int i = 0; i < search.n; i++) free(search.entries[i]);
        free(search.entries);
    }
    buffer_free(&search.names);
    buffer_free(&search.bare);
    buffer_free(&folder);
    return status;
}

static enum status check_model(const struct gguf *gguf, struct error *e) {
    struct text_span name;
    if (!gguf_text(gguf_value_find(gguf, "general.architecture"), &name) || !span_is(name, "clip"))
        return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "%s is the file of a vision tower: name that of the model, beside which the "
                     "tower is found",
                     gguf_name(gguf));
}

enum status gguf_open_model(struct gguf **out, const char *file, struct error *e) {
    *out = NULL;
    if (gguf_open(out, file, e)) return e->status;
    enum status status = check_model(*out, e);
    if (status == STATUS_OK) status = find_tower(*out, file, e);
    if (status == STATUS_OK) return STATUS_OK;
    gguf_close(*out);
    *out = NULL;
    return status;
}

/* A path without config.json. Mistral publishes its models in a form of its own, too. */
static enum status refuse_folder(const char *folder, struct error *e) {
    struct buffer params = {0};
    buffer_printf(&params, "%s/params.json", folder);
    bool own = access(params.data, F_OK) == 0;
    buffer_free(&params);
    if (own)
        return error_set(e, STATUS_NOT_FOUND,
                         "params.json without config.json is the form of Mistral's own programs, "
                         "which is not read: put the Hugging Face files of the same model beside "
                         "it, config.json and model.safetensors or its shards with their index");
    return error_set(e, STATUS_NOT_FOUND,
                     "%.300s is no model: it is neither a folder with config.json nor a .gguf file",
                     folder);
}

enum status config_read_text(const char *path, struct buffer *json, struct error *e) {
    struct buffer file = {0};
    struct gguf *gguf;
    enum status status;
    if (gguf_find_file(path, &file)) {
        status = gguf_open_model(&gguf, file.data, e);
        if (status == STATUS_OK) {
            status = gguf_write_config(gguf, json, e);
            gguf_close(gguf);
        }
    } else {
        struct buffer text = {0};
        buffer_printf(&file, "%s/config.json", path);
        bool missing = access(path, F_OK) == 0 && access(file.data, F_OK) != 0;
        status = missing ? refuse_folder(path, e) : file_read(file.data, JSON_FILE_LIMIT, &text, e);
        if (status == STATUS_OK) json_widen_numbers((struct text_span){text.data, text.size}, json);
        buffer_free(&text);
    }
    buffer_free(&file);
    return status;
}
