/* tools/convert/formats/torch_file.c: files of torch.save. See torch_file.h. */
#include "tools/convert/formats/torch_file.h"

#include "config/base/text.h"

#include <stdlib.h>
#include <string.h>

static const struct text_span no_prefix;

static struct text_span span_of(const char *text) { return (struct text_span){text, strlen(text)}; }

/* data.pkl lies in a folder called as the file once was. */
static enum status find_prefix(struct torch_file *file, struct error *e) {
    for (int i = 0; i < zip_count(file->zip); i++) {
        struct text_span name = zip_at(file->zip, i)->name;
        if (!span_ends_with(name, "/data.pkl")) continue;
        if (file->prefix.text)
            return error_set(e, STATUS_CORRUPT, "%s: holds two pickles; torch.save writes one",
                             file->name);
        file->prefix = (struct text_span){name.text, name.size - strlen("data.pkl")};
    }
    if (file->prefix.text) return STATUS_OK;
    return error_set(e, STATUS_CORRUPT, "%s: a zip without data.pkl: no file of torch.save",
                     file->name);
}

static enum status check_byte_order(const struct torch_file *file, struct error *e) {
    const struct zip_file *order = zip_find(file->zip, file->prefix, span_of("byteorder"));
    if (order == NULL || order->data.size != 3 || memcmp(order->data.text, "big", 3) != 0)
        return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "%s: was written on a big-endian machine, which is not read", file->name);
}

/* Before version 1.6 torch.save wrote pickles without a zip. */
static enum status check_zip(const struct torch_file *file, struct text_span bytes,
                             struct error *e) {
    if (bytes.size >= 2 && memcmp(bytes.text, "PK", 2) == 0) return STATUS_OK;
    bool pickled = bytes.size >= 2 && (uint8_t)bytes.text[0] == 0x80;
    return error_set(e, STATUS_UNSUPPORTED, "%s: no zip%s", file->name,
                     pickled ? ": PyTorch before 1.6 wrote it; load and save it with a newer one"
                             : ", and so no file of torch.save");
}

enum status torch_file_open(struct torch_file *file, struct text_span bytes, const char *name,
                            struct error *e) {
    *file = (struct torch_file){.name = xstrdup(name)};
    enum status status = check_zip(file, bytes, e);
    if (status == STATUS_OK) status = zip_open(&file->zip, bytes, name, e);
    if (status == STATUS_OK) status = find_prefix(file, e);
    if (status == STATUS_OK) status = check_byte_order(file, e);
    if (status == STATUS_OK)
        status = pickle_open(&file->pickle,
                             zip_find(file->zip, file->prefix, span_of("data.pkl"))->data, name, e);
    if (status) torch_file_close(file);
    return status;
}

void torch_file_close(struct torch_file *file) {
    zip_close(file->zip);
    pickle_close(file->pickle);
    free(file->name);
    *file = (struct torch_file){.prefix = no_prefix};
}

const struct pickle_value *torch_file_root(const struct torch_file *file) {
    return pickle_root(file->pickle);
}

/* torch._utils._rebuild_parameter(tensor, ...) is its tensor. */
static const struct pickle_value *unwrap(const struct pickle_value *value) {
    bool parameter = pickle_is_object(value, "torch._utils._rebuild_parameter") ||
                     pickle_is_object(value, "torch._utils._rebuild_parameter_with_state");
    return parameter ? pickle_item(value->arguments, 0) : value;
}

bool torch_is_tensor(const struct pickle_value *value) {
    value = unwrap(value);
    return pickle_is_object(value, "torch._utils._rebuild_tensor_v2") ||
           pickle_is_object(value, "torch._utils._rebuild_tensor_v3") ||
           pickle_is_object(value, "torch._utils._rebuild_tensor");
}

struct dtype_name {
    const char *name, *storage;
    enum stored_dtype dtype;
};
static const struct dtype_name dtype_names[] = {
    {"torch.float32", "torch.FloatStorage", STORED_F32},
    {"torch.float16", "torch.HalfStorage", STORED_F16},
    {"torch.bfloat16", "torch.BFloat16Storage", STORED_BF16},
};

size_t torch_dtype_bytes(enum stored_dtype dtype) {
    return dtype == STORED_F32 ? 4 : dtype == STORED_F16 || dtype == STORED_BF16 ? 2 : 0;
}

bool torch_dtype_parse(const struct pickle_value *value, enum stored_dtype *out) {
    for (size_t i = 0; i < ARRAY_COUNT(dtype_names); i++) {
        if (!pickle_text_is(value, dtype_names[i].name) &&
            !pickle_text_is(value, dtype_names[i].storage))
            continue;
        *out = dtype_names[i].dtype;
        return true;
    }
    return false;
}

