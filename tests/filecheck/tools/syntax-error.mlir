// RUN: not %nova-opt %s 2>&1 | %filecheck %s

// CHECK: syntax-error.mlir:[[# @LINE + 4]]:19: error: use of undeclared SSA value name
// CHECK-NEXT: {{^}}  %0 = arith.addi %nowhere, %a : i32{{$}}
// CHECK-NEXT: {{^ {18}\^$}}
func.func @f(%a: i32) -> i32 {
  %0 = arith.addi %nowhere, %a : i32
  return %0 : i32
}
