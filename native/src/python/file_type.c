/* File(path) and File.from_bytes(data): a checked .nova file, and its contents. */
#include <errno.h>

#include "python/native.h"

#include "loader/reader.h"

typedef struct {
    PyObject_HEAD
    nova_file *file;
    Py_buffer view; /* of from_bytes: obj is NULL otherwise */
} FileObject;

static PyObject *file_error; /* FileError; set once by the module's initialization */

/* --- errors ----------------------------------------------------------------------------------- */

PyObject *make_file_error(void)
{
    file_error = PyErr_NewExceptionWithDoc(
        "nova._native.FileError",
        "FileError(check, text)\n--\n\nA .nova file failed a check, or has no code for this CPU.",
        NULL, NULL);
    return file_error;
}

void raise_file_error(const nova_error *error)
{
    PyObject *value = PyObject_CallFunction(file_error, "ss", error->check, error->text);
    PyObject *check = PyUnicode_FromString(error->check), *text = PyUnicode_FromString(error->text);
    if (value != NULL && check != NULL && text != NULL &&
        PyObject_SetAttrString(value, "check", check) == 0 &&
        PyObject_SetAttrString(value, "text", text) == 0)
        PyErr_SetObject(file_error, value);
    Py_XDECREF(value);
    Py_XDECREF(check);
    Py_XDECREF(text);
}

/* `path` is NULL where no file was opened; `number` is errno. */
static PyObject *file_raise(const nova_error *error, int number, PyObject *path)
{
    if (error->status == NOVA_REFUSED || error->status == NOVA_UNSUPPORTED) {
        raise_file_error(error);
    } else if (error->status == NOVA_SYSTEM_ERROR && path != NULL) {
        errno = number;
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
    } else {
        raise_error(error);
    }
    return NULL;
}

/* --- making and freeing ----------------------------------------------------------------------- */

static FileObject *file_allocate(PyTypeObject *type)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return (FileObject *)alloc(type, 0); /* zeroed */
}

static PyObject *file_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"path", NULL};
    PyObject *path, *bytes = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:File", names, &path) ||
        !PyUnicode_FSConverter(path, &bytes))
        return NULL;
    FileObject *self = file_allocate(type);
    if (self != NULL) {
        nova_error error;
        nova_status status;
        int number;
        const char *text = PyBytes_AsString(bytes);
        Py_BEGIN_ALLOW_THREADS
        status = nova_file_open(text, &self->file, &error);
        number = errno;
        Py_END_ALLOW_THREADS
        if (status != NOVA_OK) {
            Py_CLEAR(self);
            file_raise(&error, number, path);
        }
    }
    Py_DECREF(bytes);
    return (PyObject *)self;
}

