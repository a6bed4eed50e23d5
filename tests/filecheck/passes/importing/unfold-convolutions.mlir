// RUN: %nova-opt %s --unfold-convolutions | %filecheck %s
// RUN: %nova-opt %s --unfold-convolutions=max-elements=100 | %filecheck %s --check-prefix=LARGE

#x = affine_map<(n, i, o, k, c) -> (n, i * 2 + k, c)>
#w = affine_map<(n, i, o, k, c) -> (k, c, o)>
#y = affine_map<(n, i, o, k, c) -> (n, i, o)>

// The windows are copied in the order of the output, then of the filter; the rest is a product.
// CHECK: #[[WINDOW:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1 * 2 + d2, d3)>
// CHECK: #[[ROWS:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
// CHECK-LABEL: func.func @conv(
// CHECK: %[[U:.*]] = linalg.generic {indexing_maps = [#[[WINDOW]], {{.*}} ins(%arg0
// CHECK: -> tensor<2x4x3x5xf32>
// CHECK: linalg.generic {indexing_maps = [#[[ROWS]], {{.*}} ins(%[[U]], %arg1
// LARGE-LABEL: func.func @conv(
// LARGE: ins(%arg0, %arg1
func.func @conv(%x: tensor<2x9x5xf32>, %w: tensor<3x5x8xf32>, %y: tensor<2x4x8xf32>) -> tensor<2x4x8xf32> {
  %0 = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]} ins(%x, %w : tensor<2x9x5xf32>, tensor<3x5x8xf32>) outs(%y : tensor<2x4x8xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %1 = arith.mulf %a, %b : f32
    %2 = arith.addf %c, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<2x4x8xf32>
  return %0 : tensor<2x4x8xf32>
}

// One filter makes no matrix.
// CHECK-LABEL: func.func @single(
// CHECK: ins(%arg0, %arg1
func.func @single(%x: tensor<10xf32>, %w: tensor<5xf32>, %y: tensor<6xf32>) -> tensor<6xf32> {
  %0 = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i + k)>, affine_map<(i, k) -> (k)>, affine_map<(i, k) -> (i)>], iterator_types = ["parallel", "reduction"]} ins(%x, %w : tensor<10xf32>, tensor<5xf32>) outs(%y : tensor<6xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %1 = arith.mulf %a, %b : f32
    %2 = arith.addf %c, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<6xf32>
  return %0 : tensor<6xf32>
}
