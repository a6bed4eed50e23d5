/* Program(image, args, outputs, buffers, launches, workspace_size, convert, release_gil).
 *
 * Reads the tables from Python objects, lets the core check and copy them, and keeps what the call
 * path compares. Every wrong index, shape or address is a ValueError here, so that no call can
 * crash. */
#include "native.h"

#include <stddef.h>
#include <structmember.h>

/* The tables while they are read; all freed by `parsed_free`. */
typedef struct {
    PyObject *args, *outputs, *buffers, *launches; /* tuples */
    nova_tensor *tensors;                          /* arguments, then outputs */
    int64_t *extents;
    nova_buffer *buffer_table;
    nova_launch *launch_table;
    uint32_t *operands;
    nova_program_tables tables;
} Parsed;

static void parsed_free(Parsed *parsed)
{
    Py_XDECREF(parsed->args);
    Py_XDECREF(parsed->outputs);
    Py_XDECREF(parsed->buffers);
    Py_XDECREF(parsed->launches);
    PyMem_Free(parsed->tensors);
    PyMem_Free(parsed->extents);
    PyMem_Free(parsed->buffer_table);
    PyMem_Free(parsed->launch_table);
    PyMem_Free(parsed->operands);
}

/* --- reading numbers and tuples -------------------------------------------------------------- */

static bool read_int64(PyObject *object, const char *what, Py_ssize_t index, int64_t *value)
{
    *value = PyLong_AsLongLong(object);
    if (*value != -1 || !PyErr_Occurred())
        return true;
    if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%s %zd: %R does not fit into 64 bits", what, index,
                     object);
    }
    return false;
}

static bool read_index(PyObject *object, const char *what, Py_ssize_t index, uint64_t *value)
{
    int64_t number;
    if (!read_int64(object, what, index, &number))
        return false;
    if (number < 0) {
        PyErr_Format(PyExc_ValueError, "%s %zd: %R is negative", what, index, object);
        return false;
    }
    *value = (uint64_t)number;
    return true;
}

static PyObject *read_table(PyObject *object, const char *what)
{
    if (PyList_Check(object) || PyTuple_Check(object))
        return PySequence_Tuple(object);
    PyErr_Format(PyExc_TypeError, "%s must be a list or tuple", what);
    return NULL;
}

static bool check_row(PyObject *row, Py_ssize_t size, const char *what, Py_ssize_t index,
                      const char *fields)
{
    if (PyTuple_Check(row) && PyTuple_Size(row) == size)
        return true;
    PyErr_Format(PyExc_ValueError, "%s %zd must be a tuple %s", what, index, fields);
    return false;
}

static void *allocate(Py_ssize_t count, size_t size)
{
    void *memory = PyMem_Calloc((size_t)count + 1, size); /* never NULL for an empty table */
    if (memory == NULL)
        PyErr_NoMemory();
    return memory;
}

/* --- arguments and outputs ------------------------------------------------------------------- */

static bool count_extents(PyObject *rows, const char *what, const char *fields, Py_ssize_t *total)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(rows); i++) {
        PyObject *row = PyTuple_GetItem(rows, i);
        if (!check_row(row, 3, what, i, fields))
            return false;
        PyObject *shape = PyTuple_GetItem(row, 0);
        if (!PyTuple_Check(shape)) {
            PyErr_Format(PyExc_ValueError, "%s %zd: the shape must be a tuple", what, i);
            return false;
        }
        if (PyTuple_Size(shape) > NPY_MAXDIMS) {
            PyErr_Format(PyExc_ValueError, "%s %zd: more than %d axes", what, i, NPY_MAXDIMS);
            return false;
        }
        *total += PyTuple_Size(shape);
    }
    return true;
}

/* Fills `tensor` and the owned `spec->descr` from (shape, dtype, _). */
static bool read_tensor(PyObject *row, const char *what, Py_ssize_t index, int64_t **extents,
                        nova_tensor *tensor, Spec *spec)
{
    PyObject *shape = PyTuple_GetItem(row, 0);
    if (!PyArray_DescrConverter(PyTuple_GetItem(row, 1), &spec->descr))
        return false;
    npy_intp size = PyDataType_ELSIZE(spec->descr);
    if (size <= 0 || PyDataType_REFCHK(spec->descr) || PyDataType_HASSUBARRAY(spec->descr)) {
        PyErr_Format(PyExc_ValueError, "%s %zd: arrays of %R hold no plain numbers", what, index,
                     (PyObject *)spec->descr);
        return false;
    }
    *tensor = (nova_tensor){.shape = *extents,
                            .rank = (int32_t)PyTuple_Size(shape),
                            .element_size = size,
                            .alias = -1};
    for (int32_t k = 0; k < tensor->rank; k++, (*extents)++)
        if (!read_int64(PyTuple_GetItem(shape, k), what, index, *extents))
            return false;
    spec->rank = tensor->rank;
    spec->flags = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED;
    spec->alias = -1;
    return true;
}

