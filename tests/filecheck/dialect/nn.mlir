// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg | %filecheck %s
// RUN: %nova-opt %s --decompose-composites | %filecheck %s --check-prefix=PRIMITIVES
// The ops of the family `nn`: what they are made of, and their loops.

// PRIMITIVES-LABEL: func.func @softmax(
// PRIMITIVES: nova.max %
// PRIMITIVES: nova.detach %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.exp %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES: nova.reshape %
// PRIMITIVES-NOT: nova.softmax
// CHECK-LABEL: func.func @softmax(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK-NOT: nova.
func.func @softmax(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "nova.softmax"(%arg0) {axis = 1 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// PRIMITIVES-LABEL: func.func @log_softmax(
// PRIMITIVES: nova.max %
// PRIMITIVES: nova.detach %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.exp %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.log %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.reshape %
// PRIMITIVES-NOT: nova.log_softmax
// CHECK-LABEL: func.func @log_softmax(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK-NOT: nova.
func.func @log_softmax(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "nova.log_softmax"(%arg0) {axis = 1 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// PRIMITIVES-LABEL: func.func @layer_norm(
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.rsqrt %
// PRIMITIVES: nova.mul %
// PRIMITIVES-NOT: nova.layer_norm
// CHECK-LABEL: func.func @layer_norm(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK-NOT: nova.
func.func @layer_norm(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "nova.layer_norm"(%arg0) {eps = 1.000000e-05 : f64, ndim = 1 : i64, operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// PRIMITIVES-LABEL: func.func @rms_norm(
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.rsqrt %
// PRIMITIVES: nova.mul %
// PRIMITIVES-NOT: nova.rms_norm
// CHECK-LABEL: func.func @rms_norm(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK-NOT: nova.
func.func @rms_norm(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "nova.rms_norm"(%arg0) {eps = 1.1920928955078125E-7 : f64, ndim = 1 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// PRIMITIVES-LABEL: func.func @softmax_columns(
// PRIMITIVES: nova.max %
// PRIMITIVES: nova.detach %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.exp %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES: nova.reshape %
// PRIMITIVES-NOT: nova.softmax
// CHECK-LABEL: func.func @softmax_columns(
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "parallel"]
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "parallel"]
// CHECK-NOT: nova.
func.func @softmax_columns(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "nova.softmax"(%arg0) {axis = 0 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// PRIMITIVES-LABEL: func.func @layer_norm_affine(
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.rsqrt %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.add %
// PRIMITIVES-NOT: nova.layer_norm
// CHECK-LABEL: func.func @layer_norm_affine(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK-NOT: nova.
func.func @layer_norm_affine(%arg0: tensor<2x4xf32>, %arg1: tensor<4xf32>, %arg2: tensor<4xf32>) -> tensor<2x4xf32> {
  %0 = "nova.layer_norm"(%arg0, %arg1, %arg2) {eps = 1.000000e-05 : f64, ndim = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// PRIMITIVES-LABEL: func.func @rms_norm_weight(
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.rsqrt %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.mul %
// PRIMITIVES-NOT: nova.rms_norm
// CHECK-LABEL: func.func @rms_norm_weight(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK-NOT: nova.
func.func @rms_norm_weight(%arg0: tensor<2x4xf32>, %arg1: tensor<4xf32>) -> tensor<2x4xf32> {
  %0 = "nova.rms_norm"(%arg0, %arg1) {eps = 9.9999999999999995E-7 : f64, ndim = 1 : i64} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
