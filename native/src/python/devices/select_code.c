/* Functions of the module about devices. */
#include "python/native.h"

PyObject *module_choose_image(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *rows;
    int major, minor;
    if (!PyArg_ParseTuple(args, "O!ii:choose_image", &PyList_Type, &rows, &major, &minor))
        return NULL;
    Py_ssize_t count = PyList_Size(rows);
    nova_device_code *images = PyMem_Calloc((size_t)count + 1, sizeof *images);
    if (images == NULL)
        return PyErr_NoMemory();
    PyObject *result = NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *kind; /* both live as long as the row, which the list holds */
        PyObject *row = PyList_GetItem(rows, i);
        if (!PyTuple_Check(row) || !PyArg_ParseTuple(row, "ss", &kind, &images[i].arch)) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "images are tuples (kind, arch)");
            goto cleanup;
        }
        images[i].kind = strcmp(kind, "cubin") == 0 ? NOVA_CUBIN : NOVA_PTX;
    }
    size_t chosen = nova_device_choose(images, (size_t)count, major, minor);
    if (chosen < (size_t)count)
        result = PyLong_FromSize_t(chosen);
    else
        result = Py_NewRef(Py_None);
cleanup:
    PyMem_Free(images);
    return result;
}
