/* The module `nova.runtime._native`: its two types, and the names of the buffer kinds. */
#define NOVA_IMPORTS_NUMPY
#include "native.h"

PyTypeObject *image_type;

void raise_status(nova_status status, const char *what)
{
    PyObject *type = PyExc_ValueError;
    if (status == NOVA_OUT_OF_MEMORY)
        type = PyExc_MemoryError;
    else if (status == NOVA_SYSTEM_ERROR)
        type = PyExc_OSError;
    PyErr_Format(type, "%s: %s", what, nova_status_text(status));
}

static int add_type(PyObject *module, PyType_Spec *spec, const char *name, PyTypeObject **keep)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type == NULL)
        return -1;
    int result = PyModule_AddObjectRef(module, name, type);
    if (result == 0 && keep != NULL)
        *keep = (PyTypeObject *)type;
    else
        Py_DECREF(type);
    return result;
}

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "nova.runtime._native",
    .m_doc = "Native half of the runtime: mapped code (Image) and its fast call path (Program).",
    .m_size = -1, /* one per process, as numpy itself */
};

PyMODINIT_FUNC PyInit__native(void)
{
    import_array();
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    if (add_type(module, &image_spec, "Image", &image_type) < 0 ||
        add_type(module, &program_spec, "Program", NULL) < 0 ||
        PyModule_AddIntConstant(module, "ARGUMENT", NOVA_ARGUMENT) < 0 ||
        PyModule_AddIntConstant(module, "OUTPUT", NOVA_OUTPUT) < 0 ||
        PyModule_AddIntConstant(module, "WORKSPACE", NOVA_WORKSPACE) < 0 ||
        PyModule_AddIntConstant(module, "CONSTANT", NOVA_CONSTANT) < 0 ||
        PyModule_AddIntConstant(module, "EXECUTE", NOVA_EXECUTE) < 0 ||
        PyModule_AddIntConstant(module, "WRITE", NOVA_WRITE) < 0 ||
        PyModule_AddIntConstant(module, "READ", NOVA_READ) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
