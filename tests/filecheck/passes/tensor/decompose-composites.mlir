// RUN: %nova-opt %s --decompose-composites | %filecheck %s
// RUN: %nova-opt %s --decompose-composites --mlir-print-debuginfo | %filecheck %s --check-prefix=WHERE
// RUN: %nova-opt %s --decompose-composites=keep-whole=true | %filecheck %s --check-prefix=KEPT

// A mean is a sum and a division by the count.
// CHECK-LABEL: func.func @mean(
// CHECK-SAME: %[[X:.*]]: tensor<2x4xf32>
// CHECK: %[[SUM:.*]] = nova.sum %[[X]] {axis = array<i64: 1>, keepdims = false}
// CHECK: %[[N:.*]] = nova.constant dense<4.000000e+00> : tensor<f32>
// CHECK: nova.div %[[SUM]], %[[N]]
func.func @mean(%x: tensor<2x4xf32>) -> tensor<2xf32> {
  %0 = "nova.mean"(%x) {axis = 1 : i64} : (tensor<2x4xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// A composite made of composites: nothing but primitives is left.
// CHECK-LABEL: func.func @attention(
// CHECK: nova.matmul
// CHECK: nova.max
// CHECK: nova.exp
// CHECK: nova.sum
// CHECK: nova.matmul
// CHECK-NOT: nova.softmax
// CHECK-NOT: nova.scaled_dot_product_attention
func.func @attention(%q: tensor<3x4xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %0 = "nova.scaled_dot_product_attention"(%q, %k, %v) : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// An optional operand decides what is composed.
// CHECK-LABEL: func.func @linear(
// CHECK: %[[Y:.*]] = nova.matmul
// CHECK-NOT: nova.add
// CHECK: return %[[Y]]
func.func @linear(%x: tensor<2x3xf32>, %w: tensor<4x3xf32>) -> tensor<2x4xf32> {
  %0 = "nova.linear"(%x, %w) : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @linear_with_bias(
// CHECK: %[[Y:.*]] = nova.matmul
// CHECK: nova.add %[[Y]], %{{.*}}
func.func @linear_with_bias(%x: tensor<2x3xf32>, %w: tensor<4x3xf32>, %b: tensor<4xf32>) -> tensor<2x4xf32> {
  %0 = "nova.linear"(%x, %w, %b) : (tensor<2x3xf32>, tensor<4x3xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// Primitives are left alone, and the parts stand where the composite stood.
// CHECK-LABEL: func.func @in_place(
// CHECK: %[[E:.*]] = nova.exp
// CHECK: nova.sum %[[E]]
// CHECK: %[[M:.*]] = nova.div
// CHECK: nova.log %[[M]]
// CHECK: return
func.func @in_place(%x: tensor<4xf32>) -> tensor<f32> {
  %0 = "nova.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "nova.mean"(%0) : (tensor<4xf32>) -> tensor<f32>
  %2 = "nova.log"(%1) : (tensor<f32>) -> tensor<f32>
  return %2 : tensor<f32>
}

// The parts carry the composite's location.
// WHERE-LABEL: func.func @located(
// WHERE: nova.sum{{.*}} loc(#[[L:loc[0-9]+]])
// WHERE: nova.div{{.*}} loc(#[[L]])
// WHERE: #[[L]] = loc("model.py":12:0)
func.func @located(%x: tensor<4xf32>) -> tensor<f32> {
  %0 = "nova.mean"(%x) : (tensor<4xf32>) -> tensor<f32> loc("model.py":12:0)
  return %0 : tensor<f32>
}

// What the schedules have code for is kept on demand; a head that is too wide for them is not.
// KEPT-LABEL: func.func @kept(
// KEPT: nova.scaled_dot_product_attention %arg0
// KEPT: nova.matmul
func.func @kept(%q: tensor<3x4xf32>, %k: tensor<3x4xf32>, %w: tensor<3x257xf32>) -> (tensor<3x4xf32>, tensor<3x257xf32>) {
  %0 = "nova.scaled_dot_product_attention"(%q, %k, %k) : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
  %1 = "nova.scaled_dot_product_attention"(%w, %w, %w) : (tensor<3x257xf32>, tensor<3x257xf32>, tensor<3x257xf32>) -> tensor<3x257xf32>
  return %0, %1 : tensor<3x4xf32>, tensor<3x257xf32>
}
