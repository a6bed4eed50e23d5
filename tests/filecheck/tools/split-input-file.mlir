// RUN: %nova-opt %s --split-input-file --cse | %filecheck %s

// CHECK-LABEL: func.func @twice
// CHECK: %[[SUM:.*]] = arith.addf
// CHECK-NEXT: arith.mulf %[[SUM]], %[[SUM]]
func.func @twice(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.addf %a, %a : tensor<4xf32>
  %1 = arith.addf %a, %a : tensor<4xf32>
  %2 = arith.mulf %0, %1 : tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----

// The same name again: parts do not see each other.
// CHECK: // -----
// CHECK-LABEL: func.func @twice
func.func @twice() {
  return
}
