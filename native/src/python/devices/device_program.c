/* Program.on_device: a program for a device, created from its code, tables and constants. */
#include "python/devices/devices.h"

/* What a program for one combination of symbolic sizes has in addition. */
typedef struct {
    const ProgramObject *shares; /* whose code and constants it uses; NULL: its own */
    Py_buffer values;            /* int64 */
} Sizes;

static bool device_program_load(ProgramObject *self, const Signature *signature,
                                nova_device_code code, const Py_buffer *constants,
                                const Sizes *sizes, int loops, int overlap, Py_ssize_t repeats,
                                bool has_ring)
{
    nova_error error;
    nova_tables tables;
    size_t stacked = repeats > 1 ? (size_t)self->input_count : 0;
    for (size_t i = 0; repeats > 1 && i < signature->arg_count + signature->output_count; i++)
        if (i < stacked || (i >= signature->arg_count && signature->tensors[i].alias < 0))
            signature->nbytes[i] /= repeats; /* that of one repetition, for the tables */
    if (!check_tables(self, signature, (uint64_t)constants->len, &tables))
        return false;
    const nova_device_source source = {
        .tables = &tables,
        .code = &code,
        .image = self->image != NULL ? ((ImageObject *)self->image)->image : NULL,
        .constants = constants->buf,
        .constants_size = (uint64_t)constants->len,
        .shares = sizes->shares != NULL ? sizes->shares->on_device : NULL,
        .sizes = sizes->values.buf,
        .size_count = (size_t)sizes->values.len / sizeof(int64_t),
        .arguments = signature->tensors,
        .outputs = signature->tensors + signature->arg_count,
        .argument_count = signature->arg_count,
        .output_count = signature->output_count,
        .loops = (nova_device_loops)loops,
        .repeats = (uint64_t)repeats,
        .stacked_count = stacked,
        .has_ring = has_ring,
        .overlap = (nova_device_overlap)overlap,
    };
    const DeviceObject *device = (const DeviceObject *)self->device;
    nova_status status;
    Py_BEGIN_ALLOW_THREADS
    status = nova_device_program_create(device->device, &source, &self->on_device, &error);
    Py_END_ALLOW_THREADS
    if (status != NOVA_OK)
        raise_device_error(device, &error);
    return status == NOVA_OK;
}

PyObject *program_on_device(PyObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"device",    "tables",  "kind",    "arch",    "code",
                            "constants", "args",    "outputs", "convert", "input_count",
                            "image",     "report",  "sizes",   "shares",  "loops",
                            "overlap",   "repeats", "ring",    NULL};
    PyObject *device, *tables, *arg_rows, *output_rows, *convert, *host = NULL, *report = Py_None;
    const char *kind, *arch;
    Py_buffer code = {0}, constants = {0};
    Py_ssize_t input_count;
    PyObject *shares = NULL;
    Sizes sizes = {0};
    int loops = NOVA_LOOPS_AUTO, overlap = NOVA_OVERLAP_AUTO;
    Py_ssize_t repeats = 1;
    int has_ring = 0;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "O!Ossy*y*OOOn|OOy*Oiinp:on_device", names, device_type, &device, &tables,
            &kind, &arch, &code, &constants, &arg_rows, &output_rows, &convert, &input_count, &host,
            &report, &sizes.values, &shares, &loops, &overlap, &repeats, &has_ring))
        return NULL;
    if (host == Py_None)
        host = NULL;
    if (shares == Py_None)
        shares = NULL;
    bool created = false;
    ProgramObject *self = NULL;
    if (host != NULL && !PyObject_TypeCheck(host, image_type))
        PyErr_SetString(PyExc_TypeError, "image is neither an Image nor None");
    else if (shares != NULL && !PyObject_TypeCheck(shares, (PyTypeObject *)type))
        PyErr_SetString(PyExc_TypeError, "shares is neither a Program nor None");
    else if ((uintptr_t)sizes.values.buf % sizeof(int64_t) != 0)
        PyErr_SetString(PyExc_ValueError, "sizes are not 8-byte aligned");
    else if (loops < NOVA_LOOPS_AUTO || loops > NOVA_LOOPS_HOST)
        PyErr_SetString(PyExc_ValueError, "loops is not one of 0, 1 and 2");
    else if (repeats < 1)
        PyErr_SetString(PyExc_ValueError, "repeats is less than 1");
    else if (overlap < NOVA_OVERLAP_AUTO || overlap > NOVA_OVERLAP_NONE)
        PyErr_SetString(PyExc_ValueError, "overlap is not one of 0, 1, 2 and 3");
    else
        self = program_allocate((PyTypeObject *)type, convert, report);
    sizes.shares = (const ProgramObject *)shares;
    if (self != NULL) {
        Py_INCREF(device);
        self->device = device;
        self->input_count = input_count;
        Py_XINCREF(host);
        self->image = host; /* code of the host, which runs use */
        const nova_device_code image = {
            .arch = arch,
            .data = code.buf,
            .size = (uint64_t)code.len,
            .kind = strcmp(kind, "cubin") == 0 ? NOVA_CUBIN : NOVA_PTX,
        };
        Signature signature = {0};
        created = read_signature(self, arg_rows, output_rows, &signature) &&
                  hold_tables(self, tables) &&
                  device_program_load(self, &signature, image, &constants, &sizes, loops, overlap,
                                      repeats, has_ring != 0);
        signature_free(&signature);
    }
    PyBuffer_Release(&code);
    PyBuffer_Release(&constants);
    if (sizes.values.obj != NULL)
        PyBuffer_Release(&sizes.values);
    if (!created)
        Py_CLEAR(self);
    return (PyObject *)self;
}
