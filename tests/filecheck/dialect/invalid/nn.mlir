// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @softmax_result(%arg0: tensor<2x4xf32>) {
  // expected-error @+1 {{'nova.softmax' op result type is bf16[7,7], must be f32[2,4]}}
  %0 = "nova.softmax"(%arg0) {axis = 1 : i64} : (tensor<2x4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @softmax_operands() {
  // expected-error @+1 {{'nova.softmax' op takes (x), has 0 operands}}
  %0 = "nova.softmax"() {axis = 1 : i64} : () -> tensor<2x4xf32>
  return
}

// -----

func.func @log_softmax_result(%arg0: tensor<2x4xf32>) {
  // expected-error @+1 {{'nova.log_softmax' op result type is bf16[7,7], must be f32[2,4]}}
  %0 = "nova.log_softmax"(%arg0) {axis = 1 : i64} : (tensor<2x4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @log_softmax_operands() {
  // expected-error @+1 {{'nova.log_softmax' op takes (x), has 0 operands}}
  %0 = "nova.log_softmax"() {axis = 1 : i64} : () -> tensor<2x4xf32>
  return
}

// -----

func.func @layer_norm_result(%arg0: tensor<2x4xf32>) {
  // expected-error @+1 {{'nova.layer_norm' op result type is bf16[7,7], must be f32[2,4]}}
  %0 = "nova.layer_norm"(%arg0) {eps = 1.000000e-05 : f64, ndim = 1 : i64, operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<2x4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @layer_norm_operands() {
  // expected-error @+1 {{'nova.layer_norm' op takes (x, weight?, bias?), has 0 operands}}
  %0 = "nova.layer_norm"() {eps = 1.000000e-05 : f64, ndim = 1 : i64, operandSegmentSizes = array<i32: 0, 0, 0>} : () -> tensor<2x4xf32>
  return
}

// -----

func.func @rms_norm_result(%arg0: tensor<2x4xf32>) {
  // expected-error @+1 {{'nova.rms_norm' op result type is bf16[7,7], must be f32[2,4]}}
  %0 = "nova.rms_norm"(%arg0) {eps = 1.1920928955078125E-7 : f64, ndim = 1 : i64} : (tensor<2x4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @rms_norm_operands() {
  // expected-error @+1 {{'nova.rms_norm' op takes (x, weight?), has 0 operands}}
  %0 = "nova.rms_norm"() {eps = 1.1920928955078125E-7 : f64, ndim = 1 : i64} : () -> tensor<2x4xf32>
  return
}

// -----

func.func @softmax_1(%arg0: tensor<2x4xf32>) {
  // expected-error @+1 {{'nova.softmax' op axis 2 is out of range for a tensor of rank 2}}
  %0 = "nova.softmax"(%arg0) {axis = 2 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @log_softmax_1(%arg0: tensor<2x4xi64>) {
  // expected-error @+1 {{'nova.log_softmax' op operand types are (i64), must be (f32)}}
  %0 = "nova.log_softmax"(%arg0) : (tensor<2x4xi64>) -> tensor<2x4xf32>
  return
}

// -----

func.func @layer_norm_1(%arg0: tensor<2x4xf32>) {
  // expected-error @+1 {{'nova.layer_norm' op ndim}}
  %0 = "nova.layer_norm"(%arg0) {ndim = 3 : i64, operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @layer_norm_2(%arg0: tensor<2x4xf32>, %arg1: tensor<4xf32>) {
  // expected-error @+1 {{'nova.layer_norm' op operandSegmentSizes is array<i32: 1, 0, 1>, must be 2 ones, then zeros}}
  %0 = "nova.layer_norm"(%arg0, %arg1) {operandSegmentSizes = array<i32: 1, 0, 1>} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @rms_norm_1(%arg0: tensor<2x4xf32>, %arg1: tensor<3xf32>) {
  // expected-error @+1 {{'nova.rms_norm' op weight or bias (3,): the normalized axes are (4,)}}
  %0 = "nova.rms_norm"(%arg0, %arg1) : (tensor<2x4xf32>, tensor<3xf32>) -> tensor<2x4xf32>
  return
}
