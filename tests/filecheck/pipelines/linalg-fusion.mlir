// RUN: %nova-opt %s --linalg-fusion | %filecheck %s

// Elementwise work on one value is one loop with one body.
// CHECK-LABEL: func.func @main(
// CHECK: linalg.generic
// CHECK: %[[E:.*]] = math.exp
// CHECK-NEXT: arith.addf %[[E]], %[[E]]
// CHECK-NOT: linalg.generic
// CHECK: return
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = tensor.empty() : tensor<4x8xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x8xf32>) outs(%0 : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %3 = math.exp %in : f32
    linalg.yield %3 : f32
  } -> tensor<4x8xf32>
  %2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%1, %1 : tensor<4x8xf32>, tensor<4x8xf32>) outs(%0 : tensor<4x8xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %3 = arith.addf %a, %b : f32
    linalg.yield %3 : f32
  } -> tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
}

// Named ops are general afterwards: what comes later knows one op only.
// CHECK-LABEL: func.func @named(
// CHECK: iterator_types = ["parallel", "parallel", "reduction"]
// CHECK-NOT: linalg.matmul
// CHECK-NOT: linalg.fill
// CHECK: return
func.func @named(%x: tensor<4x8xf32>, %y: tensor<8x4xf32>) -> tensor<4x4xf32> {
  %zero = arith.constant 0.0 : f32
  %0 = tensor.empty() : tensor<4x4xf32>
  %1 = linalg.fill ins(%zero : f32) outs(%0 : tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = linalg.matmul ins(%x, %y : tensor<4x8xf32>, tensor<8x4xf32>) outs(%1 : tensor<4x4xf32>) -> tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}

// Unit dimensions do not stay in the loops.
// CHECK-LABEL: func.func @unit(
// CHECK: iterator_types = ["parallel"]
#unit = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
func.func @unit(%x: tensor<1x8x1xf32>) -> tensor<1x8x1xf32> {
  %0 = tensor.empty() : tensor<1x8x1xf32>
  %1 = linalg.generic {indexing_maps = [#unit, #unit], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x : tensor<1x8x1xf32>) outs(%0 : tensor<1x8x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %2 = math.exp %in : f32
    linalg.yield %2 : f32
  } -> tensor<1x8x1xf32>
  return %1 : tensor<1x8x1xf32>
}