static bool read_tensors(ProgramObject *self, Parsed *parsed)
{
    Py_ssize_t total = 0;
    if (!count_extents(parsed->args, "argument", "(shape, dtype, donated)", &total) ||
        !count_extents(parsed->outputs, "output", "(shape, dtype, alias)", &total))
        return false;
    Py_ssize_t arg_count = PyTuple_Size(parsed->args);
    Py_ssize_t output_count = PyTuple_Size(parsed->outputs);
    parsed->extents = allocate(total, sizeof *parsed->extents);
    parsed->tensors = allocate(arg_count + output_count, sizeof *parsed->tensors);
    self->args = allocate(arg_count, sizeof *self->args);
    self->outputs = allocate(output_count, sizeof *self->outputs);
    self->disjoint = allocate(arg_count, sizeof *self->disjoint);
    if (!parsed->extents || !parsed->tensors || !self->args || !self->outputs || !self->disjoint)
        return false;
    self->arg_count = arg_count;
    self->output_count = output_count;

    int64_t *extents = parsed->extents;
    for (Py_ssize_t i = 0; i < arg_count; i++) {
        PyObject *row = PyTuple_GetItem(parsed->args, i);
        nova_tensor *tensor = &parsed->tensors[i];
        if (!read_tensor(row, "argument", i, &extents, tensor, &self->args[i]))
            return false;
        int donated = PyObject_IsTrue(PyTuple_GetItem(row, 2));
        if (donated < 0)
            return false;
        if (donated) {
            tensor->flags = NOVA_DONATED;
            self->args[i].flags |= NPY_ARRAY_WRITEABLE;
            self->donated_count++;
        }
    }
    for (Py_ssize_t i = 0; i < output_count; i++) {
        PyObject *row = PyTuple_GetItem(parsed->outputs, i);
        nova_tensor *tensor = &parsed->tensors[arg_count + i];
        Spec *spec = &self->outputs[i];
        int64_t alias;
        if (!read_tensor(row, "output", i, &extents, tensor, spec) ||
            !read_int64(PyTuple_GetItem(row, 2), "output", i, &alias))
            return false;
        spec->flags |= NPY_ARRAY_WRITEABLE;
        if (alias < -1 || alias >= arg_count) {
            PyErr_Format(PyExc_ValueError, "output %zd: alias %lld is no argument", i,
                         (long long)alias);
            return false;
        }
        if (alias >= 0 && !PyArray_EquivTypes(spec->descr, self->args[alias].descr)) {
            PyErr_Format(PyExc_ValueError, "output %zd: its type is not that of argument %lld", i,
                         (long long)alias);
            return false;
        }
        tensor->alias = alias;
        spec->alias = (int)alias;
    }
    parsed->tables.arguments = parsed->tensors;
    parsed->tables.argument_count = (size_t)arg_count;
    parsed->tables.outputs = parsed->tensors + arg_count;
    parsed->tables.output_count = (size_t)output_count;
    return true;
}

/* --- buffers and launches -------------------------------------------------------------------- */

/* A vaddr of the image as an address in this process. */
static bool find_in_image(const nova_image *image, uint64_t vaddr, uint64_t size, uint32_t flags,
                          const char *what, Py_ssize_t index, void **address)
{
    if (nova_image_find(image, vaddr, size, flags, address) == NOVA_OK)
        return true;
    PyErr_Format(PyExc_ValueError, "%s %zd: vaddr %llu is in no %s segment of the image", what,
                 index, (unsigned long long)vaddr,
                 flags & NOVA_EXECUTE ? "executable" : "readable");
    return false;
}

