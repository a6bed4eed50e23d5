/* Program(image, tables, constants_vaddr, args, outputs, convert, release_gil, report=None).
 *
 * Reads the signature, has the core check the block of tables and bind it to the image. Every wrong
 * index, shape or address is a ValueError here, so that no call can crash. */
#include "python/native.h"

#include <stddef.h>
#include <structmember.h>

/* --- tables ----------------------------------------------------------------------------------- */

bool hold_tables(ProgramObject *self, PyObject *object)
{
    if (PyObject_GetBuffer(object, &self->tables, PyBUF_SIMPLE) < 0)
        return false;
    if (self->tables.readonly && (uintptr_t)self->tables.buf % 8 == 0)
        return true;
    PyObject *copy = PyBytes_FromStringAndSize(self->tables.buf, self->tables.len);
    PyBuffer_Release(&self->tables);
    if (copy == NULL)
        return false;
    int result = PyObject_GetBuffer(copy, &self->tables, PyBUF_SIMPLE);
    Py_DECREF(copy);
    return result == 0;
}

bool set_sizes(ProgramObject *self, const int64_t *values, size_t count)
{
    nova_error error;
    nova_status status = nova_program_set_sizes(self->program, values, count, &error);
    if (status != NOVA_OK)
        raise_error(&error);
    nova_pool_share(self->pool);
    return status == NOVA_OK;
}

/* The same, from the bytes of an array of int64 or None. */
static bool program_set_sizes(ProgramObject *self, PyObject *sizes)
{
    if (sizes == Py_None)
        return true;
    char *data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(sizes, &data, &size) < 0)
        return false;
    int64_t *values = PyMem_Malloc((size_t)size + 1);
    if (values == NULL) {
        PyErr_NoMemory();
        return false;
    }
    memcpy(values, data, (size_t)size);
    bool ok = set_sizes(self, values, (size_t)size / sizeof *values);
    PyMem_Free(values);
    return ok;
}

bool bind_tables(ProgramObject *self, const Signature *signature, uint64_t constants)
{
    self->constants = constants;
    nova_error error;
    nova_tables tables;
    /* Where the constants end is for the image to say. */
    if (!check_tables(self, signature, UINT64_MAX, &tables))
        return false;
    const nova_image *image = ((ImageObject *)self->image)->image;
    nova_status status = nova_program_create(&tables, image, constants, &self->program, &error);
    if (status != NOVA_OK) {
        if (status == NOVA_REFUSED) /* a file that it calls */
            raise_file_error(&error);
        else
            raise_error(&error);
        return false;
    }
    if (nova_program_workspace_size(self->program) > 0)
        status = nova_pool_create(nova_program_workspace_size(self->program), &self->pool);
    if (status != NOVA_OK)
        raise_status(status, "the workspace cannot be made");
    return status == NOVA_OK;
}

/* --- the type --------------------------------------------------------------------------------- */

ProgramObject *program_allocate(PyTypeObject *type, PyObject *convert, PyObject *report)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    ProgramObject *self = (ProgramObject *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = program_vectorcall;
    Py_INCREF(convert);
    self->convert = convert;
    Py_INCREF(Py_None);
    self->label = Py_None;
    Py_INCREF(Py_None);
    self->names = Py_None;
    Py_INCREF(report);
    self->report = report;
    return self;
}

static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"image",   "tables",      "constants_vaddr", "args",  "outputs",
                            "convert", "release_gil", "report",          "sizes", NULL};
    PyObject *image, *tables, *vaddr, *arg_rows, *output_rows, *convert;
    PyObject *report = Py_None, *sizes = Py_None;
    int release_gil;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO!OOOp|OO:Program", names, image_type,
                                     &image, &tables, &PyLong_Type, &vaddr, &arg_rows, &output_rows,
                                     &convert, &release_gil, &report, &sizes))
        return NULL;
    if (!PyCallable_Check(convert)) {
        PyErr_SetString(PyExc_TypeError, "convert must be callable");
        return NULL;
    }
    uint64_t constants = PyLong_AsUnsignedLongLong(vaddr);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "constants_vaddr: %R is not an address", vaddr);
        return NULL;
    }
    ProgramObject *self = program_allocate(type, convert, report);
    if (self == NULL)
        return NULL;
    Py_INCREF(image);
    self->image = image;
    self->release_gil = release_gil != 0;

    Signature signature = {0};
    bool ok = read_signature(self, arg_rows, output_rows, &signature) &&
              hold_tables(self, tables) && bind_tables(self, &signature, constants) &&
              program_set_sizes(self, sizes);
    signature_free(&signature);
    if (ok)
        return (PyObject *)self;
    Py_DECREF((PyObject *)self);
    return NULL;
}

