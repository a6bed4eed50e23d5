/* Loop unswitching: a switch whose selector is a constant of a loop is around the loop.
 *
 * A conditional node costs an iteration microseconds, and no launch starts early across it. So the
 * loop is in each branch of one switch, and its body has the launches of that branch. A loop inside
 * of such a branch keeps its own switches: the launches of a flow are at most as many times as the
 * switch has branches. */
#include <stdlib.h>

#include "gpu/control/control_call.h"

control_switch nova_control_find_switch(const control_sink *sink, const nova_tables *tables,
                                        const nova_control_record *control)
{
    bool is_while = control->construct == NOVA_LOOP_WHILE;
    const nova_device_program *program = sink->r->program;
    if (sink->builder == NULL || !sink->builder->hoists_switches || sink->selector != 0 ||
        control->construct == NOVA_SWITCH ||
        (!is_while && nova_control_is_unrolled(program, tables, control)))
        return (control_switch){0};
    const nova_tables *inner =
        &program->regions[tables->container.regions[control->first_region]].tables;
    uint32_t first = is_while ? 0 : 1; /* a loop over positions has its position before them */
    for (uint32_t i = 0; i < inner->header->launch_count; i++) {
        const nova_launch_record *launch = &inner->launches[i];
        if ((inner->kernels[launch->kernel].core & NOVA_CONTROL) == 0)
            continue;
        const nova_control_record *found = nova_tables_control(inner, launch->kernel);
        const nova_buffer *selector = &inner->buffers[inner->operands[launch->first_operand]];
        if (found->construct == NOVA_SWITCH && selector->kind == NOVA_ARGUMENT &&
            selector->value >= first && selector->value - first < control->constants)
            return (control_switch){(uint32_t)selector->value - first + (is_while ? 1 : 0),
                                    found->region_count};
    }
    return (control_switch){0};
}

nova_status nova_control_unswitch(const control_sink *sink, const control_frame *frame,
                                  const nova_launch_record *launch, control_switch constant)
{
    nova_flow_builder *builder = sink->builder;
    const nova_tables *tables = &frame->region->tables;
    const nova_buffer *buffer =
        &tables->buffers[tables->operands[launch->first_operand + constant.operand]];
    void **branches = calloc(constant.count + UINT64_C(1), sizeof *branches);
    if (branches == NULL)
        return nova_control_no_memory(sink);
    uint64_t selector = nova_control_address(sink, frame, buffer);
    nova_status status = builder->add_switch(builder, sink->body, selector, buffer->nbytes,
                                             constant.count, branches);
    for (uint32_t i = 0; status == NOVA_OK && i < constant.count; i++) {
        control_sink branch = *sink;
        branch.body = branches[i];
        branch.selector = selector;
        branch.selected = i;
        branch.count = constant.count;
        status = nova_control_run_call(&branch, frame, launch);
        if (status == NOVA_OK)
            status = builder->end_body(builder, branches[i]);
    }
    free(branches);
    return status;
}
