// RUN: %nova-opt %s --fuse-elementwise | %filecheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>

// What a contraction reads stays apart, also where a reshape behind the contraction moves into it;
// what comes behind the reshape has the shape of the moved contraction.
// CHECK-LABEL: func.func @reshaped
// CHECK: %[[E:.*]] = linalg.generic
// CHECK: math.exp
// CHECK: %[[C:.*]] = linalg.{{generic|contract}}
// CHECK-SAME: ins(%[[E]], %{{.*}} : tensor<4x8xf32>, tensor<8x2x3xf32>)
// CHECK-NOT: math.exp
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[C]] : tensor<4x2x3xf32>)
// CHECK: math.tanh
// CHECK-NOT: nova.barrier
// CHECK: return
func.func @reshaped(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>) -> tensor<4x2x3xf32> {
  %0 = tensor.empty() : tensor<4x8xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x8xf32>) outs(%0 : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %9 = math.exp %in : f32
    linalg.yield %9 : f32
  } -> tensor<4x8xf32>
  %zero = arith.constant 0.0 : f32
  %2 = tensor.empty() : tensor<4x6xf32>
  %3 = linalg.fill ins(%zero : f32) outs(%2 : tensor<4x6xf32>) -> tensor<4x6xf32>
  %4 = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>] ins(%1, %w : tensor<4x8xf32>, tensor<8x6xf32>) outs(%3 : tensor<4x6xf32>) -> tensor<4x6xf32>
  %5 = tensor.expand_shape %4 [[0], [1, 2]] output_shape [4, 2, 3] : tensor<4x6xf32> into tensor<4x2x3xf32>
  %6 = tensor.empty() : tensor<4x2x3xf32>
  %7 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%5 : tensor<4x2x3xf32>) outs(%6 : tensor<4x2x3xf32>) {
  ^bb0(%in: f32, %out: f32):
    %9 = math.tanh %in : f32
    linalg.yield %9 : f32
  } -> tensor<4x2x3xf32>
  return %7 : tensor<4x2x3xf32>
}

// Each user counts by itself: no range of numbers is stored.
// CHECK-LABEL: func.func @counters
// CHECK-COUNT-2: linalg.index
// CHECK-NOT: linalg.index
// CHECK: return
func.func @counters(%x: tensor<8xi32>, %y: tensor<8xi32>) -> (tensor<8xi32>, tensor<8xi32>) {
  %0 = tensor.empty() : tensor<8xi32>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%0 : tensor<8xi32>) {
  ^bb0(%out: i32):
    %9 = linalg.index 0 : index
    %10 = arith.index_cast %9 : index to i32
    linalg.yield %10 : i32
  } -> tensor<8xi32>
  %2 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%1, %x : tensor<8xi32>, tensor<8xi32>) outs(%0 : tensor<8xi32>) {
  ^bb0(%a: i32, %b: i32, %out: i32):
    %9 = arith.addi %a, %b : i32
    linalg.yield %9 : i32
  } -> tensor<8xi32>
  %3 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%1, %y : tensor<8xi32>, tensor<8xi32>) outs(%0 : tensor<8xi32>) {
  ^bb0(%a: i32, %b: i32, %out: i32):
    %9 = arith.muli %a, %b : i32
    linalg.yield %9 : i32
  } -> tensor<8xi32>
  return %2, %3 : tensor<8xi32>, tensor<8xi32>
}
