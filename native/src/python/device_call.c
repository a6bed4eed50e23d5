/* Programs for a device: how they are made, and what of a call differs from that of a CPU's. */
#include "devices.h"

/* --- making ----------------------------------------------------------------------------------- */

static bool load(ProgramObject *self, const Signature *signature, nova_device_code code,
                 const Py_buffer *constants)
{
    nova_error error;
    nova_tables tables;
    const nova_tables_limits limits = {
        .argument_count = signature->arg_count,
        .output_count = signature->output_count,
        .argument_nbytes = signature->nbytes,
        .output_nbytes = signature->nbytes + signature->arg_count,
        .constants_size = (uint64_t)constants->len,
    };
    if (nova_tables_check(self->tables.buf, (size_t)self->tables.len, &limits, &tables, &error) !=
        NOVA_OK) {
        raise_error(&error);
        return false;
    }
    const nova_device_source source = {
        .tables = &tables,
        .code = &code,
        .image = self->image != NULL ? ((ImageObject *)self->image)->image : NULL,
        .constants = constants->buf,
        .constants_size = (uint64_t)constants->len,
        .arguments = signature->tensors,
        .outputs = signature->tensors + signature->arg_count,
        .argument_count = signature->arg_count,
        .output_count = signature->output_count,
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
    static char *names[] = {"device", "tables",  "kind",    "arch",        "code", "constants",
                            "args",   "outputs", "convert", "input_count", "image", NULL};
    PyObject *device, *tables, *arg_rows, *output_rows, *convert, *host = NULL;
    const char *kind, *arch;
    Py_buffer code = {0}, constants = {0};
    Py_ssize_t input_count;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!Ossy*y*OOOn|O:on_device", names, device_type,
                                     &device, &tables, &kind, &arch, &code, &constants, &arg_rows,
                                     &output_rows, &convert, &input_count, &host))
        return NULL;
    if (host == Py_None)
        host = NULL;
    if (host != NULL && !PyObject_TypeCheck(host, image_type)) {
        PyErr_SetString(PyExc_TypeError, "image is neither an Image nor None");
        PyBuffer_Release(&code);
        PyBuffer_Release(&constants);
        return NULL;
    }
    ProgramObject *self = program_allocate((PyTypeObject *)type, convert, Py_None);
    bool made = false;
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
        made = read_signature(self, arg_rows, output_rows, &signature) &&
               hold_tables(self, tables) && load(self, &signature, image, &constants);
        signature_free(&signature);
    }
    PyBuffer_Release(&code);
    PyBuffer_Release(&constants);
    if (!made)
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* --- calling ---------------------------------------------------------------------------------- */

bool device_conforms(const ProgramObject *self, const Spec *spec, PyObject *object)
{
    return is_device_array((const DeviceObject *)self->device, spec, object);
}

void *device_data(PyObject *object)
{
    return (void *)(uintptr_t)((const DeviceArrayObject *)object)->address;
}

PyObject *device_exchange(const ProgramObject *self, const Spec *spec, PyObject *object)
{
    return exchange_device_array((DeviceObject *)self->device, spec, object);
}

bool read_place(PyObject *object, Place *place)
{
    if (object == Py_None)
        *place = WITH_INPUTS;
    else if (PyUnicode_Check(object) && PyUnicode_CompareWithASCIIString(object, "host") == 0)
        *place = ON_HOST;
    else if (PyUnicode_Check(object) && PyUnicode_CompareWithASCIIString(object, "device") == 0)
        *place = ON_DEVICE;
    else {
        PyErr_Format(PyExc_ValueError, "outputs is %R: it takes 'host', 'device' or None", object);
        return false;
    }
    return true;
}

/* The array of a slot: what was given, or what that was converted to. */
static PyObject *array_at(const Call *call, Py_ssize_t slot)
{
    return call->arrays[slot] != NULL ? call->arrays[slot] : call->given[slot];
}

bool device_place(ProgramObject *self, Call *call)
{
    const DeviceObject *device = (const DeviceObject *)self->device;
    Py_ssize_t deciding = self->input_count > 0 ? self->input_count : self->arg_count;
    bool any = false;
    void *own = nova_device_stream(device->device);
    call->stream = own;
    for (Py_ssize_t i = 0; i < self->arg_count; i++) {
        PyObject *array = array_at(call, i);
        if (!is_on_device(array))
            continue;
        any = true;
        if (i < deciding && call->place == WITH_INPUTS)
            call->place = ON_DEVICE;
        /* Memory of another library is used on that library's stream, which may free it there. */
        const DeviceArrayObject *on_device = (const DeviceArrayObject *)array;
        if (on_device->owner != NULL && call->stream == own)
            call->stream = on_device->stream;
    }
    if (call->place == WITH_INPUTS)
        call->place = ON_HOST;
    if (!any && call->place == ON_HOST)
        call->stream = NOVA_OWN_STREAM;
    return true;
}

PyObject *device_output(ProgramObject *self, const Call *call, const Spec *spec)
{
    if (call->place == ON_HOST)
        return make_output(spec);
    return make_device_array((DeviceObject *)self->device, spec, call->stream);
}

/* Enough for most programs; others take memory of the heap. */
enum { STACK_VALUES = 64 };

bool device_execute(ProgramObject *self, Call *call)
{
    DeviceObject *device = (DeviceObject *)self->device;
    Py_ssize_t count = self->arg_count + self->output_count;
    nova_device_value on_stack[STACK_VALUES], *values = on_stack;
    if (count > STACK_VALUES) {
        values = PyMem_Malloc((size_t)count * sizeof *values);
        if (values == NULL) {
            PyErr_NoMemory();
            return false;
        }
    }
    bool ready = true, waits = false;
    for (Py_ssize_t i = 0; ready && i < count; i++) {
        PyObject *array = array_at(call, i);
        bool on_device = is_on_device(array);
        values[i] = (nova_device_value){.host = call->data[i]};
        if (!on_device)
            continue;
        values[i] = (nova_device_value){.address = (uintptr_t)call->data[i]};
        if (call->stream == NOVA_OWN_STREAM) /* arrays that were brought for results alone */
            call->stream = nova_device_stream(device->device);
    }
    for (Py_ssize_t i = 0; ready && i < count; i++) {
        PyObject *array = array_at(call, i);
        if (!is_on_device(array))
            continue;
        ready = order_device_array((DeviceArrayObject *)array, call->stream);
        waits |= ((DeviceArrayObject *)array)->is_shared;
    }
    nova_status status = NOVA_OK;
    nova_error error;
    if (ready) {
        Py_BEGIN_ALLOW_THREADS
        status = nova_device_program_run(self->on_device, values, values + self->arg_count,
                                         call->stream, &error);
        if (status == NOVA_OK && waits)
            status = nova_device_synchronize(device->device, call->stream, &error);
        Py_END_ALLOW_THREADS
        if (status != NOVA_OK)
            raise_device_error(device, &error);
    }
    if (values != on_stack)
        PyMem_Free(values);
    return ready && status == NOVA_OK;
}