static bool read_buffers(Parsed *parsed, const nova_image *image)
{
    Py_ssize_t count = PyTuple_Size(parsed->buffers);
    parsed->buffer_table = allocate(count, sizeof *parsed->buffer_table);
    if (parsed->buffer_table == NULL)
        return false;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *row = PyTuple_GetItem(parsed->buffers, i);
        nova_buffer *buffer = &parsed->buffer_table[i];
        uint64_t kind;
        if (!check_row(row, 2, "buffer", i, "(kind, value)") ||
            !read_index(PyTuple_GetItem(row, 0), "buffer", i, &kind) ||
            !read_index(PyTuple_GetItem(row, 1), "buffer", i, &buffer->value))
            return false;
        if (kind > NOVA_CONSTANT) {
            PyErr_Format(PyExc_ValueError, "buffer %zd: there is no kind %llu", i,
                         (unsigned long long)kind);
            return false;
        }
        buffer->kind = (nova_buffer_kind)kind;
        uint64_t limit = kind == NOVA_ARGUMENT ? parsed->tables.argument_count
                         : kind == NOVA_OUTPUT ? parsed->tables.output_count
                                               : parsed->tables.workspace_size + 1;
        if (kind != NOVA_CONSTANT && buffer->value >= limit) {
            PyErr_Format(PyExc_ValueError, "buffer %zd: %llu is outside of its table or workspace",
                         i, (unsigned long long)buffer->value);
            return false;
        }
        if (kind == NOVA_CONSTANT) {
            void *address;
            if (!find_in_image(image, buffer->value, 0, NOVA_READ, "buffer", i, &address))
                return false;
            buffer->value = (uint64_t)(uintptr_t)address;
        }
    }
    parsed->tables.buffers = parsed->buffer_table;
    parsed->tables.buffer_count = (size_t)count;
    return true;
}

static bool count_operands(PyObject *rows, Py_ssize_t *total)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(rows); i++) {
        PyObject *row = PyTuple_GetItem(rows, i);
        if (!check_row(row, 3, "launch", i, "(kernel, grid, buffers)"))
            return false;
        PyObject *operands = PyTuple_GetItem(row, 2);
        if (!PyTuple_Check(operands)) {
            PyErr_Format(PyExc_ValueError, "launch %zd: the buffers must be a tuple", i);
            return false;
        }
        *total += PyTuple_Size(operands);
    }
    return true;
}

static bool read_launches(Parsed *parsed, const nova_image *image)
{
    Py_ssize_t count = PyTuple_Size(parsed->launches), total = 0;
    if (!count_operands(parsed->launches, &total))
        return false;
    parsed->launch_table = allocate(count, sizeof *parsed->launch_table);
    parsed->operands = allocate(total, sizeof *parsed->operands);
    if (parsed->launch_table == NULL || parsed->operands == NULL)
        return false;
    uint32_t *operand = parsed->operands;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *row = PyTuple_GetItem(parsed->launches, i);
        PyObject *ids = PyTuple_GetItem(row, 2);
        nova_launch *launch = &parsed->launch_table[i];
        uint64_t vaddr, grid;
        void *code;
        if (!read_index(PyTuple_GetItem(row, 0), "launch", i, &vaddr) ||
            !read_index(PyTuple_GetItem(row, 1), "launch", i, &grid) ||
            !find_in_image(image, vaddr, 1, NOVA_EXECUTE, "launch", i, &code))
            return false;
        memcpy(&launch->kernel, &code, sizeof code); /* ISO C has no cast for this */
        launch->grid = (int64_t)grid;
        launch->buffers = operand;
        launch->buffer_count = (size_t)PyTuple_Size(ids);
        for (size_t k = 0; k < launch->buffer_count; k++) {
            uint64_t id;
            if (!read_index(PyTuple_GetItem(ids, (Py_ssize_t)k), "launch", i, &id))
                return false;
            if (id >= parsed->tables.buffer_count) {
                PyErr_Format(PyExc_ValueError, "launch %zd: there is no buffer %llu", i,
                             (unsigned long long)id);
                return false;
            }
            *operand++ = (uint32_t)id;
        }
    }
    parsed->tables.launches = parsed->launch_table;
    parsed->tables.launch_count = (size_t)count;
    return true;
}

/* --- the type -------------------------------------------------------------------------------- */

/* Lets the core copy the tables, and points the specs at its copies. */
static bool adopt(ProgramObject *self, const Parsed *parsed)
{
    nova_status status = nova_program_create(&parsed->tables, &self->program);
    if (status == NOVA_OK && nova_program_workspace_size(self->program) > 0)
        status = nova_pool_create(nova_program_workspace_size(self->program), &self->pool);
    if (status != NOVA_OK) {
        raise_status(status, "the tables of the program do not fit together");
        return false;
    }
    const nova_program_tables *tables = nova_program_get_tables(self->program);
    for (Py_ssize_t i = 0; i < self->arg_count; i++) {
        self->args[i].dims = (const npy_intp *)tables->arguments[i].shape;
        self->args[i].nbytes = (size_t)tables->arguments[i].nbytes;
    }
    for (Py_ssize_t i = 0; i < self->output_count; i++) {
        self->outputs[i].dims = (const npy_intp *)tables->outputs[i].shape;
        self->outputs[i].nbytes = (size_t)tables->outputs[i].nbytes;
    }
    return true;
}