static PyObject *file_from_bytes(PyObject *type, PyObject *data)
{
    FileObject *self = file_allocate((PyTypeObject *)type);
    if (self == NULL)
        return NULL;
    if (PyObject_GetBuffer(data, &self->view, PyBUF_SIMPLE) < 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    /* A writable buffer is copied: the bytes must stay those that were checked. */
    if (!self->view.readonly) {
        PyObject *copy = PyBytes_FromStringAndSize(self->view.buf, self->view.len);
        PyBuffer_Release(&self->view);
        int failed = copy == NULL || PyObject_GetBuffer(copy, &self->view, PyBUF_SIMPLE) < 0;
        Py_XDECREF(copy);
        if (failed) {
            Py_DECREF((PyObject *)self);
            return NULL;
        }
    }
    nova_error error;
    nova_status status;
    Py_BEGIN_ALLOW_THREADS
    status = nova_file_view(self->view.buf, (size_t)self->view.len, &self->file, &error);
    Py_END_ALLOW_THREADS
    if (status != NOVA_OK) {
        Py_DECREF((PyObject *)self);
        return file_raise(&error, 0, NULL);
    }
    return (PyObject *)self;
}

static void file_dealloc(FileObject *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    nova_file_close(self->file);
    if (self->view.obj != NULL)
        PyBuffer_Release(&self->view);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* --- parts of the file ------------------------------------------------------------------------ */

static int file_getbuffer(FileObject *self, Py_buffer *view, int flags)
{
    size_t size;
    const void *data = nova_file_data(self->file, &size);
    return PyBuffer_FillInfo(view, (PyObject *)self, (void *)(uintptr_t)data, (Py_ssize_t)size, 1,
                             flags);
}

/* A view of a range of the file, which it keeps alive. */
static PyObject *file_view_of(FileObject *self, const void *part, size_t size)
{
    size_t all;
    const char *data = nova_file_data(self->file, &all);
    Py_ssize_t start = (const char *)part - data;
    PyObject *view = PyMemoryView_FromObject((PyObject *)self);
    if (view == NULL)
        return NULL;
    PyObject *slice = PySequence_GetSlice(view, start, start + (Py_ssize_t)size);
    Py_DECREF(view);
    return slice;
}

static PyObject *file_section(FileObject *self, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    const void *data;
    size_t size;
    if (text == NULL)
        return NULL;
    if (nova_file_section(self->file, text, &data, &size))
        return file_view_of(self, data, size);
    PyErr_SetObject(PyExc_KeyError, name);
    return NULL;
}

static const nova_variant *file_variant_at(FileObject *self, PyObject *number, size_t *index)
{
    *index = PyLong_AsSize_t(number);
    if (*index == (size_t)-1 && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError))
            return NULL;
        PyErr_Clear();
    }
    if (*index < nova_file_variant_count(self->file))
        return &nova_file_variants(self->file)[*index];
    PyErr_Format(PyExc_IndexError, "the file has %zu variants, not number %R",
                 nova_file_variant_count(self->file), number);
    return NULL;
}

static PyObject *file_tables(FileObject *self, PyObject *number)
{
    size_t index;
    const nova_variant *variant = file_variant_at(self, number, &index);
    if (variant == NULL)
        return NULL;
    uint64_t size;
    const void *bytes = nova_tables_bytes(&variant->tables, &size);
    return file_view_of(self, bytes, size);
}

static PyObject *file_symbolic(FileObject *self, PyObject *number)
{
    size_t index;
    const nova_variant *variant = file_variant_at(self, number, &index);
    if (variant == NULL)
        return NULL;
    if (variant->symbolic.header == NULL)
        Py_RETURN_NONE;
    return file_view_of(self, variant->symbolic.header, variant->symbolic.header->size);
}

/* The sizes of one combination, and a view of its tables. */
static PyObject *file_combination(FileObject *self, const nova_specialized *specialized,
                                  uint32_t number)
{
    uint32_t count = specialized->header->dim_count;
    PyObject *sizes = PyTuple_New(count);
    for (uint32_t i = 0; sizes != NULL && i < count; i++) {
        PyObject *size = PyLong_FromLongLong(specialized->sizes[(size_t)number * count + i]);
        if (size == NULL || PyTuple_SetItem(sizes, i, size) < 0)
            Py_CLEAR(sizes);
    }
    size_t size;
    const void *tables = nova_specialized_tables(specialized, number, &size);
    PyObject *view = sizes == NULL ? NULL : file_view_of(self, tables, size);
    PyObject *pair = view == NULL ? NULL : PyTuple_Pack(2, sizes, view);
    Py_XDECREF(sizes);
    Py_XDECREF(view);
    return pair;
}

