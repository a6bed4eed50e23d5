// RUN: %nova-opt %s --stablehlo-legalize-to-linalg --lower-select-and-scatter | %filecheck %s

// A loop over the windows, one over the elements of a window, and one update.
// CHECK-LABEL: func.func @main(
// CHECK: %[[START:.*]] = linalg.fill {{.*}} -> tensor<7xf32>
// CHECK: scf.for {{.*}} iter_args(%[[STATE:.*]] = %[[START]]) -> (tensor<7xf32>)
// CHECK: %[[SELECTED:.*]]:3 = scf.for {{.*}} -> (i1, f32, index)
// CHECK: arith.cmpf oge
// CHECK: tensor.extract %[[STATE]][%[[SELECTED]]#2]
// CHECK: arith.addf
// CHECK: tensor.insert
// CHECK-NOT: stablehlo.select_and_scatter
func.func @main(%x: tensor<7xf32>, %dy: tensor<3xf32>, %zero: tensor<f32>) -> tensor<7xf32> {
  %0 = "stablehlo.select_and_scatter"(%x, %dy, %zero) <{window_dimensions = array<i64: 3>, window_strides = array<i64: 2>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<7xf32>, tensor<3xf32>, tensor<f32>) -> tensor<7xf32>
  return %0 : tensor<7xf32>
}
