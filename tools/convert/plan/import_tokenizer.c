/* tools/convert/plan/import_tokenizer.c: the tokenizer that lies beside a checkpoint or is given: the vocabulary's size
 * and the special ids come from it, and its files go into the folder. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/base/line.h"
#include "config/base/text.h"
#include "retro/text/tokenizer.h"
#include "tools/convert/plan/import_keys.h"

bool import_is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* A file beside the checkpoint that is a tokenizer by its name; NULL: none, or several. */
static char *find_beside(const char *folder) {
    DIR *dir = opendir(folder);
    char *found = NULL;
    int n = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        const char *name = entry->d_name;
        bool fits = ends_with(name, ".model") || strcmp(name, "tokenizer.json") == 0 || strcmp(name, "vocab.txt") == 0;
        if (!fits || name[0] == '.') continue;
        struct buffer path = {0};
        buffer_printf(&path, "%s/%s", folder, name);
        free(found);
        found = path.data;
        n++;
    }
    if (dir) closedir(dir);
    if (n == 1) return found;
    free(found);
    return NULL;
}

char *import_find_tokenizer(const struct import_plan *p, const struct import_options *o) {
    if (o->tokenizer) return xstrdup(o->tokenizer);
    if (p->checkpoint->n_companions > 0) return NULL;
    char *found = import_is_folder(o->from) ? find_beside(o->from) : NULL;
    return found ? found : find_beside(p->checkpoint->folder);
}

static void put_id(struct import_plan *p, const char *key, int id) {
    if (!import_take_given(p, key) && id >= 0) import_put_int(p, key, id, "tokenizer");
}

/* Ids that --config says without a tokenizer. */
static void take_given_ids(struct import_plan *p) {
    int64_t size;
    if (!import_take_int(p, "vocab_size", "", &size))
        import_lack(p, "vocab_size", "the tokenizer's: --tokenizer, or --config");
    import_take_given(p, "eod_token_id");
    bool first = p->architecture == IMPORT_T5;
    if (first && !import_take_given(p, "bos_token_id"))
        import_lack(p, "bos_token_id", "the decoder's first token: the tokenizer's BOS or CLS, by --tokenizer");
    if (first) import_take_given(p, "pad_token_id");
}

static void write_companion(const char *folder, const struct checkpoint_companion *companion, bool *written) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/%s", folder, companion->name);
    FILE *f = fopen(path.data, "wx");
    *written = *written && f && fwrite(companion->bytes.text, 1, companion->bytes.size, f) == companion->bytes.size;
    *written = f && fclose(f) == 0 && *written;
    buffer_free(&path);
}

/* A tokenizer within the container is opened from files, for which it is written out for that moment. */
static enum status open_companions(struct tokenizer **t, const struct import_plan *p, struct error *e) {
    const struct checkpoint *c = p->checkpoint;
    struct buffer folder = {0};
    buffer_printf(&folder, "%s/retro-convert-XXXXXX", p->scratch);
    if (mkdtemp(folder.data) == NULL) {
        error_errno(e, "%s: a folder for the tokenizer of %s", p->scratch, c->folder);
        buffer_free(&folder);
        return e->status;
    }
    bool written = true;
    for (int i = 0; i < c->n_companions; i++) write_companion(folder.data, &c->companions[i], &written);
    enum status status =
        written ? tokenizer_open(t, folder.data, e) : error_errno(e, "%s: the tokenizer of %s", folder.data, c->folder);
    for (int i = 0; i < c->n_companions; i++) {
        struct buffer path = {0};
        buffer_printf(&path, "%s/%s", folder.data, c->companions[i].name);
        unlink(path.data);
        buffer_free(&path);
    }
    rmdir(folder.data);
    buffer_free(&folder);
    return status ? error_prefix(e, "the tokenizer within") : STATUS_OK;
}

static enum status open_tokenizer(struct tokenizer **t, const struct import_plan *p, const struct import_options *o,
                                  struct error *e) {
    char *path = import_find_tokenizer(p, o);
    *t = NULL;
    if (path == NULL) return p->checkpoint->n_companions > 0 ? open_companions(t, p, e) : STATUS_OK;
    enum status status = tokenizer_open(t, path, e);
    free(path);
    return status ? error_prefix(e, "--tokenizer") : STATUS_OK;
}

