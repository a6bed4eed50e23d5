// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg | %filecheck %s
// RUN: %nova-opt %s --decompose-composites | %filecheck %s --check-prefix=PRIMITIVES
// The ops of the family `attention`: what they are made of, and their loops.

// PRIMITIVES-LABEL: func.func @scaled_dot_product_attention(
// PRIMITIVES: nova.permute %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.max %
// PRIMITIVES: nova.detach %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.exp %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.div %
// PRIMITIVES: nova.matmul %
// PRIMITIVES-NOT: nova.scaled_dot_product_attention
// CHECK-LABEL: func.func @scaled_dot_product_attention(
// CHECK: linalg.contract
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: linalg.contract
// CHECK-NOT: nova.
func.func @scaled_dot_product_attention(%arg0: tensor<2x3x4xf32>, %arg1: tensor<2x3x4xf32>, %arg2: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %0 = "nova.scaled_dot_product_attention"(%arg0, %arg1, %arg2) {causal = false, scale = 5.000000e-01 : f64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}

// PRIMITIVES-LABEL: func.func @attention_causal(
// PRIMITIVES: nova.arange {
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.arange {
// PRIMITIVES: nova.ge %
// PRIMITIVES: nova.permute %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.max %
// PRIMITIVES: nova.detach %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.exp %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.div %
// PRIMITIVES: nova.isfinite %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.arange {
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.arange {
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.min %
// PRIMITIVES: nova.ge %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.min %
// PRIMITIVES: nova.ge %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.ne %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.min %
// PRIMITIVES: nova.ge %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.add %
// PRIMITIVES-NOT: nova.scaled_dot_product_attention
// CHECK-LABEL: func.func @attention_causal(
// CHECK: linalg.contract
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: linalg.contract
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "parallel"]
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "parallel"]
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "parallel"]
// CHECK-NOT: nova.
func.func @attention_causal(%arg0: tensor<3x4xf32>, %arg1: tensor<3x4xf32>, %arg2: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %0 = "nova.scaled_dot_product_attention"(%arg0, %arg1, %arg2) {causal = true, scale = 5.000000e-01 : f64} : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// PRIMITIVES-LABEL: func.func @attention_masked(
// PRIMITIVES: nova.permute %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.max %
// PRIMITIVES: nova.detach %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.exp %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.div %
// PRIMITIVES: nova.matmul %
// PRIMITIVES-NOT: nova.scaled_dot_product_attention
// CHECK-LABEL: func.func @attention_masked(
// CHECK: linalg.contract
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: linalg.contract
// CHECK-NOT: nova.
func.func @attention_masked(%arg0: tensor<3x4xf32>, %arg1: tensor<3x4xf32>, %arg2: tensor<3x4xf32>, %arg3: tensor<3x3xi1>) -> tensor<3x4xf32> {
  %0 = "nova.scaled_dot_product_attention"(%arg0, %arg1, %arg2, %arg3) {causal = false, scale = 5.000000e-01 : f64} : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x3xi1>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// PRIMITIVES-LABEL: func.func @attention_logsumexp(
// PRIMITIVES: nova.permute %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.max %
// PRIMITIVES: nova.detach %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.exp %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.log %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.where %
// PRIMITIVES-NOT: nova.attention_logsumexp
// CHECK-LABEL: func.func @attention_logsumexp(
// CHECK: linalg.contract
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]
// CHECK-NOT: nova.
func.func @attention_logsumexp(%arg0: tensor<2x3x4xf32>, %arg1: tensor<2x5x4xf32>) -> tensor<2x3xf32> {
  %0 = "nova.attention_logsumexp"(%arg0, %arg1) {causal = false, scale = 5.000000e-01 : f64} : (tensor<2x3x4xf32>, tensor<2x5x4xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// PRIMITIVES-LABEL: func.func @attention_gradient(
// PRIMITIVES: nova.permute %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.exp %
// PRIMITIVES: nova.permute %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.permute %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.mul %
// PRIMITIVES-NOT: nova.attention_gradient
// CHECK-LABEL: func.func @attention_gradient(
// CHECK: linalg.contract
// CHECK: linalg.contract
// CHECK: linalg.contract
// CHECK-NOT: nova.
func.func @attention_gradient(%arg0: tensor<2x3x4xf32>, %arg1: tensor<2x3x4xf32>, %arg2: tensor<2x3x4xf32>, %arg3: tensor<2x3x4xf32>, %arg4: tensor<2x3xf32>, %arg5: tensor<2x3xf32>) -> tensor<2x3x4xf32> {
  %0 = "nova.attention_gradient"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5) {causal = false, of = "k", scale = 5.000000e-01 : f64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}

// PRIMITIVES-LABEL: func.func @kept_weights(
// CHECK-LABEL: func.func @kept_weights(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: arith.shrui
// CHECK: arith.muli
// CHECK: arith.andi
// CHECK: arith.shrui
// CHECK: arith.addi
// CHECK: arith.shrui
// CHECK: arith.muli
// CHECK-NOT: nova.
func.func @kept_weights(%arg0: tensor<i64>) -> tensor<3x4xi1> {
  %0 = "nova.kept_weights"(%arg0) {dropout = 1.000000e-01 : f64, shape = array<i64: 3, 4>} : (tensor<i64>) -> tensor<3x4xi1>
  return %0 : tensor<3x4xi1>
}

// PRIMITIVES-LABEL: func.func @dropout_attention(
// PRIMITIVES: nova.kept_weights %
// PRIMITIVES: nova.arange {
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.arange {
// PRIMITIVES: nova.ge %
// PRIMITIVES: nova.permute %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.max %
// PRIMITIVES: nova.detach %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.exp %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.div %
// PRIMITIVES: nova.expand %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.isfinite %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.arange {
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.arange {
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.min %
// PRIMITIVES: nova.ge %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.min %
// PRIMITIVES: nova.ge %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.ne %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.min %
// PRIMITIVES: nova.ge %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.add %
// PRIMITIVES-NOT: nova.dropout_attention
// CHECK-LABEL: func.func @dropout_attention(
// CHECK: linalg.contract
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: linalg.contract
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction", "parallel"]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction", "parallel"]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction", "parallel"]
// CHECK-NOT: nova.
func.func @dropout_attention(%arg0: tensor<2x3x4xf32>, %arg1: tensor<2x3x4xf32>, %arg2: tensor<2x3x4xf32>, %arg3: tensor<i64>) -> tensor<2x3x4xf32> {
  %0 = "nova.dropout_attention"(%arg0, %arg1, %arg2, %arg3) {causal = true, dropout = 1.000000e-01 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<i64>) -> tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}

// PRIMITIVES-LABEL: func.func @dropout_attention_gradient(
// PRIMITIVES: nova.kept_weights %
// PRIMITIVES: nova.permute %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.exp %
// PRIMITIVES: nova.expand %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.permute %
// PRIMITIVES: nova.matmul %
// PRIMITIVES-NOT: nova.dropout_attention_gradient
// CHECK-LABEL: func.func @dropout_attention_gradient(
// CHECK: linalg.contract
// CHECK: linalg.contract
// CHECK-NOT: nova.
func.func @dropout_attention_gradient(%arg0: tensor<2x3x4xf32>, %arg1: tensor<2x3x4xf32>, %arg2: tensor<2x3x4xf32>, %arg3: tensor<2x3x4xf32>, %arg4: tensor<2x3xf32>, %arg5: tensor<2x3xf32>, %arg6: tensor<i64>) -> tensor<2x3x4xf32> {
  %0 = "nova.dropout_attention_gradient"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6) {causal = false, dropout = 1.000000e-01 : f64, of = "v", scale = 5.000000e-01 : f64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<i64>) -> tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}

// PRIMITIVES-LABEL: func.func @segment_attention(
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.arange {
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.arange {
// PRIMITIVES: nova.ge %
// PRIMITIVES: nova.logical_and %
// PRIMITIVES: nova.permute %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.max %
// PRIMITIVES: nova.detach %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.exp %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.div %
// PRIMITIVES: nova.isfinite %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.arange {
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.arange {
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.min %
// PRIMITIVES: nova.ge %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.min %
// PRIMITIVES: nova.ge %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.ne %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.min %
// PRIMITIVES: nova.ge %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.add %
// PRIMITIVES-NOT: nova.segment_attention
// CHECK-LABEL: func.func @segment_attention(
// CHECK: linalg.contract
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: linalg.contract
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction", "parallel"]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction", "parallel"]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction", "parallel"]
// CHECK-NOT: nova.
func.func @segment_attention(%arg0: tensor<2x3x4xf32>, %arg1: tensor<2x3x4xf32>, %arg2: tensor<2x3x4xf32>, %arg3: tensor<2x3xi32>, %arg4: tensor<2x3xi32>, %arg5: tensor<2x3xi32>, %arg6: tensor<2x3xi32>, %arg7: tensor<i64>) -> tensor<2x3x4xf32> {
  %0 = "nova.segment_attention"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6, %arg7) {causal = true, dropout = 0.000000e+00 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3xi32>, tensor<2x3xi32>, tensor<2x3xi32>, tensor<2x3xi32>, tensor<i64>) -> tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}

// PRIMITIVES-LABEL: func.func @segment_attention_logsumexp(
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.permute %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.max %
// PRIMITIVES: nova.detach %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.exp %
// PRIMITIVES: nova.sum %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.log %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.where %
// PRIMITIVES-NOT: nova.segment_attention_logsumexp
// CHECK-LABEL: func.func @segment_attention_logsumexp(
// CHECK: linalg.contract
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]
// CHECK-NOT: nova.
func.func @segment_attention_logsumexp(%arg0: tensor<2x3x4xf32>, %arg1: tensor<2x3x4xf32>, %arg2: tensor<2x3xi32>, %arg3: tensor<2x3xi32>, %arg4: tensor<2x3xi32>, %arg5: tensor<2x3xi32>) -> tensor<2x3xf32> {
  %0 = "nova.segment_attention_logsumexp"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5) {causal = false, scale = 5.000000e-01 : f64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3xi32>, tensor<2x3xi32>, tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// PRIMITIVES-LABEL: func.func @segment_attention_gradient(
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.permute %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.eq %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.exp %
// PRIMITIVES: nova.permute %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.permute %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.mul %
// PRIMITIVES-NOT: nova.segment_attention_gradient
// CHECK-LABEL: func.func @segment_attention_gradient(
// CHECK: linalg.contract
// CHECK: linalg.contract
// CHECK: linalg.contract
// CHECK-NOT: nova.
func.func @segment_attention_gradient(%arg0: tensor<2x3x4xf32>, %arg1: tensor<2x3x4xf32>, %arg2: tensor<2x3x4xf32>, %arg3: tensor<2x3x4xf32>, %arg4: tensor<2x3xf32>, %arg5: tensor<2x3xf32>, %arg6: tensor<2x3xi32>, %arg7: tensor<2x3xi32>, %arg8: tensor<2x3xi32>, %arg9: tensor<2x3xi32>, %arg10: tensor<2x3xi32>, %arg11: tensor<2x3xi32>, %arg12: tensor<i64>) -> tensor<2x3x4xf32> {
  %0 = "nova.segment_attention_gradient"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6, %arg7, %arg8, %arg9, %arg10, %arg11, %arg12) {causal = false, dropout = 0.000000e+00 : f64, of = "k", scale = 5.000000e-01 : f64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xi32>, tensor<2x3xi32>, tensor<2x3xi32>, tensor<2x3xi32>, tensor<2x3xi32>, tensor<2x3xi32>, tensor<i64>) -> tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}
