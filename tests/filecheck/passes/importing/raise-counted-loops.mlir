// RUN: %nova-opt %s --raise-counted-loops | %filecheck %s

// A loop over rows as jax writes it: the counter and the unchanged operand are not carried, and rows
// are slices at the induction variable.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[XS:.*]]: tensor<20x4xf32>, %[[H:.*]]: tensor<1x4xf32>)
// CHECK: scf.for %[[I:.*]] = %{{.*}} to %{{.*}} step %{{.*}} iter_args(%[[C:.*]] = %[[H]], %[[YS:.*]] = %{{.*}})
// CHECK: %[[ROW:.*]] = tensor.extract_slice %[[XS]][%[[I]], 0] [1, 4] [1, 1]
// CHECK: %[[NEW:.*]] = stablehlo.add %[[C]], %[[ROW]]
// CHECK: %[[ALL:.*]] = tensor.insert_slice %[[NEW]] into %[[YS]][%[[I]], 0] [1, 4] [1, 1]
// CHECK: scf.yield %[[NEW]], %[[ALL]]
// CHECK-NOT: stablehlo.while
func.func @main(%xs: tensor<20x4xf32>, %h: tensor<1x4xf32>) -> (tensor<1x4xf32>, tensor<20x4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %stack = stablehlo.constant dense<0.0> : tensor<20x4xf32>
  %r:4 = stablehlo.while(%a = %xs, %i = %zero, %c = %h, %ys = %stack) : tensor<20x4xf32>, tensor<i32>, tensor<1x4xf32>, tensor<20x4xf32>
  cond {
    %n = stablehlo.constant dense<20> : tensor<i32>
    %again = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %again : tensor<i1>
  } do {
    %start = stablehlo.constant dense<0> : tensor<i32>
    %row = stablehlo.dynamic_slice %a, %i, %start, sizes = [1, 4] : (tensor<20x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
    %new = stablehlo.add %c, %row : tensor<1x4xf32>
    %all = stablehlo.dynamic_update_slice %ys, %new, %i, %start : (tensor<20x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<20x4xf32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %a, %next, %new, %all : tensor<20x4xf32>, tensor<i32>, tensor<1x4xf32>, tensor<20x4xf32>
  }
  return %r#2, %r#3 : tensor<1x4xf32>, tensor<20x4xf32>
}
