/* Memory of large results: blocks of the caching allocator, which numpy frees with the array.
 *
 * numpy lets the owner of a block define how it is freed (memory handlers, NEP 49). So a result is
 * an array that owns its data, like any other: it can be resized, pickled, shared by DLPack and
 * viewed. */
#include "python/native.h"

#include "base/caching_allocator.h"

/* Smaller ones are numpy's: the C library reuses their memory too, and a handler costs 0.3 us. */
enum { LEAST_BYTES = 256 << 10 };

static bool result_pooled = true; /* guarded by the GIL */
static PyObject *result_handler;  /* a capsule; set once by the module's initialization */

static void *result_take(void *context, size_t size)
{
    (void)context;
    return nova_blocks_take(size);
}

static void *result_take_zeroed(void *context, size_t count, size_t size)
{
    (void)context;
    size_t bytes;
    void *block = __builtin_mul_overflow(count, size, &bytes) ? NULL : nova_blocks_take(bytes);
    return block != NULL ? memset(block, 0, bytes) : NULL;
}

static void result_give(void *context, void *block, size_t size)
{
    (void)context, (void)size;
    nova_blocks_give(block);
}

static void *result_resize(void *context, void *block, size_t size)
{
    (void)context;
    size_t capacity = block != NULL ? nova_blocks_capacity(block) : 0;
    if (size <= capacity && size >= capacity / 2)
        return block;
    void *other = nova_blocks_take(size);
    if (other == NULL)
        return NULL;
    if (block != NULL)
        memcpy(other, block, size < capacity ? size : capacity);
    nova_blocks_give(block);
    return other;
}

bool init_result_memory(void)
{
    static PyDataMem_Handler functions = {
        "nova_output", 1, {NULL, result_take, result_take_zeroed, result_resize, result_give}};
    result_handler = PyCapsule_New(&functions, "mem_handler", NULL); /* the name that numpy wants */
    return result_handler != NULL;
}

static PyObject *result_make_array(const Spec *spec)
{
    Py_INCREF((PyObject *)spec->descr); /* stolen by the next call */
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, spec->descr, spec->rank, spec->dims, NULL,
                                           NULL, 0, NULL);
    if (array == NULL && PyErr_ExceptionMatches(PyExc_MemoryError)) {
        char message[64];
        PyErr_Clear();
        snprintf(message, sizeof message, "there is no memory for a result of %zu bytes",
                 spec->nbytes);
        raise_run_status(NOVA_OUT_OF_MEMORY, message);
    }
    return array;
}

PyObject *result_array(const Spec *spec)
{
    if (spec->nbytes < LEAST_BYTES || !result_pooled)
        return result_make_array(spec);
    PyObject *others = PyDataMem_SetHandler(result_handler); /* in this context */
    if (others == NULL)
        return NULL;
    PyObject *array = result_make_array(spec);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *previous = PyDataMem_SetHandler(others);
    Py_DECREF(others);
    if (previous == NULL) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        Py_XDECREF(array);
        return NULL;
    }
    Py_DECREF(previous);
    PyErr_Restore(type, value, traceback);
    return array;
}

/* --- functions of the module ------------------------------------------------------------------ */

PyObject *module_configure_outputs(PyObject *module, PyObject *args)
{
    (void)module;
    unsigned long long limit;
    double seconds;
    if (!PyArg_ParseTuple(args, "Kd:configure_outputs", &limit, &seconds))
        return NULL;
    if (!(seconds >= 0 && seconds < 1e9)) {
        PyErr_SetString(PyExc_ValueError, "seconds must be 0 or more, and below 1e9");
        return NULL;
    }
    result_pooled = limit > 0;
    nova_blocks_configure(limit, (uint64_t)(seconds * 1e9));
    Py_RETURN_NONE;
}

PyObject *module_clear_outputs(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    nova_blocks_clear();
    Py_RETURN_NONE;
}

PyObject *module_outputs_info(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    nova_blocks_info info = nova_blocks_get_info();
    return Py_BuildValue("(KKKKKKK)", (unsigned long long)info.limit,
                         (unsigned long long)info.idle_bytes, (unsigned long long)info.idle_count,
                         (unsigned long long)info.live_bytes, (unsigned long long)info.live_count,
                         (unsigned long long)info.reused, (unsigned long long)info.mapped);
}
