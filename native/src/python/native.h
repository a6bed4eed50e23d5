/* What the files of the extension module `nova.runtime._native` share.
 *
 * Limited API of Python 3.11 and the C API of numpy 2: one build serves every later version. */
#ifndef NOVA_PYTHON_NATIVE_H
#define NOVA_PYTHON_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <string.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL nova_numpy_api
#ifndef NOVA_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "nova.h"

_Static_assert(sizeof(npy_intp) == sizeof(int64_t), "shapes are shared with numpy");

typedef struct {
    PyObject_HEAD
    nova_image *image;
} ImageObject;

/* An argument or output as the call path compares it with what it is given. */
typedef struct {
    PyArray_Descr *descr; /* owned */
    const npy_intp *dims; /* in the tables of the program */
    size_t nbytes;
    int rank;
    int flags; /* NPY_ARRAY_* that an array must have */
    int alias; /* outputs: index of the donated argument, or -1 */
} Spec;

/* PEP 590. The limited API shows these names from 3.12 on; 3.11 has the same bit and signature. */
enum { HAVE_VECTORCALL = 1 << 11 };
typedef PyObject *(*Vectorcall)(PyObject *callable, PyObject *const *args, size_t nargsf,
                                PyObject *kwnames);

typedef struct {
    PyObject_HEAD
    Vectorcall vectorcall;
    PyObject *image;   /* keeps the code mapped */
    PyObject *convert; /* convert(index, object, is_output) -> ndarray */
    nova_program *program;
    nova_pool *pool; /* NULL when no workspace is needed */
    Spec *args;
    Spec *outputs;
    Py_ssize_t arg_count;
    Py_ssize_t output_count;
    Py_ssize_t donated_count;
    /* Data pointers of the last call whose donated arguments were found to overlap nothing. Sizes
     * are fixed, so the same pointers need no second look. Guarded by the GIL. */
    void **disjoint;
    bool release_gil;
} ProgramObject;

/* Set once by the module's initialisation, and never changed. */
extern PyTypeObject *image_type;
extern PyType_Spec image_spec;
extern PyType_Spec program_spec;

/* Turns a status into the Python exception that fits, with `what` in front. */
void raise_status(nova_status status, const char *what);

/* program(*arrays, out=None) */
PyObject *program_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf,
                             PyObject *kwnames);

/* The same, for callers that come with a tuple and a dict. */
PyObject *program_call(PyObject *self, PyObject *args, PyObject *kwargs);

/* program.run(inputs, params=(), out=None) */
PyObject *program_run(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

#endif
