/* tools/convert/formats/pickle_names.c: names that a pickle may not hold. See pickle_names.h. */
#include "tools/convert/formats/pickle_names.h"

#include "config/base/text.h"

#include <string.h>

/* Modules with their submodules: what they are for has no place in a checkpoint. */
static const char *const modules[] = {
    "os",
    "posix",
    "nt",
    "subprocess",
    "sys",
    "importlib",
    "runpy",
    "shutil",
    "socket",
    "pty",
    "ctypes",
    "webbrowser",
    "code",
    "codeop",
    "bdb",
    "pdb",
    "timeit",
    "cProfile",
    "profile",
    "trace",
    "pip",
    "commands",
    "platform",
    "popen2",
    "multiprocessing",
    "asyncio",
    "requests",
    "urllib",
    "http",
    "httplib",
    "ftplib",
    "smtplib",
    "telnetlib",
    "tempfile",
    "operator",
    "_operator",
    "inspect",
    "marshal",
    "pickle",
    "_pickle",
    "cPickle",
    "dill",
    "joblib",
    "cloudpickle",
    "atexit",
    "threading",
    "_thread",
    "torch.hub",
    "pydoc",
    "pkgutil",
    "torch._inductor",
    "torch.jit",
    "torch.utils.bottleneck",
};

/* Modules whose classes a list of tensors may name. */
static const char *const known[] = {"torch",       "megatron",    "nemo",    "transformer_engine",
                                    "collections", "argparse",    "copyreg", "_codecs",
                                    "builtins",    "__builtin__", "numpy",   "pathlib",
                                    "enum",        "datetime",    "io",      "_io"};

/* Of Python's own functions these are types; the others do something. */
static const char *const types[] = {"set",       "frozenset", "dict",    "list",  "tuple",
                                    "slice",     "int",       "float",   "str",   "bytes",
                                    "bytearray", "bool",      "object",  "range", "complex",
                                    "getattr",   "long",      "unicode", "type",  "Ellipsis"};
static const char *const python[] = {"builtins", "__builtin__", "__builtins__"};

static bool is_one_of(struct text_span span, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (span_is(span, list[i])) return true;
    return false;
}

/* "os" and "os.path". */
static bool is_within(struct text_span module, const char *outer) {
    size_t n = strlen(outer);
    if (module.size < n || memcmp(module.text, outer, n) != 0) return false;
    return module.size == n || module.text[n] == '.';
}

bool pickle_names_known(struct text_span module) {
    for (size_t i = 0; i < ARRAY_COUNT(known); i++)
        if (is_within(module, known[i])) return true;
    return false;
}

bool pickle_names_refuse(struct text_span module, struct text_span name) {
    if (is_one_of(module, python, ARRAY_COUNT(python)))
        return !is_one_of(name, types, ARRAY_COUNT(types));
    for (size_t i = 0; i < ARRAY_COUNT(modules); i++)
        if (is_within(module, modules[i])) return true;
    return false;
}