static int program_traverse(ProgramObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->image);
    /* Not `tables.obj`: the collector would clear a memoryview that is still exported to us. */
    Py_VISIT(self->convert);
    Py_VISIT(self->make_convert);
    Py_VISIT(self->label);
    Py_VISIT(self->names);
    Py_VISIT(self->report);
    return 0;
}

/* Puts None into a slot. */
static void program_forget(PyObject **slot)
{
    PyObject *before = *slot, *none = Py_None;
    Py_INCREF(none);
    *slot = none;
    Py_XDECREF(before);
}

/* Only functions can close a cycle; image and tables stay, as the program may still be called. */
static int program_clear(ProgramObject *self)
{
    program_forget(&self->convert);
    Py_CLEAR(self->make_convert);
    program_forget(&self->label);
    program_forget(&self->names);
    program_forget(&self->report);
    return 0;
}

static void program_dealloc(ProgramObject *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    nova_pool_destroy(self->pool);
    nova_program_destroy(self->program);
    nova_device_program_destroy(self->on_device);
    for (Py_ssize_t i = 0; i < self->arg_count; i++)
        Py_XDECREF((PyObject *)self->args[i].descr);
    for (Py_ssize_t i = 0; i < self->output_count; i++)
        Py_XDECREF((PyObject *)self->outputs[i].descr);
    PyMem_Free(self->args);
    PyMem_Free(self->outputs);
    PyMem_Free(self->disjoint);
    PyMem_Free(self->extents);
    if (self->tables.obj != NULL)
        PyBuffer_Release(&self->tables);
    PyMem_Free(self->order);
    Py_XDECREF(self->convert);
    Py_XDECREF(self->make_convert);
    Py_XDECREF(self->label);
    Py_XDECREF(self->names);
    Py_XDECREF(self->report);
    Py_XDECREF(self->image);
    Py_XDECREF(self->device);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *program_workspace_size(ProgramObject *self, void *closure)
{
    (void)closure;
    /* The tables of a device have one block; those of the host may be a container. */
    const nova_tables_header *header = self->tables.buf;
    if (self->program != NULL)
        header = nova_program_tables(self->program)->header;
    return PyLong_FromUnsignedLongLong(header->workspace_size);
}

static PyObject *program_tables(ProgramObject *self, void *closure)
{
    (void)closure;
    return PyBytes_FromStringAndSize(self->tables.buf, self->tables.len);
}

static PyObject *program_is_inline(ProgramObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(self->program != NULL && nova_program_is_inline(self->program));
}

static PyObject *program_releases_gil(ProgramObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(self->release_gil || self->program == NULL ||
                           !nova_program_is_inline(self->program));
}

static PyObject *program_host_decides(ProgramObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(self->on_device != NULL &&
                           nova_device_program_is_host_decided(self->on_device));
}

static PyObject *program_counts(PyObject *object, PyObject *unused)
{
    (void)unused;
    ProgramObject *self = (ProgramObject *)object;
    nova_device_counts counts = {0};
    if (self->on_device != NULL)
        counts = nova_device_program_counts(self->on_device);
    return Py_BuildValue("(KKKKK)", (unsigned long long)counts.runs,
                         (unsigned long long)counts.launches, (unsigned long long)counts.graphs,
                         (unsigned long long)counts.graph_launches,
                         (unsigned long long)counts.graph_updates);
}

static PyObject *program_graph_shape(PyObject *object, PyObject *unused)
{
    (void)unused;
    ProgramObject *self = (ProgramObject *)object;
    nova_graph_shape shape = {0};
    if (self->on_device != NULL)
        shape = nova_device_program_graph(self->on_device);
    return Py_BuildValue("(IIII)", shape.launches, shape.edges, shape.dependent, shape.branches);
}

static PyObject *program_persistent_shape(PyObject *object, PyObject *unused)
{
    (void)unused;
    ProgramObject *self = (ProgramObject *)object;
    nova_persistent_shape shape = {0};
    if (self->on_device != NULL)
        shape = nova_device_program_persistent(self->on_device);
    return Py_BuildValue("(IIII)", shape.blocks, shape.rows, shape.counters, shape.waits);
}

static PyMemberDef program_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(ProgramObject, vectorcall), READONLY, NULL},
    {"image", T_OBJECT_EX, offsetof(ProgramObject, image), READONLY, "The mapped code."},
    {"device", T_OBJECT, offsetof(ProgramObject, device), READONLY,
     "The device it is for, or None."},
    {"names", T_OBJECT, offsetof(ProgramObject, names), 0,
     "Names of its arguments and outputs in traces."},
    {"label", T_OBJECT, offsetof(ProgramObject, label), 0, "What traces call it."},
    {0},
};

