// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg | %filecheck %s
// RUN: %nova-opt %s --decompose-composites | %filecheck %s --check-prefix=PRIMITIVES
// The ops of the family `moments`: what they are made of, and their loops.

// PRIMITIVES-LABEL: func.func @mean(
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES-NOT: nova.mean
// CHECK-LABEL: func.func @mean(
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]
// CHECK-NOT: nova.
func.func @mean(%arg0: tensor<2x3xf32>) -> tensor<f32> {
  %0 = "nova.mean"(%arg0) {axis = array<i64: 0, 1>, keepdims = false} : (tensor<2x3xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// PRIMITIVES-LABEL: func.func @var(
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.square %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES-NOT: nova.var
// CHECK-LABEL: func.func @var(
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]
// CHECK-NOT: nova.
func.func @var(%arg0: tensor<2x3xf32>) -> tensor<f32> {
  %0 = "nova.var"(%arg0) {axis = array<i64: 0, 1>, correction = 1 : i64, keepdims = false} : (tensor<2x3xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// PRIMITIVES-LABEL: func.func @std(
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.square %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES: nova.sqrt %
// PRIMITIVES-NOT: nova.std
// CHECK-LABEL: func.func @std(
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]
// CHECK-NOT: nova.
func.func @std(%arg0: tensor<2x3xf32>) -> tensor<f32> {
  %0 = "nova.std"(%arg0) {axis = array<i64: 0, 1>, correction = 1 : i64, keepdims = false} : (tensor<2x3xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// PRIMITIVES-LABEL: func.func @logsumexp(
// PRIMITIVES: nova.max %
// PRIMITIVES: nova.detach %
// PRIMITIVES: nova.isfinite %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.exp %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.log %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.reshape %
// PRIMITIVES-NOT: nova.logsumexp
// CHECK-LABEL: func.func @logsumexp(
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]
// CHECK-NOT: nova.
func.func @logsumexp(%arg0: tensor<2x3xf32>) -> tensor<f32> {
  %0 = "nova.logsumexp"(%arg0) {axis = array<i64: 0, 1>, keepdims = false} : (tensor<2x3xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// PRIMITIVES-LABEL: func.func @var_rows(
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.square %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES-NOT: nova.var
// CHECK-LABEL: func.func @var_rows(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK-NOT: nova.
func.func @var_rows(%arg0: tensor<2x3xf64>) -> tensor<2xf64> {
  %0 = "nova.var"(%arg0) {axis = array<i64: 1>, correction = 0 : i64, keepdims = false} : (tensor<2x3xf64>) -> tensor<2xf64>
  return %0 : tensor<2xf64>
}
