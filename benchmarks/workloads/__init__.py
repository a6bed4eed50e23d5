"""The workloads, one a file, in the order of the report.

A workload has a TITLE, a KIND and CONTENDERS: a name for each, the library whose process it runs
in, and a function. The first contender is Nova's own: ratios are taken to it.

- KIND "loop": `arrays(**SIZES[size])` makes the inputs, `oracle(arrays)` the right results in f64,
  a contender's function takes the arrays and returns a `Case`, whose results must agree with the
  oracle's within TOLERANCE, before and after it is timed.
  With `work(**SIZES[size])`, the `harness.rates.Work` of a call, its rate is reported too.
- KIND "fresh": a contender's function runs once in a new process, checks its own result, and
  returns seconds by phase. With STARTS no more than that many processes are started.

A text in the place of a function says why a contender is not run.
"""

ORDER = (
    "call_overhead",
    "small_step",
    "train_small",
    "compile_cold",
    "compile_disk",
    "compile_long",
    "load_file",
    "import_time",
    "task_dispatch",
    "kernel_chain",
    "two_chains",
    "matmul",
    "matmul_bf16",
    "small_matmul",
    "constant_weights",
    "gelu_chain",
    "softmax",
    "attention",
    "mlp_step",
    "gpt_block",
    "train_mlp",
    "train_gpt",
    "train_compile_cold",
    "train_compile_disk",
    "trace_overhead",
    "sim_scaling",
)
