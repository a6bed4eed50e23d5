// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @scaled_dot_product_attention_result(%arg0: tensor<2x3x4xf32>, %arg1: tensor<2x3x4xf32>, %arg2: tensor<2x3x4xf32>) {
  // expected-error @+1 {{'nova.scaled_dot_product_attention' op result type is bf16[7,7], must be f32[2,3,4]}}
  %0 = "nova.scaled_dot_product_attention"(%arg0, %arg1, %arg2) {causal = false, scale = 5.000000e-01 : f64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @scaled_dot_product_attention_operands() {
  // expected-error @+1 {{'nova.scaled_dot_product_attention' op takes (q, k, v, mask?), has 0 operands}}
  %0 = "nova.scaled_dot_product_attention"() {causal = false, scale = 5.000000e-01 : f64} : () -> tensor<2x3x4xf32>
  return
}

// -----

func.func @attention_logsumexp_result(%arg0: tensor<2x3x4xf32>, %arg1: tensor<2x5x4xf32>) {
  // expected-error @+1 {{'nova.attention_logsumexp' op result type is bf16[7,7], must be f32[2,3]}}
  %0 = "nova.attention_logsumexp"(%arg0, %arg1) {causal = false, scale = 5.000000e-01 : f64} : (tensor<2x3x4xf32>, tensor<2x5x4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @attention_logsumexp_operands() {
  // expected-error @+1 {{'nova.attention_logsumexp' op takes (q, k, mask?), has 0 operands}}
  %0 = "nova.attention_logsumexp"() {causal = false, scale = 5.000000e-01 : f64} : () -> tensor<2x3xf32>
  return
}

// -----

func.func @attention_gradient_result(%arg0: tensor<2x3x4xf32>, %arg1: tensor<2x3x4xf32>, %arg2: tensor<2x3x4xf32>, %arg3: tensor<2x3x4xf32>, %arg4: tensor<2x3xf32>, %arg5: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.attention_gradient' op result type is bf16[7,7], must be f32[2,3,4]}}
  %0 = "nova.attention_gradient"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5) {causal = false, of = "k", scale = 5.000000e-01 : f64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @attention_gradient_operands() {
  // expected-error @+1 {{'nova.attention_gradient' op takes (g, q, k, v, logsumexp, delta, mask?), has 0 operands}}
  %0 = "nova.attention_gradient"() {causal = false, of = "k", scale = 5.000000e-01 : f64} : () -> tensor<2x3x4xf32>
  return
}

// -----

func.func @kept_weights_result(%arg0: tensor<i64>) {
  // expected-error @+1 {{'nova.kept_weights' op result type is bf16[7,7], must be bool[3,4]}}
  %0 = "nova.kept_weights"(%arg0) {dropout = 1.000000e-01 : f64, shape = array<i64: 3, 4>} : (tensor<i64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @kept_weights_operands() {
  // expected-error @+1 {{'nova.kept_weights' op takes (seed), has 0 operands}}
  %0 = "nova.kept_weights"() {dropout = 1.000000e-01 : f64, shape = array<i64: 3, 4>} : () -> tensor<3x4xi1>
  return
}

// -----

func.func @dropout_attention_result(%arg0: tensor<2x3x4xf32>, %arg1: tensor<2x3x4xf32>, %arg2: tensor<2x3x4xf32>, %arg3: tensor<i64>) {
  // expected-error @+1 {{'nova.dropout_attention' op result type is bf16[7,7], must be f32[2,3,4]}}
  %0 = "nova.dropout_attention"(%arg0, %arg1, %arg2, %arg3) {causal = true, dropout = 1.000000e-01 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<i64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @dropout_attention_operands() {
  // expected-error @+1 {{'nova.dropout_attention' op takes (q, k, v, seed, mask?), has 0 operands}}
  %0 = "nova.dropout_attention"() {causal = true, dropout = 1.000000e-01 : f64, scale = 5.000000e-01 : f64} : () -> tensor<2x3x4xf32>
  return
}

// -----

func.func @dropout_attention_gradient_result(%arg0: tensor<2x3x4xf32>, %arg1: tensor<2x3x4xf32>, %arg2: tensor<2x3x4xf32>, %arg3: tensor<2x3x4xf32>, %arg4: tensor<2x3xf32>, %arg5: tensor<2x3xf32>, %arg6: tensor<i64>) {
  // expected-error @+1 {{'nova.dropout_attention_gradient' op result type is bf16[7,7], must be f32[2,3,4]}}
  %0 = "nova.dropout_attention_gradient"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6) {causal = false, dropout = 1.000000e-01 : f64, of = "v", scale = 5.000000e-01 : f64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<i64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @dropout_attention_gradient_operands() {
  // expected-error @+1 {{'nova.dropout_attention_gradient' op takes (g, q, k, v, logsumexp, delta, seed, mask?), has 0 operands}}
  %0 = "nova.dropout_attention_gradient"() {causal = false, dropout = 1.000000e-01 : f64, of = "v", scale = 5.000000e-01 : f64} : () -> tensor<2x3x4xf32>
  return
}

// -----

func.func @segment_attention_result(%arg0: tensor<2x3x4xf32>, %arg1: tensor<2x3x4xf32>, %arg2: tensor<2x3x4xf32>, %arg3: tensor<2x3xi32>, %arg4: tensor<2x3xi32>, %arg5: tensor<2x3xi32>, %arg6: tensor<2x3xi32>, %arg7: tensor<i64>) {
  // expected-error @+1 {{'nova.segment_attention' op result type is bf16[7,7], must be f32[2,3,4]}}
  %0 = "nova.segment_attention"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6, %arg7) {causal = true, dropout = 0.000000e+00 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3xi32>, tensor<2x3xi32>, tensor<2x3xi32>, tensor<2x3xi32>, tensor<i64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @segment_attention_operands() {
  // expected-error @+1 {{'nova.segment_attention' op takes (q, k, v, q_segment, k_segment, key_begin, key_end, seed, mask?), has 0 operands}}
  %0 = "nova.segment_attention"() {causal = true, dropout = 0.000000e+00 : f64, scale = 5.000000e-01 : f64} : () -> tensor<2x3x4xf32>
  return
}

// -----

func.func @segment_attention_logsumexp_result(%arg0: tensor<2x3x4xf32>, %arg1: tensor<2x3x4xf32>, %arg2: tensor<2x3xi32>, %arg3: tensor<2x3xi32>, %arg4: tensor<2x3xi32>, %arg5: tensor<2x3xi32>) {
  // expected-error @+1 {{'nova.segment_attention_logsumexp' op result type is bf16[7,7], must be f32[2,3]}}
  %0 = "nova.segment_attention_logsumexp"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5) {causal = false, scale = 5.000000e-01 : f64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3xi32>, tensor<2x3xi32>, tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @segment_attention_logsumexp_operands() {
  // expected-error @+1 {{'nova.segment_attention_logsumexp' op takes (q, k, q_segment, k_segment, key_begin, key_end, mask?), has 0 operands}}
  %0 = "nova.segment_attention_logsumexp"() {causal = false, scale = 5.000000e-01 : f64} : () -> tensor<2x3xf32>
  return
}

// -----

func.func @segment_attention_gradient_result(%arg0: tensor<2x3x4xf32>, %arg1: tensor<2x3x4xf32>, %arg2: tensor<2x3x4xf32>, %arg3: tensor<2x3x4xf32>, %arg4: tensor<2x3xf32>, %arg5: tensor<2x3xf32>, %arg6: tensor<2x3xi32>, %arg7: tensor<2x3xi32>, %arg8: tensor<2x3xi32>, %arg9: tensor<2x3xi32>, %arg10: tensor<2x3xi32>, %arg11: tensor<2x3xi32>, %arg12: tensor<i64>) {
  // expected-error @+1 {{'nova.segment_attention_gradient' op result type is bf16[7,7], must be f32[2,3,4]}}
  %0 = "nova.segment_attention_gradient"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6, %arg7, %arg8, %arg9, %arg10, %arg11, %arg12) {causal = false, dropout = 0.000000e+00 : f64, of = "k", scale = 5.000000e-01 : f64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xi32>, tensor<2x3xi32>, tensor<2x3xi32>, tensor<2x3xi32>, tensor<2x3xi32>, tensor<2x3xi32>, tensor<i64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @segment_attention_gradient_operands() {
  // expected-error @+1 {{'nova.segment_attention_gradient' op takes (g, q, k, v, logsumexp, delta, q_segment, k_segment, key_begin, key_end, row_begin, row_end, seed, mask?), has 0 operands}}
  %0 = "nova.segment_attention_gradient"() {causal = false, dropout = 0.000000e+00 : f64, of = "k", scale = 5.000000e-01 : f64} : () -> tensor<2x3x4xf32>
  return
}

// -----

func.func @scaled_dot_product_attention_1(%arg0: tensor<3x4xf32>, %arg1: tensor<3x5xf32>, %arg2: tensor<3x4xf32>) {
  // expected-error @+1 {{'nova.scaled_dot_product_attention' op q (3, 4), k (3, 5), v (3, 4)}}
  %0 = "nova.scaled_dot_product_attention"(%arg0, %arg1, %arg2) : (tensor<3x4xf32>, tensor<3x5xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @attention_logsumexp_1(%arg0: tensor<3x4xf32>, %arg1: tensor<3x5xf32>) {
  // expected-error @+1 {{'nova.attention_logsumexp' op q (3, 4), k (3, 5)}}
  %0 = "nova.attention_logsumexp"(%arg0, %arg1) : (tensor<3x4xf32>, tensor<3x5xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @attention_logsumexp_2(%arg0: tensor<3x4xf32>, %arg1: tensor<3x4xf32>, %arg2: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.attention_logsumexp' op shapes (3, 3) and (2, 3) do not broadcast: axis -2 is 3 and 2}}
  %0 = "nova.attention_logsumexp"(%arg0, %arg1, %arg2) : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<2x3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @attention_gradient_1(%arg0: tensor<3x4xf32>, %arg1: tensor<3x4xf32>, %arg2: tensor<3x4xf32>, %arg3: tensor<3x4xf32>, %arg4: tensor<3xf32>, %arg5: tensor<3xf32>) {
  // expected-error @+1 {{'nova.attention_gradient' op of is 'q', 'k' or 'v', not 'mask'}}
  %0 = "nova.attention_gradient"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5) {of = "mask"} : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @attention_gradient_2(%arg0: tensor<2x4xf32>, %arg1: tensor<3x4xf32>, %arg2: tensor<3x4xf32>, %arg3: tensor<3x4xf32>, %arg4: tensor<3xf32>, %arg5: tensor<2xf32>) {
  // expected-error @+1 {{'nova.attention_gradient' op g (2, 4) is not a gradient of a result (3, 4)}}
  %0 = "nova.attention_gradient"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5) : (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3xf32>, tensor<2xf32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @attention_gradient_3(%arg0: tensor<3x4xf32>, %arg1: tensor<3x4xf32>, %arg2: tensor<3x4xf32>, %arg3: tensor<3x4xf32>, %arg4: tensor<2xf32>, %arg5: tensor<3xf32>) {
  // expected-error @+1 {{'nova.attention_gradient' op logsumexp (2,), delta (3,)}}
  %0 = "nova.attention_gradient"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5) : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<2xf32>, tensor<3xf32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @kept_weights_1(%arg0: tensor<2xi64>) {
  // expected-error @+1 {{'nova.kept_weights' op the seed is one number}}
  %0 = "nova.kept_weights"(%arg0) {shape = array<i64: 3, 4>} : (tensor<2xi64>) -> tensor<3x4xi1>
  return
}

// -----

func.func @kept_weights_2(%arg0: tensor<i64>) {
  // expected-error @+1 {{'nova.kept_weights' op shape (4,) is not (..., rows, keys)}}
  %0 = "nova.kept_weights"(%arg0) {shape = array<i64: 4>} : (tensor<i64>) -> tensor<4xi1>
  return
}

// -----

func.func @kept_weights_3(%arg0: tensor<i64>) {
  // expected-error @+1 {{'nova.kept_weights' op dropout must be in 0..1, not -0.5}}
  %0 = "nova.kept_weights"(%arg0) {shape = array<i64: 3, 4>, dropout = -0.5} : (tensor<i64>) -> tensor<3x4xi1>
  return
}

// -----

func.func @dropout_attention_1(%arg0: tensor<3x4xf32>, %arg1: tensor<3x4xf32>, %arg2: tensor<3x4xf32>, %arg3: tensor<2xi64>) {
  // expected-error @+1 {{'nova.dropout_attention' op the seed is one number, not of shape (2,)}}
  %0 = "nova.dropout_attention"(%arg0, %arg1, %arg2, %arg3) : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<2xi64>) -> tensor<3x4xf32>
  return
}

// -----

func.func @dropout_attention_2(%arg0: tensor<3x4xf32>, %arg1: tensor<3x4xf32>, %arg2: tensor<3x4xf32>, %arg3: tensor<i64>) {
  // expected-error @+1 {{'nova.dropout_attention' op dropout must be in 0..1, not 1.5}}
  %0 = "nova.dropout_attention"(%arg0, %arg1, %arg2, %arg3) {dropout = 1.5} : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<i64>) -> tensor<3x4xf32>
  return
}

// -----

func.func @dropout_attention_gradient_1(%arg0: tensor<3x4xf32>, %arg1: tensor<3x4xf32>, %arg2: tensor<3x4xf32>, %arg3: tensor<3x4xf32>, %arg4: tensor<3xf32>, %arg5: tensor<3xf32>, %arg6: tensor<f32>) {
  // expected-error @+1 {{'nova.dropout_attention_gradient' op the seed must hold integers, not f32}}
  %0 = "nova.dropout_attention_gradient"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6) : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3xf32>, tensor<3xf32>, tensor<f32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @segment_attention_1(%arg0: tensor<3x4xf32>, %arg1: tensor<3x4xf32>, %arg2: tensor<3x4xf32>, %arg3: tensor<2xi32>, %arg4: tensor<3xi32>, %arg5: tensor<3xi32>, %arg6: tensor<3xi32>, %arg7: tensor<i64>) {
  // expected-error @+1 {{'nova.segment_attention' op q_segment (2,) does not broadcast to (3,)}}
  %0 = "nova.segment_attention"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6, %arg7) : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<2xi32>, tensor<3xi32>, tensor<3xi32>, tensor<3xi32>, tensor<i64>) -> tensor<3x4xf32>
  return
}

// -----

func.func @segment_attention_2(%arg0: tensor<3x4xf32>, %arg1: tensor<3x4xf32>, %arg2: tensor<3x4xf32>, %arg3: tensor<3xi32>, %arg4: tensor<3xi32>, %arg5: tensor<3xf32>, %arg6: tensor<3xi32>, %arg7: tensor<i64>) {
  // expected-error @+1 {{'nova.segment_attention' op segments of f32}}
  %0 = "nova.segment_attention"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6, %arg7) : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3xi32>, tensor<3xi32>, tensor<3xf32>, tensor<3xi32>, tensor<i64>) -> tensor<3x4xf32>
  return
}

// -----

func.func @segment_attention_logsumexp_1(%arg0: tensor<3x4xf32>, %arg1: tensor<2x4xf32>, %arg2: tensor<3xi32>, %arg3: tensor<3xi32>, %arg4: tensor<3xi32>, %arg5: tensor<3xi32>) {
  // expected-error @+1 {{'nova.segment_attention_logsumexp' op k_segment (3,) does not broadcast to (2,)}}
  %0 = "nova.segment_attention_logsumexp"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5) : (tensor<3x4xf32>, tensor<2x4xf32>, tensor<3xi32>, tensor<3xi32>, tensor<3xi32>, tensor<3xi32>) -> tensor<3xf32>
  return
}

// -----

func.func @segment_attention_gradient_1(%arg0: tensor<3x4xf32>, %arg1: tensor<3x4xf32>, %arg2: tensor<2x4xf32>, %arg3: tensor<2x4xf32>, %arg4: tensor<3xf32>, %arg5: tensor<3xf32>, %arg6: tensor<3xi32>, %arg7: tensor<2xi32>, %arg8: tensor<3xi32>, %arg9: tensor<3xi32>, %arg10: tensor<3xi32>, %arg11: tensor<2xi32>, %arg12: tensor<i64>) {
  // expected-error @+1 {{'nova.segment_attention_gradient' op row_begin (3,) does not broadcast to (2,)}}
  %0 = "nova.segment_attention_gradient"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6, %arg7, %arg8, %arg9, %arg10, %arg11, %arg12) : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xi32>, tensor<2xi32>, tensor<3xi32>, tensor<3xi32>, tensor<3xi32>, tensor<2xi32>, tensor<i64>) -> tensor<3x4xf32>
  return
}
