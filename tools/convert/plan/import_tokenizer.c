/* tools/convert/plan/import_tokenizer.c: the tokenizer that lies beside a checkpoint or is given:
 * the vocabulary's size and the special ids come from it, and its files go into the folder. */
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
        bool fits = ends_with(name, ".model") || strcmp(name, "tokenizer.json") == 0 ||
                    strcmp(name, "vocab.txt") == 0;
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

char *import_find_tokenizer(const struct import_plan *plan, const struct import_options *options) {
    if (options->tokenizer) return xstrdup(options->tokenizer);
    if (plan->checkpoint->n_companions > 0) return NULL;
    char *found = import_is_folder(options->from) ? find_beside(options->from) : NULL;
    return found ? found : find_beside(plan->checkpoint->folder);
}

static void put_id(struct import_plan *plan, const char *key, int id) {
    if (!import_take_given(plan, key) && id >= 0) import_put_int(plan, key, id, "tokenizer");
}

/* Ids that --config says without a tokenizer. */
static void take_given_ids(struct import_plan *plan) {
    int64_t size;
    if (!import_take_int(plan, "vocab_size", "", &size))
        import_lack(plan, "vocab_size", "the tokenizer's: --tokenizer, or --config");
    import_take_given(plan, "eod_token_id");
    bool first = plan->architecture == IMPORT_T5;
    if (first && !import_take_given(plan, "bos_token_id"))
        import_lack(plan, "bos_token_id",
                    "the decoder's first token: the tokenizer's BOS or CLS, by --tokenizer");
    if (first) import_take_given(plan, "pad_token_id");
}

static void write_companion(const char *folder, const struct checkpoint_companion *companion,
                            bool *written) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/%s", folder, companion->name);
    FILE *f = fopen(path.data, "wx");
    *written = *written && f &&
               fwrite(companion->bytes.text, 1, companion->bytes.size, f) == companion->bytes.size;
    *written = f && fclose(f) == 0 && *written;
    buffer_free(&path);
}

/* A tokenizer within the container is opened from files, for which it is written out for that
 * moment. */
static enum status open_companions(struct tokenizer **tokenizer, const struct import_plan *plan,
                                   struct error *e) {
    const struct checkpoint *checkpoint = plan->checkpoint;
    struct buffer folder = {0};
    buffer_printf(&folder, "%s/retro-convert-XXXXXX", plan->scratch);
    if (mkdtemp(folder.data) == NULL) {
        error_errno(e, "%s: a folder for the tokenizer of %s", plan->scratch, checkpoint->folder);
        buffer_free(&folder);
        return e->status;
    }
    bool written = true;
    for (int i = 0; i < checkpoint->n_companions; i++)
        write_companion(folder.data, &checkpoint->companions[i], &written);
    enum status status =
        written ? tokenizer_open(tokenizer, folder.data, e)
                : error_errno(e, "%s: the tokenizer of %s", folder.data, checkpoint->folder);
    for (int i = 0; i < checkpoint->n_companions; i++) {
        struct buffer path = {0};
        buffer_printf(&path, "%s/%s", folder.data, checkpoint->companions[i].name);
        unlink(path.data);
        buffer_free(&path);
    }
    rmdir(folder.data);
    buffer_free(&folder);
    return status ? error_prefix(e, "the tokenizer within") : STATUS_OK;
}

static enum status open_tokenizer(struct tokenizer **tokenizer, const struct import_plan *plan,
                                  const struct import_options *options, struct error *e) {
    char *path = import_find_tokenizer(plan, options);
    *tokenizer = NULL;
    if (path == NULL)
        return plan->checkpoint->n_companions > 0 ? open_companions(tokenizer, plan, e) : STATUS_OK;
    enum status status = tokenizer_open(tokenizer, path, e);
    free(path);
    return status ? error_prefix(e, "--tokenizer") : STATUS_OK;
}

/* Puts a key that nothing says, and says so in the report and on stderr. */
static void assume(struct import_plan *plan, const char *key, int64_t value, const char *why) {
    import_put_int(plan, key, value, why);
    line_print(stderr, "retro-convert: %s %lld is assumed: %s; --config may say another", key,
               (long long)value, why);
}

