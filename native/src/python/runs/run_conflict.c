/* Conflicts between submitted runs and calls of other threads: none may write an array that another
 * one uses. */
#include "python/calls/calls.h"
#include "python/runs/runs.h"

Running *calls_running;

void running_begin(Running *running, ProgramObject *program, const Call *call)
{
    *running = (Running){.program = program, .call = call, .after = calls_running};
    if (calls_running != NULL)
        calls_running->before = running;
    calls_running = running;
}

void running_end(Running *running)
{
    if (running->after != NULL)
        running->after->before = running->before;
    if (running->before != NULL)
        running->before->after = running->after;
    else if (calls_running == running)
        calls_running = running->after;
}

void calls_running_in_child(void)
{
    for (Running *next, *running = calls_running; running != NULL; running = next) {
        next = running->after;
        running->before = running->after = NULL;
    }
    calls_running = NULL;
}

/* Whether a run writes slot `i`. */
static bool conflict_is_written(const ProgramObject *self, Py_ssize_t i)
{
    return i >= self->arg_count || (self->args[i].flags & NPY_ARRAY_WRITEABLE) != 0;
}

static size_t conflict_slot_size(const ProgramObject *self, Py_ssize_t i)
{
    return i < self->arg_count ? self->args[i].nbytes : self->outputs[i - self->arg_count].nbytes;
}

static bool conflict_slots_overlap(const ProgramObject *self, const Call *call, Py_ssize_t i,
                                   const ProgramObject *other, const Call *other_call, Py_ssize_t k)
{
    return overlap(call->data[i], conflict_slot_size(self, i), other_call->data[k],
                   conflict_slot_size(other, k));
}

/* Only written arrays are compared with all arrays of the other side: programs that read many
 * params run concurrently, and every call takes this path. */
Py_ssize_t call_conflict(ProgramObject *self, const Call *call, ProgramObject *other,
                         const Call *other_call)
{
    Py_ssize_t count = self->arg_count + self->output_count;
    Py_ssize_t other_count = other->arg_count + other->output_count;
    for (Py_ssize_t i = 0; i < count; i++)
        for (Py_ssize_t k = 0; conflict_is_written(self, i) && k < other_count; k++)
            if (conflict_slots_overlap(self, call, i, other, other_call, k))
                return i;
    for (Py_ssize_t k = 0; k < other_count; k++)
        for (Py_ssize_t i = 0; conflict_is_written(other, k) && i < count; i++)
            if (conflict_slots_overlap(self, call, i, other, other_call, k))
                return i;
    return -1;
}

void raise_in_use(ProgramObject *self, Py_ssize_t index)
{
    bool is_output = index >= self->arg_count;
    ask_to_raise(self, -4, is_output ? index - self->arg_count : index, is_output,
                 "an array is in use by a run in flight");
}

bool check_in_flight(ProgramObject *self, const Call *call, PyObject *stream)
{
    if (runs_in_flight != NULL)
        runs_reap();
    for (const Running *other = calls_running; other != NULL; other = other->after) {
        Py_ssize_t index = call_conflict(self, call, other->program, other->call);
        if (index >= 0) {
            raise_in_use(self, index);
            return false;
        }
    }
    for (Run *run = runs_in_flight; run != NULL; run = run->after) {
        bool is_ordered_after =
            stream != NULL && (PyObject *)run->stream == stream && !run_lingers(run);
        if (is_ordered_after || run_is_over(run))
            continue;
        Py_ssize_t index = call_conflict(self, call, run->program, &run->call);
        if (index >= 0) {
            raise_in_use(self, index);
            return false;
        }
    }
    return true;
}