/* Puts a key that nothing says, and says so in the report and on stderr. */
static void assume(struct import_plan *p, const char *key, int64_t value, const char *why) {
    import_put_int(p, key, value, why);
    line_print(stderr, "retro-convert: %s %lld is assumed: %s; --config may say another", key, (long long)value, why);
}

/* The id of a text that is one special token, or -1. */
static int find_special(const struct tokenizer *t, const char *text) {
    struct tokens ids = {0};
    struct error e;
    bool one = tokenizer_encode(t, text, strlen(text), TOKENIZER_PARSE_SPECIAL, &ids, &e) == STATUS_OK && ids.n == 1;
    int id = one && tokenizer_is_special(t, ids.ids[0]) ? ids.ids[0] : -1;
    tokens_free(&ids);
    return id;
}

/* Megatron's own WordPiece puts [BOS], [EOS] and the sentinels behind what vocab.txt has, where it has none. Its size;
 * 0: another tokenizer. */
static int64_t extended_size(const struct import_plan *p, const struct tokenizer *t) {
    const char *type = settings_text(&p->checkpoint->settings, "tokenizer_type");
    int64_t sentinels = 0, size = tokenizer_vocab_size(t);
    if (type == NULL || strncmp(type, "BertWordPiece", strlen("BertWordPiece")) != 0 || tokenizer_bos(t) >= 0) return 0;
    settings_int(&p->checkpoint->settings, "vocab_extra_ids", &sentinels);
    bool fits = sentinels >= 0 && sentinels < p->vocab && size + 2 + sentinels <= p->vocab;
    return fits ? size + 2 + sentinels : 0;
}

/* The decoder's first token is Megatron's BOS, else CLS. */
static void take_start(struct import_plan *p, const struct tokenizer *t, int64_t extended) {
    int cls = find_special(t, "[CLS]");
    const char *key = "bos_token_id";
    if (import_take_given(p, key)) return;
    if (tokenizer_bos(t) >= 0)
        import_put_int(p, key, tokenizer_bos(t), "tokenizer");
    else if (extended > 0)
        assume(p, key, tokenizer_vocab_size(t), "Megatron puts [BOS] behind the tokenizer's last id");
    else if (cls >= 0)
        assume(p, key, cls, "the tokenizer has no BOS, and Megatron takes its [CLS]");
    else
        import_lack(p, key, "the decoder's first token");
}

static void take_ids(struct import_plan *p, const struct tokenizer *t, int64_t *size) {
    bool t5 = p->architecture == IMPORT_T5;
    int64_t extended = t5 ? extended_size(p, t) : 0;
    *size = tokenizer_vocab_size(t);
    if (!import_take_int(p, "vocab_size", "", size)) {
        *size = extended > 0 ? extended : *size;
        assume(p, "vocab_size", *size, extended > 0 ? "the tokenizer's ids, and those Megatron adds" : "the tokenizer");
    }
    if (!import_take_given(p, "eod_token_id") && extended > 0)
        assume(p, "eod_token_id", tokenizer_vocab_size(t) + 1, "Megatron puts [EOS] behind [BOS]");
    else
        put_id(p, "eod_token_id", tokenizer_eod(t));
    if (!t5) return;
    take_start(p, t, extended);
    put_id(p, "pad_token_id", tokenizer_pad(t));
}

enum status import_read_tokenizer(struct import_plan *p, const struct import_options *o, struct error *e) {
    struct tokenizer *t;
    if (open_tokenizer(&t, p, o, e)) return e->status;
    if (t == NULL) {
        take_given_ids(p);
        return STATUS_OK;
    }
    int64_t size;
    take_ids(p, t, &size);
    tokenizer_close(t);
    if (size <= p->vocab) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "the tokenizer has %lld ids and the word table %lld rows: it is another model's", (long long)size,
                     (long long)p->vocab);
}
