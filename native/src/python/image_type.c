/* Image(data, segments): machine code mapped for as long as the object lives. */
#include "python/native.h"

static bool image_parse_segment(PyObject *item, nova_segment *segment)
{
    if (!PyTuple_Check(item) || PyTuple_Size(item) != 5) {
        PyErr_SetString(PyExc_ValueError, "a segment is a tuple (file_offset, file_size, vaddr, "
                                          "mem_size, flags)");
        return false;
    }
    uint64_t fields[5];
    for (Py_ssize_t i = 0; i < 5; i++) {
        fields[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(item, i));
        if (PyErr_Occurred()) {
            if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
                PyErr_Clear();
                PyErr_SetString(PyExc_ValueError, "a segment's numbers must fit into 64 bits");
            }
            return false;
        }
    }
    *segment = (nova_segment){.file_offset = fields[0],
                              .file_size = fields[1],
                              .vaddr = fields[2],
                              .mem_size = fields[3],
                              /* a value that does not fit stays an unknown flag */
                              .flags = fields[4] > UINT32_MAX ? UINT32_MAX : (uint32_t)fields[4]};
    return true;
}

static PyObject *image_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"data", "segments", NULL};
    PyObject *data, *list;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:Image", names, &data, &list))
        return NULL;
    PyObject *items = PySequence_Tuple(list);
    if (items == NULL)
        return NULL;
    Py_ssize_t count = PyTuple_Size(items);
    nova_segment *segments = PyMem_Calloc((size_t)count + 1, sizeof *segments);
    ImageObject *self = NULL;
    Py_buffer view = {0};
    if (segments == NULL) {
        PyErr_NoMemory();
        goto cleanup;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (!image_parse_segment(PyTuple_GetItem(items, i), &segments[i]))
            goto cleanup;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        goto cleanup;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    self = (ImageObject *)alloc(type, 0);
    if (self == NULL)
        goto cleanup;
    nova_status status =
        nova_image_create(view.buf, (size_t)view.len, segments, (size_t)count, &self->image);
    if (status != NOVA_OK) {
        raise_status(status, "cannot map the image");
        Py_DECREF((PyObject *)self);
        self = NULL;
    }
cleanup:
    if (view.obj != NULL)
        PyBuffer_Release(&view);
    PyMem_Free(segments);
    Py_DECREF(items);
    return (PyObject *)self;
}

static void image_dealloc(ImageObject *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    nova_image_destroy(self->image);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *image_base(ImageObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromSize_t(nova_image_base(self->image));
}

static PyObject *image_address(ImageObject *self, PyObject *vaddr)
{
    void *address;
    unsigned long long value = PyLong_AsUnsignedLongLong(vaddr);
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError))
            return NULL;
        PyErr_Clear();
    } else if (nova_image_find(self->image, value, 0, 0, &address) == NOVA_OK) {
        return PyLong_FromVoidPtr(address);
    }
    PyErr_Format(PyExc_ValueError, "vaddr %R is outside of the image", vaddr);
    return NULL;
}

static PyGetSetDef image_attributes[] = {
    {"base", (getter)image_base, NULL, "Address that vaddr 0 has in this process.", NULL},
    {0},
};

static PyMethodDef image_methods[] = {
    {"address", (PyCFunction)image_address, METH_O,
     "address(vaddr, /)\n--\n\nAddress in this process of a vaddr inside of a segment."},
    {0},
};

static PyType_Slot image_slots[] = {
    {Py_tp_doc, "Image(data, segments)\n--\n\n"
                "Segments (file_offset, file_size, vaddr, mem_size, flags) of `data`, copied into "
                "memory of their own and protected by `flags` (1 execute, 2 write, 4 read)."},
    {Py_tp_new, image_new},
    {Py_tp_dealloc, image_dealloc},
    {Py_tp_getset, image_attributes},
    {Py_tp_methods, image_methods},
    {0, NULL},
};

PyType_Spec image_spec = {
    .name = "nova._native.Image",
    .basicsize = sizeof(ImageObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = image_slots,
};
