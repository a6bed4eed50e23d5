/* Loops and branches as flows of the driver (nova/driver.h): graphs with conditional nodes. */
#include "gpu/control/device_control.h"

/* A builder that adds to a flow of the driver. */
typedef struct {
    nova_flow_builder calls;
    const nova_device_run *r;
} flow_builder;

static const nova_device_run *flow_run_of(const nova_flow_builder *builder)
{
    return ((const flow_builder *)builder)->r;
}

static nova_status flow_add_launch(nova_flow_builder *builder, void *body,
                                   const nova_flow_launch *launch)
{
    const nova_device_run *r = flow_run_of(builder);
    nova_driver *driver = r->device->driver;
    return nova_run_check(r, driver->flow_add_launch(driver, body, launch->call),
                          "a kernel of a loop cannot be launched");
}

static nova_status flow_add_copies(nova_flow_builder *builder, void *body,
                                   const nova_flow_copy *copies, uint32_t count)
{
    const nova_device_run *r = flow_run_of(builder);
    nova_driver *driver = r->device->driver;
    return nova_run_check(r, driver->flow_add_copies(driver, body, copies, count),
                          "a value of a loop cannot be copied");
}

static nova_status flow_add_loop(nova_flow_builder *builder, void *body, const nova_flow_loop *loop,
                                 void **inner)
{
    const nova_device_run *r = flow_run_of(builder);
    nova_driver *driver = r->device->driver;
    return nova_run_check(r, driver->flow_add_loop(driver, body, loop, inner),
                          "a loop cannot be made into a graph");
}

static nova_status flow_add_switch(nova_flow_builder *builder, void *body, uint64_t selector,
                                   uint64_t size, uint32_t count, void **branches)
{
    const nova_device_run *r = flow_run_of(builder);
    nova_driver *driver = r->device->driver;
    return nova_run_check(r, driver->flow_add_switch(driver, body, selector, size, count, branches),
                          "a branch cannot be made into a graph");
}

static nova_status flow_end_body(nova_flow_builder *builder, void *body)
{
    const nova_device_run *r = flow_run_of(builder);
    nova_driver *driver = r->device->driver;
    return nova_run_check(r, driver->flow_end_body(driver, body),
                          "a loop or branch cannot be made into a graph");
}

static nova_status flow_make(nova_device_run *r, const nova_device_step *step, bool is_dependent,
                             void **flow)
{
    nova_driver *driver = r->device->driver;
    const char *action = "a loop or branch cannot be made into a graph";
    flow_builder builder = {.calls = {.needs_ranges = driver->checks_ranges,
                                      .hoists_switches = true,
                                      .add_launch = flow_add_launch,
                                      .add_copies = flow_add_copies,
                                      .add_loop = flow_add_loop,
                                      .add_switch = flow_add_switch,
                                      .end_body = flow_end_body},
                            .r = r};
    void *created = NULL, *body = NULL;
    nova_status status = nova_run_check(r, driver->flow_create(driver, &created, &body), action);
    if (status != NOVA_OK)
        return status;
    status = nova_control_run_step(r, step, &builder.calls, body, is_dependent);
    if (status == NOVA_OK)
        status = nova_run_check(r, driver->flow_end_body(driver, body), action);
    if (status == NOVA_OK)
        status = nova_run_check(r, driver->flow_finish(driver, created), action);
    if (status == NOVA_OK) {
        *flow = created;
        r->counts.graphs++;
    } else {
        driver->flow_destroy(driver, created);
    }
    return status;
}

/* A driver may refuse dependent launches inside of conditional nodes: then all wait. */
nova_status nova_control_make_flow(nova_device_run *r, const nova_device_step *step, void **flow)
{
    bool is_dependent = r->program->has_dependent_flows;
    nova_status status = flow_make(r, step, is_dependent, flow);
    return status == NOVA_DEVICE_CALL && is_dependent ? flow_make(r, step, false, flow) : status;
}

nova_status nova_run_control(nova_device_run *r, const nova_device_graph *graph,
                             const nova_device_step *step)
{
    nova_driver *driver = r->device->driver;
    if (r->program->loops == NOVA_LOOPS_HOST)
        return nova_control_run_step(r, step, NULL, NULL, false);
    nova_trace_begin(r->trace, NOVA_SPAN_KERNEL, r->program->launches[step->first], 0, r->stream);
    int result = driver->flow_launch(driver, graph->flows[step->number], r->stream);
    nova_trace_end(r->trace, r->stream);
    r->counts.graph_launches++;
    return nova_run_check(r, result, "a loop or branch cannot be launched");
}
