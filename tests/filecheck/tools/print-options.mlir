// RUN: %nova-opt %s --mlir-print-op-generic | %filecheck %s --check-prefix=GENERIC
// RUN: %nova-opt %s --mlir-print-debuginfo | %filecheck %s --check-prefix=DEBUG
// RUN: %nova-opt %s --cse --mlir-timing 2>&1 | %filecheck %s --check-prefix=TIMING
// RUN: %nova-opt %s -o %t | %filecheck %s --allow-empty --check-prefix=NOTHING
// RUN: %nova-opt %t | %filecheck %s --check-prefix=AGAIN
// RUN: %nova-opt --help | %filecheck %s --check-prefix=HELP
// RUN: %nova-opt --list-passes | %filecheck %s --check-prefix=LIST

// GENERIC: "func.func"()
// DEBUG: loc(
// TIMING: seconds share pass
// TIMING: 100.0% cse
// TIMING: 100.0% total
// NOTHING-NOT: func
// AGAIN: func.func @f
// HELP: usage: nova-opt
// HELP: --verify-diagnostics
// LIST: passes:
// LIST: pipelines:
func.func @f() {
  return
}