/* The id of a text that is one special token, or -1. */
static int find_special(const struct tokenizer *tokenizer, const char *text) {
    struct tokens ids = {0};
    struct error e;
    bool one = tokenizer_encode(tokenizer, text, strlen(text), TOKENIZER_PARSE_SPECIAL, &ids, &e) ==
                   STATUS_OK &&
               ids.n == 1;
    int id = one && tokenizer_is_special(tokenizer, ids.ids[0]) ? ids.ids[0] : -1;
    tokens_free(&ids);
    return id;
}

/* Megatron's own WordPiece puts [BOS], [EOS] and the sentinels behind what vocab.txt has, where it
 * has none. Its size; 0: another tokenizer. */
static int64_t extended_size(const struct import_plan *plan, const struct tokenizer *tokenizer) {
    const char *type = settings_text(&plan->checkpoint->settings, "tokenizer_type");
    int64_t sentinels = 0, size = tokenizer_vocab_size(tokenizer);
    if (type == NULL || strncmp(type, "BertWordPiece", strlen("BertWordPiece")) != 0 ||
        tokenizer_bos(tokenizer) >= 0)
        return 0;
    settings_int(&plan->checkpoint->settings, "vocab_extra_ids", &sentinels);
    bool fits = sentinels >= 0 && sentinels < plan->vocab && size + 2 + sentinels <= plan->vocab;
    return fits ? size + 2 + sentinels : 0;
}

/* The decoder's first token is Megatron's BOS, else CLS. */
static void take_start(struct import_plan *plan, const struct tokenizer *tokenizer,
                       int64_t extended) {
    int cls = find_special(tokenizer, "[CLS]");
    const char *key = "bos_token_id";
    if (import_take_given(plan, key)) return;
    if (tokenizer_bos(tokenizer) >= 0)
        import_put_int(plan, key, tokenizer_bos(tokenizer), "tokenizer");
    else if (extended > 0)
        assume(plan, key, tokenizer_vocab_size(tokenizer),
               "Megatron puts [BOS] behind the tokenizer's last id");
    else if (cls >= 0)
        assume(plan, key, cls, "the tokenizer has no BOS, and Megatron takes its [CLS]");
    else
        import_lack(plan, key, "the decoder's first token");
}

static void take_ids(struct import_plan *plan, const struct tokenizer *tokenizer, int64_t *size) {
    bool t5 = plan->architecture == IMPORT_T5;
    int64_t extended = t5 ? extended_size(plan, tokenizer) : 0;
    *size = tokenizer_vocab_size(tokenizer);
    if (!import_take_int(plan, "vocab_size", "", size)) {
        *size = extended > 0 ? extended : *size;
        assume(plan, "vocab_size", *size,
               extended > 0 ? "the tokenizer's ids, and those Megatron adds" : "the tokenizer");
    }
    if (!import_take_given(plan, "eod_token_id") && extended > 0)
        assume(plan, "eod_token_id", tokenizer_vocab_size(tokenizer) + 1,
               "Megatron puts [EOS] behind [BOS]");
    else
        put_id(plan, "eod_token_id", tokenizer_eod(tokenizer));
    if (!t5) return;
    take_start(plan, tokenizer, extended);
    put_id(plan, "pad_token_id", tokenizer_pad(tokenizer));
}

enum status import_read_tokenizer(struct import_plan *plan, const struct import_options *options,
                                  struct error *e) {
    struct tokenizer *tokenizer;
    if (open_tokenizer(&tokenizer, plan, options, e)) return e->status;
    if (tokenizer == NULL) {
        take_given_ids(plan);
        return STATUS_OK;
    }
    int64_t size;
    take_ids(plan, tokenizer, &size);
    tokenizer_close(tokenizer);
    if (size <= plan->vocab) return STATUS_OK;
    return error_set(
        e, STATUS_INVALID,
        "the tokenizer has %lld ids and the word table %lld rows: it is another model's",
        (long long)size, (long long)plan->vocab);
}
