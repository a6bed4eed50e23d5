// RUN: not %nova-opt %s --split-input-file --verify-diagnostics 2>&1 | %filecheck %s

// CHECK: verify-diagnostics-wrong.mlir:[[# @LINE + 2]]:3: error: unexpected error: 'func.return' op has 0 operands
func.func @unexpected() -> i32 {
  return
}

// -----

// CHECK: verify-diagnostics-wrong.mlir:[[# @LINE + 2]]:6: error: expected warning "not there" was not produced
func.func @missing() {
  // expected-warning @+1 {{not there}}
  return
}

// -----

// CHECK: verify-diagnostics-wrong.mlir:[[# @LINE + 2]]:6: error: malformed expectation
func.func @malformed() {
  // expected-error {not enough braces}
  return
}

// -----

// CHECK: error: unexpected error: 'func.return' op has 0 operands
// CHECK: error: expected error "another text" was not produced
func.func @different() -> i32 {
  // expected-error @+1 {{another text}}
  return
}
