// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg | %filecheck %s
// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg=bytes-as-bf16=true | %filecheck %s --check-prefix=DEVICE
// RUN: %nova-opt %s --decompose-composites | %filecheck %s --check-prefix=PRIMITIVES
// The ops of the family `contraction`: what they are made of, and their loops.

// PRIMITIVES-LABEL: func.func @matmul(
// CHECK-LABEL: func.func @matmul(
// CHECK: linalg.fill
// CHECK: linalg.contract
// CHECK-NOT: nova.
func.func @matmul(%arg0: tensor<2x3xf32>, %arg1: tensor<3x4xf32>) -> tensor<2x4xf32> {
  %0 = "nova.matmul"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// PRIMITIVES-LABEL: func.func @matmul_batched(
// CHECK-LABEL: func.func @matmul_batched(
// CHECK: tensor.collapse_shape
// CHECK: tensor.expand_shape
// CHECK: linalg.fill
// CHECK: linalg.contract
// CHECK-NOT: nova.
func.func @matmul_batched(%arg0: tensor<5x2x3xf32>, %arg1: tensor<1x3x4xf32>) -> tensor<5x2x4xf32> {
  %0 = "nova.matmul"(%arg0, %arg1) : (tensor<5x2x3xf32>, tensor<1x3x4xf32>) -> tensor<5x2x4xf32>
  return %0 : tensor<5x2x4xf32>
}

// PRIMITIVES-LABEL: func.func @matmul_half(
// CHECK-LABEL: func.func @matmul_half(
// CHECK: linalg.fill
// CHECK: linalg.contract
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.truncf %{{.*}} : f32 to bf16
// CHECK-NOT: nova.
func.func @matmul_half(%arg0: tensor<2x3xbf16>, %arg1: tensor<3x4xbf16>) -> tensor<2x4xbf16> {
  %0 = "nova.matmul"(%arg0, %arg1) : (tensor<2x3xbf16>, tensor<3x4xbf16>) -> tensor<2x4xbf16>
  return %0 : tensor<2x4xbf16>
}

// PRIMITIVES-LABEL: func.func @linear(
// PRIMITIVES: nova.permute %
// PRIMITIVES: nova.matmul %
// PRIMITIVES-NOT: nova.linear
// CHECK-LABEL: func.func @linear(
// CHECK: linalg.contract
// CHECK-NOT: nova.
func.func @linear(%arg0: tensor<2x3xf32>, %arg1: tensor<4x3xf32>) -> tensor<2x4xf32> {
  %0 = "nova.linear"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// PRIMITIVES-LABEL: func.func @linear_bias(
// PRIMITIVES: nova.permute %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.add %
// PRIMITIVES-NOT: nova.linear
// CHECK-LABEL: func.func @linear_bias(
// CHECK: linalg.contract
// CHECK-NOT: nova.
func.func @linear_bias(%arg0: tensor<2x3xf32>, %arg1: tensor<4x3xf32>, %arg2: tensor<4xf32>) -> tensor<2x4xf32> {
  %0 = "nova.linear"(%arg0, %arg1, %arg2) : (tensor<2x3xf32>, tensor<4x3xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// PRIMITIVES-LABEL: func.func @dot(
// PRIMITIVES: nova.matmul %
// PRIMITIVES-NOT: nova.dot
// CHECK-LABEL: func.func @dot(
// CHECK: linalg.contract
// CHECK-NOT: nova.
func.func @dot(%arg0: tensor<3xf32>, %arg1: tensor<3xf32>) -> tensor<f32> {
  %0 = "nova.dot"(%arg0, %arg1) : (tensor<3xf32>, tensor<3xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// PRIMITIVES-LABEL: func.func @outer(
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.mul %
// PRIMITIVES-NOT: nova.outer
// CHECK-LABEL: func.func @outer(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK-NOT: nova.
func.func @outer(%arg0: tensor<2xf32>, %arg1: tensor<3xf32>) -> tensor<2x3xf32> {
  %0 = "nova.outer"(%arg0, %arg1) : (tensor<2xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @wide_matmul(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]
// CHECK-COUNT-2: arith.extsi %{{.*}} : i8 to i32
// CHECK-NOT: nova.
// DEVICE-LABEL: func.func @wide_matmul(
// DEVICE: arith.sitofp %{{.*}} : i8 to bf16
// DEVICE: linalg.contract {{.*}}tensor<3x4xbf16>) outs(%{{.*}} : tensor<2x4xf32>)
func.func @wide_matmul(%arg0: tensor<2x3xi8>, %arg1: tensor<3x4xi8>) -> tensor<2x4xi32> {
  %0 = "nova.wide_matmul"(%arg0, %arg1) : (tensor<2x3xi8>, tensor<3x4xi8>) -> tensor<2x4xi32>
  return %0 : tensor<2x4xi32>
}