static PyObject *file_specialized(FileObject *self, PyObject *number)
{
    size_t index;
    const nova_variant *variant = file_variant_at(self, number, &index);
    if (variant == NULL)
        return NULL;
    const nova_specialized *specialized = &variant->specialized;
    uint32_t count = specialized->header != NULL ? specialized->header->count : 0;
    PyObject *list = PyList_New(count);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        PyObject *pair = file_combination(self, specialized, i);
        if (pair == NULL || PyList_SetItem(list, i, pair) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *file_constants_vaddr(FileObject *self, PyObject *number)
{
    size_t index;
    const nova_variant *variant = file_variant_at(self, number, &index);
    return variant == NULL ? NULL : PyLong_FromUnsignedLongLong(variant->constants_vaddr);
}

static PyObject *file_data(FileObject *self, void *closure)
{
    (void)closure;
    return PyMemoryView_FromObject((PyObject *)self);
}

static PyObject *file_nbytes(FileObject *self, void *closure)
{
    (void)closure;
    size_t size;
    (void)nova_file_data(self->file, &size);
    return PyLong_FromSize_t(size);
}

static PyObject *file_manifest(FileObject *self, void *closure)
{
    (void)closure;
    const void *data = NULL;
    size_t size = 0;
    (void)nova_file_section(self->file, ".nova.manifest", &data, &size);
    return PyBytes_FromStringAndSize(data, (Py_ssize_t)size);
}

static PyObject *file_digest(FileObject *self, void *closure)
{
    (void)closure;
    return PyBytes_FromStringAndSize((const char *)nova_file_digest(self->file), 32);
}

static PyObject *file_signature(FileObject *self, void *closure)
{
    (void)closure;
    const char *signature = (const char *)nova_file_signature(self->file);
    if (signature == NULL)
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize(signature, 96);
}

/* Names may hold any bytes; invalid UTF-8 must not prevent the inspection of a file. */
static PyObject *file_name_of(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
}

static bool file_put(PyObject *dict, const char *name, PyObject *value)
{
    PyObject *key = file_name_of(name);
    bool is_added = key != NULL && value != NULL && PyDict_SetItem(dict, key, value) == 0;
    Py_XDECREF(key);
    Py_XDECREF(value);
    return is_added;
}

static PyObject *file_sections(FileObject *self, void *closure)
{
    (void)closure;
    size_t count;
    const nova_section *sections = nova_file_sections(self->file, &count);
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < count; i++)
        if (!file_put(dict, sections[i].name,
                      Py_BuildValue("(KKK)", (unsigned long long)sections[i].vaddr,
                                    (unsigned long long)sections[i].offset,
                                    (unsigned long long)sections[i].size)))
            Py_CLEAR(dict);
    return dict;
}

static PyObject *file_symbols(FileObject *self, void *closure)
{
    (void)closure;
    size_t count;
    const nova_symbol *symbols = nova_file_symbols(self->file, &count);
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < count; i++)
        if (!file_put(dict, symbols[i].name, PyLong_FromUnsignedLongLong(symbols[i].vaddr)))
            Py_CLEAR(dict);
    return dict;
}

static PyObject *file_imports(FileObject *self, void *closure)
{
    (void)closure;
    size_t count;
    const char *const *imports = nova_file_imports(self->file, &count);
    PyObject *names = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; names != NULL && i < count; i++) {
        PyObject *name = file_name_of(imports[i]);
        if (name == NULL || PyTuple_SetItem(names, (Py_ssize_t)i, name) < 0)
            Py_CLEAR(names);
    }
    return names;
}

/* --- choosing and loading --------------------------------------------------------------------- */