static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"image",          "args",    "outputs",     "buffers", "launches",
                            "workspace_size", "convert", "release_gil", NULL};
    PyObject *image, *arg_rows, *output_rows, *buffer_rows, *launch_rows, *workspace, *convert;
    int release_gil;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OOOOOOp:Program", names, image_type, &image,
                                     &arg_rows, &output_rows, &buffer_rows, &launch_rows,
                                     &workspace, &convert, &release_gil))
        return NULL;
    if (!PyCallable_Check(convert)) {
        PyErr_SetString(PyExc_TypeError, "convert must be callable");
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    ProgramObject *self = (ProgramObject *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = program_vectorcall;
    Py_INCREF(image);
    self->image = image;
    Py_INCREF(convert);
    self->convert = convert;
    self->release_gil = release_gil != 0;

    const nova_image *code = ((ImageObject *)image)->image;
    Parsed parsed = {0};
    bool ok = (parsed.args = read_table(arg_rows, "args")) != NULL &&
              (parsed.outputs = read_table(output_rows, "outputs")) != NULL &&
              (parsed.buffers = read_table(buffer_rows, "buffers")) != NULL &&
              (parsed.launches = read_table(launch_rows, "launches")) != NULL &&
              read_index(workspace, "workspace", 0, &parsed.tables.workspace_size) &&
              read_tensors(self, &parsed) && read_buffers(&parsed, code) &&
              read_launches(&parsed, code) && adopt(self, &parsed);
    parsed_free(&parsed);
    if (ok)
        return (PyObject *)self;
    Py_DECREF((PyObject *)self);
    return NULL;
}

static int program_traverse(ProgramObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->image);
    Py_VISIT(self->convert);
    return 0;
}

/* Only `convert` can close a cycle; the image stays, as a call may still be asked for. */
static int program_clear(ProgramObject *self)
{
    PyObject *none = Py_None;
    Py_INCREF(none);
    PyObject *convert = self->convert;
    self->convert = none;
    Py_XDECREF(convert);
    return 0;
}

static void program_dealloc(ProgramObject *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    nova_pool_destroy(self->pool);
    nova_program_destroy(self->program);
    for (Py_ssize_t i = 0; i < self->arg_count; i++)
        Py_XDECREF((PyObject *)self->args[i].descr);
    for (Py_ssize_t i = 0; i < self->output_count; i++)
        Py_XDECREF((PyObject *)self->outputs[i].descr);
    PyMem_Free(self->args);
    PyMem_Free(self->outputs);
    PyMem_Free(self->disjoint);
    Py_XDECREF(self->convert);
    Py_XDECREF(self->image);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *program_workspace_size(ProgramObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLongLong(nova_program_get_tables(self->program)->workspace_size);
}

static PyMemberDef program_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(ProgramObject, vectorcall), READONLY, NULL},
    {"image", T_OBJECT_EX, offsetof(ProgramObject, image), READONLY, "The mapped code."},
    {0},
};

static PyGetSetDef program_attributes[] = {
    {"workspace_size", (getter)program_workspace_size, NULL,
     "Bytes of scratch memory that the compiler planned for a run.", NULL},
    {0},
};

static PyMethodDef program_methods[] = {
    {"run", (PyCFunction)(void (*)(void))program_run, METH_FASTCALL | METH_KEYWORDS,
     "run(inputs, params=(), out=None)\n--\n\nCalls with the arrays of two lists."},
    {0},
};

static PyType_Slot program_slots[] = {
    {Py_tp_doc,
     "Program(image, args, outputs, buffers, launches, workspace_size, convert, release_gil)\n"
     "--\n\nA compiled program; call it with its arrays, and out=None or the arrays to write."},
    {Py_tp_new, program_new},
    {Py_tp_dealloc, program_dealloc},
    {Py_tp_traverse, program_traverse},
    {Py_tp_clear, program_clear},
    {Py_tp_call, program_call},
    {Py_tp_members, program_members},
    {Py_tp_getset, program_attributes},
    {Py_tp_methods, program_methods},
    {0, NULL},
};

PyType_Spec program_spec = {
    .name = "nova.runtime._native.Program",
    .basicsize = sizeof(ProgramObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | HAVE_VECTORCALL,
    .slots = program_slots,
};
