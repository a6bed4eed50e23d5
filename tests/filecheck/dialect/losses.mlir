// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg | %filecheck %s
// RUN: %nova-opt %s --decompose-composites | %filecheck %s --check-prefix=PRIMITIVES
// The ops of the family `losses`: what they are made of, and their loops.

// PRIMITIVES-LABEL: func.func @mse_loss(
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES-NOT: nova.mse_loss
// CHECK-LABEL: func.func @mse_loss(
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]
// CHECK-NOT: nova.
func.func @mse_loss(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>) -> tensor<f32> {
  %0 = "nova.mse_loss"(%arg0, %arg1) {reduction = "mean"} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// PRIMITIVES-LABEL: func.func @mae_loss(
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.abs %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES-NOT: nova.mae_loss
// CHECK-LABEL: func.func @mae_loss(
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]
// CHECK-NOT: nova.
func.func @mae_loss(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>) -> tensor<f32> {
  %0 = "nova.mae_loss"(%arg0, %arg1) {reduction = "mean"} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// PRIMITIVES-LABEL: func.func @smooth_l1_loss(
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.abs %
// PRIMITIVES: nova.lt %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES-NOT: nova.smooth_l1_loss
// CHECK-LABEL: func.func @smooth_l1_loss(
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]
// CHECK-NOT: nova.
func.func @smooth_l1_loss(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>) -> tensor<f32> {
  %0 = "nova.smooth_l1_loss"(%arg0, %arg1) {beta = 1.000000e+00 : f64, reduction = "mean"} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// PRIMITIVES-LABEL: func.func @bce_loss(
// PRIMITIVES: nova.log %
// PRIMITIVES: nova.maximum %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.neg %
// PRIMITIVES: nova.log1p %
// PRIMITIVES: nova.maximum %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.neg %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES-NOT: nova.bce_loss
// CHECK-LABEL: func.func @bce_loss(
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]
// CHECK-NOT: nova.
func.func @bce_loss(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>) -> tensor<f32> {
  %0 = "nova.bce_loss"(%arg0, %arg1) {reduction = "mean"} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// PRIMITIVES-LABEL: func.func @bce_with_logits_loss(
// PRIMITIVES: nova.maximum %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.abs %
// PRIMITIVES: nova.neg %
// PRIMITIVES: nova.exp %
// PRIMITIVES: nova.log1p %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES-NOT: nova.bce_with_logits_loss
// CHECK-LABEL: func.func @bce_with_logits_loss(
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]
// CHECK-NOT: nova.
func.func @bce_with_logits_loss(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>) -> tensor<f32> {
  %0 = "nova.bce_with_logits_loss"(%arg0, %arg1) {reduction = "mean"} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// PRIMITIVES-LABEL: func.func @kl_div(
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.log %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES-NOT: nova.kl_div
// CHECK-LABEL: func.func @kl_div(
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]
// CHECK-NOT: nova.
func.func @kl_div(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>) -> tensor<f32> {
  %0 = "nova.kl_div"(%arg0, %arg1) {log_target = false, reduction = "mean"} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// PRIMITIVES-LABEL: func.func @hinge_loss(
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.relu %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES-NOT: nova.hinge_loss
// CHECK-LABEL: func.func @hinge_loss(
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]
// CHECK-NOT: nova.
func.func @hinge_loss(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>) -> tensor<f32> {
  %0 = "nova.hinge_loss"(%arg0, %arg1) {reduction = "mean"} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// PRIMITIVES-LABEL: func.func @mse_loss_sum(
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.sum %
// PRIMITIVES-NOT: nova.mse_loss
// CHECK-LABEL: func.func @mse_loss_sum(
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction"]
// CHECK-NOT: nova.
func.func @mse_loss_sum(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>) -> tensor<f32> {
  %0 = "nova.mse_loss"(%arg0, %arg1) {reduction = "sum"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// PRIMITIVES-LABEL: func.func @cross_entropy(
// PRIMITIVES: nova.max %
// PRIMITIVES: nova.detach %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.exp %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.log %
// PRIMITIVES: nova.gather %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.cast %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES-NOT: nova.cross_entropy
// CHECK-LABEL: func.func @cross_entropy(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction"]
// CHECK-NOT: nova.
func.func @cross_entropy(%arg0: tensor<2x3xf32>, %arg1: tensor<2xi64>) -> tensor<f32> {
  %0 = "nova.cross_entropy"(%arg0, %arg1) {ignore_index = -100 : i64, label_smoothing = 0.000000e+00 : f64, reduction = "mean"} : (tensor<2x3xf32>, tensor<2xi64>) -> tensor<f32>
  return %0 : tensor<f32>
}

// PRIMITIVES-LABEL: func.func @cross_entropy_dense(
// PRIMITIVES: nova.max %
// PRIMITIVES: nova.detach %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.exp %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.log %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.neg %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.div %
// PRIMITIVES-NOT: nova.cross_entropy
// CHECK-LABEL: func.func @cross_entropy_dense(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction"]
// CHECK-NOT: nova.
func.func @cross_entropy_dense(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>) -> tensor<f32> {
  %0 = "nova.cross_entropy"(%arg0, %arg1) {ignore_index = -100 : i64, label_smoothing = 0.000000e+00 : f64, reduction = "mean"} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// PRIMITIVES-LABEL: func.func @nll_loss(
// PRIMITIVES: nova.ne %
// PRIMITIVES: nova.lt %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.clamp %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.arange {
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.neg %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.sum %
// PRIMITIVES-NOT: nova.nll_loss
// CHECK-LABEL: func.func @nll_loss(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction"]
// CHECK-NOT: nova.
func.func @nll_loss(%arg0: tensor<2x3xf32>, %arg1: tensor<2xi64>) -> tensor<f32> {
  %0 = "nova.nll_loss"(%arg0, %arg1) {ignore_index = -100 : i64, reduction = "sum"} : (tensor<2x3xf32>, tensor<2xi64>) -> tensor<f32>
  return %0 : tensor<f32>
}
