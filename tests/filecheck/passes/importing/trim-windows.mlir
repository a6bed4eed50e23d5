// RUN: %nova-opt %s --trim-windows | %filecheck %s
// RUN: %nova-opt %s --trim-windows --linalg-fold-unit-extent-dims | %filecheck %s --check-prefix=FOLDED

#window = affine_map<(i, k) -> (i * 4 + k)>
#size = affine_map<(i, k) -> (k)>
#out = affine_map<(i, k) -> (i)>

// One window of four: the last three elements are cut off before unit loops are folded.
// CHECK-LABEL: func.func @single(
// CHECK: %[[FRONT:.*]] = linalg.generic {{.*}} outs({{.*}} : tensor<4xf32>)
// CHECK: tensor.extract %arg0
// CHECK: ins(%[[FRONT]], %arg1 : tensor<4xf32>, tensor<4xf32>)
// FOLDED-LABEL: func.func @single(
// FOLDED: iterator_types = ["reduction"]
func.func @single(%x: tensor<7xf32>, %w: tensor<4xf32>, %y: tensor<1xf32>) -> tensor<1xf32> {
  %0 = linalg.generic {indexing_maps = [#window, #size, #out], iterator_types = ["parallel", "reduction"]} ins(%x, %w : tensor<7xf32>, tensor<4xf32>) outs(%y : tensor<1xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %1 = arith.maximumf %a, %c : f32
    linalg.yield %1 : f32
  } -> tensor<1xf32>
  return %0 : tensor<1xf32>
}

// Two windows stay two loops.
// CHECK-LABEL: func.func @several(
// CHECK-NOT: tensor.extract
// CHECK: ins(%arg0, %arg1
func.func @several(%x: tensor<9xf32>, %w: tensor<4xf32>, %y: tensor<2xf32>) -> tensor<2xf32> {
  %0 = linalg.generic {indexing_maps = [#window, #size, #out], iterator_types = ["parallel", "reduction"]} ins(%x, %w : tensor<9xf32>, tensor<4xf32>) outs(%y : tensor<2xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %1 = arith.maximumf %a, %c : f32
    linalg.yield %1 : f32
  } -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
