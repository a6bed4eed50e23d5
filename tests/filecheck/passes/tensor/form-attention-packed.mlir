// RUN: %nova-opt %s --form-attention=pack=true --wrap-attention | %filecheck %s

// Gradients that are only joined are results of one op, in one tensor.
// CHECK-DAG: #[[Q:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d2, 0, d1, d4)>
// CHECK-DAG: #[[K:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, 1, d1, d4)>
// CHECK-DAG: #[[V:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, 2, d1, d5)>
// CHECK-LABEL: func.func @joined(
// CHECK: linalg.generic {{.*}} outs({{.*}} : tensor<4x5x3x2x8xf32>)
// CHECK: nova.attend_gradient_point {{.*}}packed = [#[[Q]], #[[K]], #[[V]]]
// CHECK: nova.reshape {{.*}} {shape = array<i64: 4, 5, 48>}
// CHECK-NOT: nova.join
func.func @joined(%g: tensor<4x2x5x8xf32>, %q: tensor<4x2x5x8xf32>, %k: tensor<4x2x5x8xf32>, %v: tensor<4x2x5x8xf32>, %l: tensor<4x2x5xf32>, %d: tensor<4x2x5xf32>) -> tensor<4x5x48xf32> {
  %0 = "nova.attention_gradient"(%g, %q, %k, %v, %l, %d) {causal = true, of = "q", scale = 0.5 : f64} : (tensor<4x2x5x8xf32>, tensor<4x2x5x8xf32>, tensor<4x2x5x8xf32>, tensor<4x2x5x8xf32>, tensor<4x2x5xf32>, tensor<4x2x5xf32>) -> tensor<4x2x5x8xf32>
  %1 = "nova.attention_gradient"(%g, %q, %k, %v, %l, %d) {causal = true, of = "k", scale = 0.5 : f64} : (tensor<4x2x5x8xf32>, tensor<4x2x5x8xf32>, tensor<4x2x5x8xf32>, tensor<4x2x5x8xf32>, tensor<4x2x5xf32>, tensor<4x2x5xf32>) -> tensor<4x2x5x8xf32>
  %2 = "nova.attention_gradient"(%g, %q, %k, %v, %l, %d) {causal = true, of = "v", scale = 0.5 : f64} : (tensor<4x2x5x8xf32>, tensor<4x2x5x8xf32>, tensor<4x2x5x8xf32>, tensor<4x2x5x8xf32>, tensor<4x2x5xf32>, tensor<4x2x5xf32>) -> tensor<4x2x5x8xf32>
  %3 = "nova.permute"(%0) {axes = array<i64: 0, 2, 1, 3>} : (tensor<4x2x5x8xf32>) -> tensor<4x5x2x8xf32>
  %4 = "nova.permute"(%1) {axes = array<i64: 0, 2, 1, 3>} : (tensor<4x2x5x8xf32>) -> tensor<4x5x2x8xf32>
  %5 = "nova.permute"(%2) {axes = array<i64: 0, 2, 1, 3>} : (tensor<4x2x5x8xf32>) -> tensor<4x5x2x8xf32>
  %6 = "nova.reshape"(%3) {shape = array<i64: 4, 5, 16>} : (tensor<4x5x2x8xf32>) -> tensor<4x5x16xf32>
  %7 = "nova.reshape"(%4) {shape = array<i64: 4, 5, 16>} : (tensor<4x5x2x8xf32>) -> tensor<4x5x16xf32>
  %8 = "nova.reshape"(%5) {shape = array<i64: 4, 5, 16>} : (tensor<4x5x2x8xf32>) -> tensor<4x5x16xf32>
  %9 = "nova.join"(%6, %7, %8) {axis = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0>} : (tensor<4x5x16xf32>, tensor<4x5x16xf32>, tensor<4x5x16xf32>) -> tensor<4x5x48xf32>
  return %9 : tensor<4x5x48xf32>
}

// In another order they are joined by a kernel.
// CHECK-LABEL: func.func @reordered(
// CHECK: nova.join
func.func @reordered(%g: tensor<8x5x8xf32>, %q: tensor<8x5x8xf32>, %k: tensor<8x5x8xf32>, %v: tensor<8x5x8xf32>, %l: tensor<8x5xf32>, %d: tensor<8x5xf32>) -> tensor<8x5x24xf32> {
  %0 = "nova.attention_gradient"(%g, %q, %k, %v, %l, %d) {causal = true, of = "q", scale = 0.5 : f64} : (tensor<8x5x8xf32>, tensor<8x5x8xf32>, tensor<8x5x8xf32>, tensor<8x5x8xf32>, tensor<8x5xf32>, tensor<8x5xf32>) -> tensor<8x5x8xf32>
  %1 = "nova.attention_gradient"(%g, %q, %k, %v, %l, %d) {causal = true, of = "k", scale = 0.5 : f64} : (tensor<8x5x8xf32>, tensor<8x5x8xf32>, tensor<8x5x8xf32>, tensor<8x5x8xf32>, tensor<8x5xf32>, tensor<8x5xf32>) -> tensor<8x5x8xf32>
  %2 = "nova.attention_gradient"(%g, %q, %k, %v, %l, %d) {causal = true, of = "v", scale = 0.5 : f64} : (tensor<8x5x8xf32>, tensor<8x5x8xf32>, tensor<8x5x8xf32>, tensor<8x5x8xf32>, tensor<8x5xf32>, tensor<8x5xf32>) -> tensor<8x5x8xf32>
  %3 = "nova.join"(%1, %0, %2) {axis = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0>} : (tensor<8x5x8xf32>, tensor<8x5x8xf32>, tensor<8x5x8xf32>) -> tensor<8x5x24xf32>
  return %3 : tensor<8x5x24xf32>
}