static enum status fail(const struct torch_file *file, const char *what, const char *why,
                        struct error *e) {
    return error_set(e, STATUS_CORRUPT, "%s: the tensor %s %s", file->name, what, why);
}

/* The shape, of which the strides must say that there are no gaps. */
static enum status read_shape(const struct torch_file *file, const struct pickle_value *sizes,
                              const struct pickle_value *strides, const char *what,
                              struct torch_tensor *tensor, struct error *e) {
    if (!pickle_is(sizes, PICKLE_TUPLE) || !pickle_is(strides, PICKLE_TUPLE) ||
        sizes->count != strides->count || sizes->count > STORED_MAX_DIMS)
        return fail(file, what, "has no shape that is read", e);
    tensor->n_dims = (int)sizes->count;
    tensor->elements = 1;
    for (int i = tensor->n_dims - 1; i >= 0; i--) {
        const struct pickle_value *size = sizes->items[i], *stride = strides->items[i];
        if (size->kind != PICKLE_INT || stride->kind != PICKLE_INT || size->number < 1)
            return fail(file, what, "has an axis that is empty or no number", e);
        tensor->shape[i] = size->number;
        if (size->number > 1 && stride->number != (int64_t)tensor->elements)
            return fail(file, what,
                        "has strides that leave gaps or turn it; expected rows one after another",
                        e);
        if (mul_overflows(tensor->elements, (size_t)size->number, &tensor->elements) ||
            tensor->elements > INT64_MAX / 8)
            return fail(file, what, "is larger than any memory", e);
    }
    return STATUS_OK;
}

/* ("storage", torch.FloatStorage, "0", "cpu", elements): the file data/0, of which `from` elements
 * come first. */
static enum status find_bytes(const struct torch_file *torch_file, const struct pickle_value *id,
                              int64_t from, struct torch_tensor *tensor, const char *what,
                              struct error *e) {
    const struct pickle_value *key = pickle_item(id, 2), *count = pickle_item(id, 4);
    struct buffer name = {0};
    if (!pickle_is(key, PICKLE_TEXT)) return fail(torch_file, what, "names no storage", e);
    if (!pickle_is(count, PICKLE_INT) || count->number < 0)
        return fail(torch_file, what,
                    "lies in a storage whose number of elements is no whole number", e);
    buffer_printf(&name, "data/%.*s", (int)(key->text.size < 64 ? key->text.size : 64),
                  key->text.text);
    const struct zip_file *file =
        zip_find(torch_file->zip, torch_file->prefix, (struct text_span){name.data, name.size});
    buffer_free(&name);
    if (file == NULL)
        return fail(torch_file, what, "lies in a storage that the file does not hold", e);

    size_t size = torch_dtype_bytes(tensor->dtype), whole = file->data.size / size;
    if (from < 0 || (size_t)from > whole || tensor->elements > whole - (size_t)from)
        return fail(torch_file, what, "reaches beyond the end of its storage", e);
    bool bytes = pickle_text_is(pickle_item(id, 1), "torch.storage.UntypedStorage");
    if ((uint64_t)count->number > (bytes ? file->data.size : whole))
        return fail(torch_file, what, "lies in a storage of fewer elements than it says", e);
    tensor->data = file->data.text + (size_t)from * size;
    return STATUS_OK;
}

enum status torch_tensor_read(const struct torch_file *file, const struct pickle_value *value,
                              const char *what, struct torch_tensor *out, struct error *e) {
    value = unwrap(value);
    *out = (struct torch_tensor){0};
    if (!torch_is_tensor(value)) return fail(file, what, "is no tensor", e);
    bool untyped = pickle_is_object(value, "torch._utils._rebuild_tensor_v3");
    const struct pickle_value *stored = pickle_item(value->arguments, 0),
                              *from = pickle_item(value->arguments, 1);
    const struct pickle_value *id = pickle_is(stored, PICKLE_STORED) ? stored->arguments : NULL;
    const struct pickle_value *type =
        untyped ? pickle_item(value->arguments, 6) : pickle_item(id, 1);
    if (!pickle_text_is(pickle_item(id, 0), "storage") || !pickle_is(from, PICKLE_INT))
        return fail(file, what, "names no storage", e);
    if (!torch_dtype_parse(type, &out->dtype))
        return error_set(
            e, STATUS_UNSUPPORTED,
            "%s: the tensor %s has the type %.*s; float32, float16 and bfloat16 are read",
            file->name, what, pickle_is(type, PICKLE_GLOBAL) ? (int)type->text.size : 1,
            pickle_is(type, PICKLE_GLOBAL) ? type->text.text : "?");
    if (read_shape(file, pickle_item(value->arguments, 2), pickle_item(value->arguments, 3), what,
                   out, e))
        return e->status;
    return find_bytes(file, id, from->number, out, what, e);
}