static PyObject *file_missing(FileObject *self, PyObject *number)
{
    size_t index;
    char text[2048];
    if (file_variant_at(self, number, &index) == NULL)
        return NULL;
    nova_file_missing(self->file, index, text, sizeof text);
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *file_choose(FileObject *self, PyObject *unused)
{
    (void)unused;
    size_t variant;
    nova_error error;
    if (nova_file_choose(self->file, &variant, &error) != NOVA_OK)
        return file_raise(&error, 0, NULL);
    return PyLong_FromSize_t(variant);
}

static PyObject *file_load(FileObject *self, PyObject *number)
{
    size_t index;
    if (file_variant_at(self, number, &index) == NULL)
        return NULL;
    nova_image *image;
    nova_error error;
    nova_status status;
    Py_BEGIN_ALLOW_THREADS
    status = nova_file_load(self->file, index, &image, &error);
    Py_END_ALLOW_THREADS
    if (status != NOVA_OK)
        return file_raise(&error, 0, NULL);
    allocfunc alloc = (allocfunc)PyType_GetSlot(image_type, Py_tp_alloc);
    ImageObject *object = (ImageObject *)alloc(image_type, 0);
    if (object == NULL)
        nova_image_destroy(image);
    else
        object->image = image;
    return (PyObject *)object;
}

static PyGetSetDef file_attributes[] = {
    {"data", (getter)file_data, NULL, "All bytes, read-only.", NULL},
    {"nbytes", (getter)file_nbytes, NULL, "Size of the file.", NULL},
    {"manifest", (getter)file_manifest, NULL, "The manifest's canonical JSON.", NULL},
    {"digest", (getter)file_digest, NULL, "SHA-256 of the seal's records.", NULL},
    {"signature", (getter)file_signature, NULL, "Public key and signature, or None.", NULL},
    {"sections", (getter)file_sections, NULL, "{name: (vaddr, offset, size)}", NULL},
    {"symbols", (getter)file_symbols, NULL, "{exported name: vaddr}", NULL},
    {"imports", (getter)file_imports, NULL, "Names of the C library that it uses.", NULL},
    {0},
};

static PyMethodDef file_methods[] = {
    {"from_bytes", file_from_bytes, METH_O | METH_CLASS,
     "from_bytes(data, /)\n--\n\nThe same for bytes, which must not change meanwhile."},
    {"section", (PyCFunction)file_section, METH_O,
     "section(name, /)\n--\n\nA view of a section; KeyError when there is none."},
    {"symbolic", (PyCFunction)file_symbolic, METH_O,
     "symbolic(variant, /)\n--\n\nA view of the block of symbolic tables of a variant, or None."},
    {"specialized", (PyCFunction)file_specialized, METH_O,
     "specialized(variant, /)\n--\n\nPairs of sizes and a view of the tables of code for them."},
    {"tables", (PyCFunction)file_tables, METH_O,
     "tables(variant, /)\n--\n\nA view of the block of tables of a variant."},
    {"constants_vaddr", (PyCFunction)file_constants_vaddr, METH_O,
     "constants_vaddr(variant, /)\n--\n\nWhere its constants are loaded; 0: it has none."},
    {"missing", (PyCFunction)file_missing, METH_O,
     "missing(variant, /)\n--\n\nFeatures that this CPU lacks for a variant; empty when it runs "
     "here."},
    {"choose", (PyCFunction)file_choose, METH_NOARGS,
     "choose()\n--\n\nThe first variant that runs here; FileError when there is none."},
    {"load", (PyCFunction)file_load, METH_O,
     "load(variant, /)\n--\n\nMaps the code; FileError when the variant does not run here."},
    {0},
};

static PyType_Slot file_slots[] = {
    {Py_tp_doc, "File(path)\n--\n\n"
                "A .nova file, copied and checked; nothing in it is mapped executable before "
                "`load`. A failed check is a FileError."},
    {Py_tp_new, file_new},
    {Py_tp_dealloc, file_dealloc},
    {Py_tp_getset, file_attributes},
    {Py_tp_methods, file_methods},
    {Py_bf_getbuffer, file_getbuffer},
    {0, NULL},
};

PyType_Spec file_spec = {
    .name = "nova._native.File",
    .basicsize = sizeof(FileObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = file_slots,
};

/* --- functions of the module ------------------------------------------------------------------ */

static PyObject *file_tuple_of(const char *(*name)(size_t), const nova_cpu *cpu)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && name(i) != NULL; i++) {
        if (cpu != NULL && !nova_cpu_has(cpu, name(i)))
            continue;
        PyObject *text = PyUnicode_FromString(name(i));
        if (text == NULL || PyList_Append(list, text) < 0)
            Py_CLEAR(list);
        Py_XDECREF(text);
    }
    PyObject *tuple = list != NULL ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return tuple;
}

PyObject *module_cpu_features(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    nova_cpu cpu;
    nova_cpu_read(&cpu);
    return file_tuple_of(nova_cpu_feature, &cpu);
}

PyObject *module_limit_cpu(PyObject *module, PyObject *level)
{
    (void)module;
    unsigned long number = PyLong_AsUnsignedLong(level);
    if (number == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    nova_cpu_limit((unsigned)number);
    Py_RETURN_NONE;
}

PyObject *module_allowed_imports(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return file_tuple_of(nova_import_name, NULL);
}
