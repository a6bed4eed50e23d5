// RUN: not %nova-opt %s --pass-pipeline='builtin.module(cse,no-such-pass)' 2>&1 | %filecheck %s --check-prefix=UNKNOWN
// RUN: not %nova-opt %s --pass-pipeline='builtin.module(func.func(cse)' 2>&1 | %filecheck %s --check-prefix=OPEN
// RUN: not %nova-opt %s --pass-pipeline='builtin.module(cse,)' 2>&1 | %filecheck %s --check-prefix=COMMA
// RUN: not %nova-opt %s --pass-pipeline='canonicalize{top-down=1' 2>&1 | %filecheck %s --check-prefix=BRACE
// RUN: not %nova-opt %s --canonicalize=no-such-option 2>&1 | %filecheck %s --check-prefix=OPTION
// RUN: not %nova-opt %s --affine-loop-tile 2>&1 | %filecheck %s --check-prefix=ANCHOR
// RUN: not %nova-opt %s --cse --pass-pipeline=cse 2>&1 | %filecheck %s --check-prefix=BOTH
// RUN: not %nova-opt %s %s 2>&1 | %filecheck %s --check-prefix=TWO
// RUN: not %nova-opt %s --transform-interpreter 2>&1 | %filecheck %s --check-prefix=FAILED
// RUN: not %nova-opt no-such-file.mlir 2>&1 | %filecheck %s --check-prefix=FILE

// UNKNOWN: nova-opt: error: there is no pass `no-such-pass`, neither in Nova nor in MLIR
// UNKNOWN-NEXT: builtin.module(cse,no-such-pass)
// UNKNOWN-NEXT: {{^ {21}\^$}}
// OPEN: error: this `(` is not closed
// COMMA: error: expected the name of a pass
// BRACE: error: this `{` is not closed
// OPTION: error: MLIR does not take `canonicalize{no-such-option}`: {{.*}}no such option no-such-option
// ANCHOR: error: MLIR does not take `affine-loop-tile`: {{.*}}restricted to 'func.func'
// BOTH: error: `--cse` cannot be combined with --pass-pipeline
// TWO: error: unexpected argument
// FAILED: pipeline-errors.mlir: error: could not find a nested named sequence with name: __transform_main
// FILE: nova-opt: no-such-file.mlir: No such file or directory
func.func @f() {
  return
}
