/* Submitted runs and the calls beside them: none may write what another one uses. */
#include "calls.h"
#include "runs.h"

/* Whether a run writes slot `i`. */
static bool is_written(const ProgramObject *self, Py_ssize_t i)
{
    return i >= self->arg_count || (self->args[i].flags & NPY_ARRAY_WRITEABLE) != 0;
}

static size_t slot_size(const ProgramObject *self, Py_ssize_t i)
{
    return i < self->arg_count ? self->args[i].nbytes : self->outputs[i - self->arg_count].nbytes;
}

Py_ssize_t call_conflict(ProgramObject *self, const Call *call, ProgramObject *other,
                         const Call *other_call)
{
    Py_ssize_t count = self->arg_count + self->output_count;
    Py_ssize_t other_count = other->arg_count + other->output_count;
    for (Py_ssize_t i = 0; i < count; i++)
        for (Py_ssize_t k = 0; k < other_count; k++)
            if ((is_written(self, i) || is_written(other, k)) &&
                overlap(call->data[i], slot_size(self, i), other_call->data[k],
                        slot_size(other, k)))
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
    runs_reap();
    for (Run *run = runs_in_flight; run != NULL; run = run->after) {
        bool is_behind = stream != NULL && (PyObject *)run->stream == stream && !run_lingers(run);
        if (is_behind || run_is_over(run))
            continue;
        Py_ssize_t index = call_conflict(self, call, run->program, &run->call);
        if (index >= 0) {
            raise_in_use(self, index);
            return false;
        }
    }
    return true;
}