static PyGetSetDef program_attributes[] = {
    {"workspace_size", (getter)program_workspace_size, NULL,
     "Bytes of scratch memory that the compiler planned for a run.", NULL},
    {"tables", (getter)program_tables, NULL, "The block of tables that it was made from.", NULL},
    {"is_inline", (getter)program_is_inline, NULL,
     "Whether it is so short that the calling thread runs it alone.", NULL},
    {"releases_gil", (getter)program_releases_gil, NULL,
     "Whether a call lets other Python threads run.", NULL},
    {"host_decides", (getter)program_host_decides, NULL,
     "Whether it has loops or branches on a device that the host decides.", NULL},
    {0},
};

static PyMethodDef program_methods[] = {
    {"run", (PyCFunction)(void (*)(void))program_run, METH_FASTCALL | METH_KEYWORDS,
     "run(inputs, params=(), out=None, timeout=None, *, outputs=None)\n--\n\nCalls with the arrays "
     "of "
     "two lists."},
    {"run_foreign", (PyCFunction)(void (*)(void))program_run_foreign, METH_FASTCALL,
     "run_foreign(arguments, outputs[, stream])\n--\n\nRuns on lists of tensors with a method "
     "data_ptr(), whose shapes, dtypes, layouts and devices the caller has checked; on a device, "
     "in "
     "the order of a stream."},
    {"on_device", (PyCFunction)(void (*)(void))program_on_device,
     METH_CLASS | METH_VARARGS | METH_KEYWORDS,
     "on_device(device, tables, kind, arch, code, constants, args, outputs, convert, input_count)\n"
     "--\n\nA program for a device."},
    {"counts", program_counts, METH_NOARGS,
     "counts()\n--\n\n(runs, launches, graphs made, launched and updated) of a device's program."},
    {"graph_shape", program_graph_shape, METH_NOARGS,
     "graph_shape()\n--\n\n(launches, edges, edges that are dependent launches, branches) of the "
     "graphs of a device's program."},
    {"persistent_shape", program_persistent_shape, METH_NOARGS,
     "persistent_shape()\n--\n\n(blocks, rows, counters, waits) of the persistent kernel of a "
     "device's program without loops."},
    {"ring_push", program_ring_push, METH_O,
     "ring_push(arrays)\n--\n\nFills the next slot of a program with a ring, which runs."},
    {"ring_wait", program_ring_wait, METH_VARARGS,
     "ring_wait(number, seconds)\n--\n\nWhether repetition `number` is complete within this "
     "time."},
    {"ring_read", program_ring_read, METH_VARARGS,
     "ring_read(number, arrays)\n--\n\nCopies the results of a complete repetition to arrays."},
    {"ring_is_running", program_ring_is_running, METH_NOARGS,
     "ring_is_running()\n--\n\nWhether slots can be filled."},
    {"ring_end", program_ring_end, METH_NOARGS,
     "ring_end()\n--\n\nNo slot is filled from now on: the run ends."},
    {"ring_release", program_ring_release, METH_NOARGS,
     "ring_release()\n--\n\nAfter the run: the program can run again."},
    {"set_order", program_set_order, METH_VARARGS,
     "set_order(order, workers)\n--\n\nHas all runs take the tasks for so many threads in this "
     "order, on the calling thread."},
    {"submit", (PyCFunction)(void (*)(void))program_submit, METH_VARARGS | METH_KEYWORDS,
     "submit(arrays, out=None, stream=None, timeout=None, outputs=None)\n--\n\nStarts a run: a "
     "Run."},
    {0},
};

static PyType_Slot program_slots[] = {
    {Py_tp_doc,
     "Program(image, tables, constants_vaddr, args, outputs, convert, release_gil, report=None)\n"
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
    .name = "nova._native.Program",
    .basicsize = sizeof(ProgramObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | HAVE_VECTORCALL,
    .slots = program_slots,
};
