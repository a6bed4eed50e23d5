/* The module `nova._native`: its types and functions. */
#define NOVA_IMPORTS_NUMPY
#include "python/devices/devices.h"

PyTypeObject *image_type;
PyTypeObject *program_type;
PyTypeObject *symbolic_type;
PyTypeObject *run_type;
PyTypeObject *stream_type;

static PyObject *module_exception_for(nova_status status)
{
    if (status == NOVA_OUT_OF_MEMORY)
        return PyExc_MemoryError;
    return status == NOVA_SYSTEM_ERROR ? PyExc_OSError : PyExc_ValueError;
}

void raise_status(nova_status status, const char *context)
{
    PyErr_Format(module_exception_for(status), "%s: %s", context, nova_status_text(status));
}

void raise_run_status(nova_status status, const char *context)
{
    const char *name = status == NOVA_OUT_OF_MEMORY ? "RunMemoryError" : "RunError";
    PyObject *errors = PyImport_ImportModule("nova.errors");
    PyObject *type = errors != NULL ? PyObject_GetAttrString(errors, name) : NULL;
    PyErr_Clear(); /* without the package `nova`, the built-in class is used */
    PyErr_Format(type != NULL ? type : module_exception_for(status), "%s: %s", context,
                 nova_status_text(status));
    Py_XDECREF(type);
    Py_XDECREF(errors);
}

void raise_error(const nova_error *error)
{
    PyErr_SetString(module_exception_for(error->status), error->text);
}

static int module_add_type(PyObject *module, PyType_Spec *spec, const char *name,
                           PyTypeObject **keep)
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

static PyMethodDef module_functions[] = {
    {"limit_cpu", module_limit_cpu, METH_O,
     "limit_cpu(level)\n--\n\nHolds the process to a level: 1 is the baseline, 2 to 4 are "
     "x86-64-v2 to "
     "-v4, 5 is all, 0 what NOVA_CPU_LEVEL says."},
    {"cpu_features", module_cpu_features, METH_NOARGS,
     "cpu_features()\n--\n\nFeatures of this processor and system, by LLVM's names."},
    {"allowed_imports", module_allowed_imports, METH_NOARGS,
     "allowed_imports()\n--\n\nFunctions of the C library that a file may import, sorted."},
    {"choose_image", module_choose_image, METH_VARARGS,
     "choose_image(images, major, minor)\n--\n\nThe index of the (kind, arch) that a device of "
     "this "
     "compute capability takes, or None."},
    {"read_dlpack", module_read_dlpack, METH_O,
     "read_dlpack(capsule, /)\n--\n\n(address, device number, shape, code, bits, is dense) of an "
     "array "
     "that DLPack describes."},
    {"plan_tasks", module_plan_tasks, METH_VARARGS,
     "plan_tasks(block, workers, worth_ns, outputs, on_device=False, /)\n--\n\nThe tasks of a "
     "block of tables with tilings, for so many threads, or with at most so many tasks of a launch "
     "on a device: (tasks, successors)."},
    {"simulate", module_simulate, METH_VARARGS,
     "simulate(tasks, successors, kinds, costs, cores, policy, seed)\n--\n\nSimulates a task graph "
     "on "
     "virtual cores: (timeline, makespan, critical cost, lower bound)."},
    {"sim_run", module_sim_run, METH_VARARGS,
     "sim_run(code, operands, constants, sizes, ranges, params, grid, block, cluster, "
     "dynamic_shared, most_steps, check_races, schedule)\n--\n\nRuns a kernel on the simulated "
     "GPU: (instructions of all "
     "warps, fault or None)."},
    {"sim_check_tensor_map", module_sim_check_tensor_map, METH_VARARGS,
     "sim_check_tensor_map(map)\n--\n\nNone, or what the driver would refuse of a tensor map of "
     "the simulated GPU."},
    {"sim_lanes", module_sim_lanes, METH_NOARGS,
     "sim_lanes()\n--\n\nThe simulated GPU's arithmetic: (name, bits of the result and of each "
     "operand), in the order of their numbers."},
    {"measure_flops", module_measure_flops, METH_VARARGS,
     "measure_flops(seconds)\n--\n\nOperations a second of one core, at best."},
    {"measure_copy", module_measure_copy, METH_VARARGS,
     "measure_copy(nbytes, seconds)\n--\n\nBytes read and written a second by one core."},
    {"trace_into", module_trace_into, METH_O,
     "trace_into(lists)\n--\n\nHas every run that starts from now on append (program, start, end, "
     "workers, policy, lost, "
     "records, threads that its tasks were cut for) to these lists, or (program, trace) when it is "
     "on a device."},
    {"read_device_trace", module_read_device_trace, METH_O,
     "read_device_trace(trace)\n--\n\nWaits for the run: (start, end, lost, spans, numbers of the "
     "values that they name)."},
    {"configure", module_configure, METH_VARARGS,
     "configure(threads, policy, pin)\n--\n\nSets the threads of the process and how they pick "
     "tasks."},
    {"override", module_override, METH_VARARGS,
     "override(threads, policy, pin)\n--\n\nOther values for runs of this thread; 0 and -1: none."},
    {"configure_outputs", module_configure_outputs, METH_VARARGS,
     "configure_outputs(limit, seconds)\n--\n\nKeeps up to so many bytes of dropped results for so "
     "long; 0: none."},
    {"clear_outputs", module_clear_outputs, METH_NOARGS,
     "clear_outputs()\n--\n\nReturns the memory of all dropped results to the system."},
    {"outputs_info", module_outputs_info, METH_NOARGS,
     "outputs_info()\n--\n\n(limit, idle bytes, idle, live bytes, live, reused, mapped)."},
    {"await_finished", module_await_finished, METH_NOARGS,
     "await_finished()\n--\n\nWaits for submitted runs that ended and that nobody waits for: a "
     "list."},
    {"reap", module_reap, METH_NOARGS,
     "reap()\n--\n\nReleases the arrays of all submitted runs that ended."},
    {"await_traced", module_await_traced, METH_O,
     "await_traced(list)\n--\n\nWaits for the submitted runs that append to this list of "
     "trace_into()."},
    {"drain", module_drain, METH_NOARGS,
     "drain()\n--\n\nWaits for all submitted runs; none can be submitted any more."},
    {0},
};

static PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "nova._native",
    .m_doc = "Native half of the runtime: checked files (File), mapped code (Image) and its fast "
             "call path (Program).",
    .m_size = -1, /* one per process, as numpy itself */
    .m_methods = module_functions,
};

PyMODINIT_FUNC PyInit__native(void)
{
    import_array();
    PyObject *module = PyModule_Create(&module_definition);
    if (module == NULL)
        return NULL;
    PyObject *file_error = make_file_error();
    static const struct {
        const char *name;
        int value;
    } numbers[] = {
        {"CANCELLED", NOVA_CANCELLED},       {"TIMEOUT", NOVA_TIMEOUT},
        {"STALLED", NOVA_STALLED},           {"TASK_REPORTED", NOVA_TASK_REPORTED},
        {"MAX_THREADS", NOVA_MAX_WORKERS},   {"KEEP_GIL_WORK", KEEP_GIL_WORK},
        {"UNSUPPORTED", NOVA_UNSUPPORTED},   {"NO_DRIVER", NOVA_NO_DRIVER},
        {"WRONG_DEVICE", NOVA_WRONG_DEVICE}, {"DEVICE_MEMORY", NOVA_DEVICE_MEMORY},
        {"DEVICE_CODE", NOVA_DEVICE_CODE},   {"DEVICE_FAULT", NOVA_DEVICE_FAULT},
        {"DEVICE_CALL", NOVA_DEVICE_CALL},   {"SIMULATED_FAULT", NOVA_SIMULATED_FAULT},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (PyModule_AddIntConstant(module, numbers[i].name, numbers[i].value) < 0) {
            Py_XDECREF(file_error);
            Py_DECREF(module);
            return NULL;
        }
    if (file_error == NULL || PyModule_AddObjectRef(module, "FileError", file_error) < 0 ||
        module_add_type(module, &file_spec, "File", NULL) < 0 ||
        module_add_type(module, &image_spec, "Image", &image_type) < 0 ||
        module_add_type(module, &program_spec, "Program", &program_type) < 0 ||
        module_add_type(module, &symbolic_spec, "Symbolic", &symbolic_type) < 0 ||
        module_add_type(module, &sized_programs_spec, "SizedPrograms", NULL) < 0 ||
        module_add_type(module, &driver_spec, "Driver", &driver_type) < 0 ||
        module_add_type(module, &device_spec, "Device", &device_type) < 0 ||
        module_add_type(module, &device_array_spec, "DeviceArray", &device_array_type) < 0 ||
        module_add_type(module, &run_spec, "Run", &run_type) < 0 ||
        module_add_type(module, &stream_spec, "Stream", &stream_type) < 0 || !init_runs() ||
        !init_result_memory()) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
