// RUN: %nova-opt %s --canonicalize --cse --mlir-print-ir-after-all 2>&1 | %filecheck %s --check-prefix=ALL
// RUN: %nova-opt %s --canonicalize --cse --mlir-print-ir-after=cse 2>&1 | %filecheck %s --check-prefix=ONE
// RUN: %nova-opt %s --pass-pipeline='builtin.module(func.func(cse),canonicalize{max-iterations=3})' \
// RUN:   --mlir-print-ir-after=cse 2>&1 | %filecheck %s --check-prefix=NESTED
// RUN: not %nova-opt %s --canonicalize --mlir-print-ir-after=cse 2>&1 | %filecheck %s --check-prefix=ABSENT

// ALL: IR Dump After canonicalize
// ALL: func.func @f
// ALL: IR Dump After cse
// ALL: func.func @f

// ONE-NOT: IR Dump After canonicalize
// ONE: IR Dump After cse
// ONE: func.func @f

// NESTED: IR Dump After func.func(cse)
// NESTED-NOT: IR Dump After canonicalize

// ABSENT: nova-opt: error: --mlir-print-ir-after: `cse` is not in the pipeline
func.func @f() {
  return
}
