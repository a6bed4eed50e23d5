/* sim_run() and sim_lanes(): the GPU simulator of native/src/gpusim.
 *
 * Called by nova/gpusim/ with the records of its decoder; their sizes are checked here, the decoder
 * is responsible for their contents. */
#include "python/native.h"

#include "gpusim/sim.h"

#include "python/devices/devices.h"

typedef struct {
    Py_buffer code, operands, constants, ranges, params;
} Arguments;

static void gpusim_release(Arguments *arguments)
{
    Py_buffer *all[] = {&arguments->code, &arguments->operands, &arguments->constants,
                        &arguments->ranges, &arguments->params};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i]->obj != NULL)
            PyBuffer_Release(all[i]);
}

static bool gpusim_is_array_of(const Py_buffer *buffer, size_t size)
{
    return (size_t)buffer->len % size == 0 && (size_t)buffer->len / size < UINT32_MAX &&
           (uintptr_t)buffer->buf % 8 == 0;
}

/* Blocks of up to 1024 threads; as many blocks as the simulator can number. */
static bool gpusim_fits(const Arguments *arguments, const sim_launch *launch)
{
    uint64_t threads = 1, blocks = 1;
    for (int i = 0; i < 3; i++) {
        threads *= launch->block[i] <= 1024 ? launch->block[i] : 0;
        blocks = blocks < MOST_BLOCKS ? blocks * launch->grid[i] : MOST_BLOCKS;
    }
    uint64_t cluster = 1;
    for (int i = 0; i < 3; i++) {
        uint32_t size = launch->cluster[i];
        cluster *= size <= MOST_CLUSTER && size > 0 && launch->grid[i] % size == 0 ? size : 0;
    }
    return cluster > 0 && cluster <= MOST_CLUSTER &&
           gpusim_is_array_of(&arguments->code, sizeof(sim_instruction)) &&
           arguments->code.len > 0 &&
           gpusim_is_array_of(&arguments->operands, sizeof(sim_operand)) &&
           gpusim_is_array_of(&arguments->constants, sizeof(uint64_t)) &&
           gpusim_is_array_of(&arguments->ranges, sizeof(sim_range)) &&
           (size_t)arguments->params.len < UINT32_MAX && threads > 0 && threads <= 1024 &&
           blocks > 0 && blocks < (launch->is_cooperative ? MOST_RESIDENT + 1 : MOST_BLOCKS);
}

PyObject *describe_fault(const sim_fault *fault)
{
    return Py_BuildValue(
        "iI(III)(III)OO(III)(III)KIiOs", (int)fault->kind, fault->line, fault->block[0],
        fault->block[1], fault->block[2], fault->thread[0], fault->thread[1], fault->thread[2],
        fault->has_other ? Py_True : Py_False, fault->other_writes ? Py_True : Py_False,
        fault->other_block[0], fault->other_block[1], fault->other_block[2], fault->other[0],
        fault->other[1], fault->other[2], (unsigned long long)fault->address, fault->bytes,
        (int)fault->space, fault->writes ? Py_True : Py_False, fault->detail);
}

PyObject *module_sim_run(PyObject *module, PyObject *args)
{
    (void)module;
    Arguments arguments = {0};
    sim_kernel kernel = {0};
    sim_launch launch = {0};
    unsigned long long most_steps;
    int check_races, is_cooperative;
    if (!PyArg_ParseTuple(
            args, "y*y*y*(IIII)y*y*(III)(III)(III)IKpIp:sim_run", &arguments.code,
            &arguments.operands, &arguments.constants, &kernel.register_words, &kernel.shared_bytes,
            &kernel.local_bytes, &kernel.thread_registers, &arguments.ranges, &arguments.params,
            &launch.grid[0], &launch.grid[1], &launch.grid[2], &launch.block[0], &launch.block[1],
            &launch.block[2], &launch.cluster[0], &launch.cluster[1], &launch.cluster[2],
            &launch.dynamic_shared, &most_steps, &check_races, &launch.schedule, &is_cooperative))
        return NULL;
    launch.is_cooperative = (uint8_t)is_cooperative;
    PyObject *result = NULL;
    if (!gpusim_fits(&arguments, &launch)) {
        PyErr_SetString(PyExc_ValueError, "these arrays are not a launch");
    } else {
        kernel.code = arguments.code.buf;
        kernel.length = (uint32_t)((size_t)arguments.code.len / sizeof(sim_instruction));
        kernel.operands = arguments.operands.buf;
        kernel.constants = arguments.constants.buf;
        kernel.constant_count = (uint32_t)((size_t)arguments.constants.len / sizeof(uint64_t));
        uint64_t steps = 0;
        launch.ranges = arguments.ranges.buf;
        launch.range_count = (uint32_t)((size_t)arguments.ranges.len / sizeof(sim_range));
        launch.params = arguments.params.buf;
        launch.param_bytes = (uint32_t)arguments.params.len;
        launch.most_steps = most_steps;
        launch.check_races = (uint8_t)check_races;
        launch.steps = &steps;
        sim_fault fault;
        int failed;
        Py_BEGIN_ALLOW_THREADS
        failed = nova_sim_run(&kernel, &launch, &fault);
        Py_END_ALLOW_THREADS
        PyObject *fault_tuple = failed ? describe_fault(&fault) : Py_NewRef(Py_None);
        if (fault_tuple != NULL)
            result = Py_BuildValue("KN", (unsigned long long)steps, fault_tuple);
    }
    gpusim_release(&arguments);
    return result;
}

/* sim_check_tensor_map(bytes): None, or what the driver would refuse. */
PyObject *module_sim_check_tensor_map(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer bytes;
    if (!PyArg_ParseTuple(args, "y*:sim_check_tensor_map", &bytes))
        return NULL;
    sim_tensor_map map;
    const char *wrong = "a tensor map has 128 bytes";
    if ((size_t)bytes.len == sizeof map) {
        memcpy(&map, bytes.buf, sizeof map);
        wrong = nova_sim_check_tensor_map(&map);
    }
    PyBuffer_Release(&bytes);
    return wrong != NULL ? PyUnicode_FromString(wrong) : Py_NewRef(Py_None);
}

PyObject *module_sim_lanes(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *rows = PyList_New(0);
    const sim_lane_facts *facts;
    for (uint32_t i = 0; rows != NULL && (facts = nova_sim_lane(i)) != NULL; i++) {
        PyObject *row = Py_BuildValue("s(iiiii)", facts->name, facts->out, facts->in[0],
                                      facts->in[1], facts->in[2], facts->in[3]);
        if (row == NULL || PyList_Append(rows, row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    return rows;
}
