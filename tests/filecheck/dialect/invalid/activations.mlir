// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @relu_result(%arg0: tensor<2x4xf32>) {
  // expected-error @+1 {{'nova.relu' op result type is bf16[7,7], must be f32[2,4]}}
  %0 = "nova.relu"(%arg0) : (tensor<2x4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @relu_operands() {
  // expected-error @+1 {{'nova.relu' op takes (x), has 0 operands}}
  %0 = "nova.relu"() : () -> tensor<2x4xf32>
  return
}

// -----

func.func @leaky_relu_result(%arg0: tensor<2x4xf32>) {
  // expected-error @+1 {{'nova.leaky_relu' op result type is bf16[7,7], must be f32[2,4]}}
  %0 = "nova.leaky_relu"(%arg0) {negative_slope = 1.000000e-02 : f64} : (tensor<2x4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @leaky_relu_operands() {
  // expected-error @+1 {{'nova.leaky_relu' op takes (x), has 0 operands}}
  %0 = "nova.leaky_relu"() {negative_slope = 1.000000e-02 : f64} : () -> tensor<2x4xf32>
  return
}

// -----

func.func @elu_result(%arg0: tensor<2x4xf32>) {
  // expected-error @+1 {{'nova.elu' op result type is bf16[7,7], must be f32[2,4]}}
  %0 = "nova.elu"(%arg0) {alpha = 1.000000e+00 : f64} : (tensor<2x4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @elu_operands() {
  // expected-error @+1 {{'nova.elu' op takes (x), has 0 operands}}
  %0 = "nova.elu"() {alpha = 1.000000e+00 : f64} : () -> tensor<2x4xf32>
  return
}

// -----

func.func @gelu_result(%arg0: tensor<2x4xf32>) {
  // expected-error @+1 {{'nova.gelu' op result type is bf16[7,7], must be f32[2,4]}}
  %0 = "nova.gelu"(%arg0) {approximate = "none"} : (tensor<2x4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @gelu_operands() {
  // expected-error @+1 {{'nova.gelu' op takes (x), has 0 operands}}
  %0 = "nova.gelu"() {approximate = "none"} : () -> tensor<2x4xf32>
  return
}

// -----

func.func @sigmoid_result(%arg0: tensor<2x4xf32>) {
  // expected-error @+1 {{'nova.sigmoid' op result type is bf16[7,7], must be f32[2,4]}}
  %0 = "nova.sigmoid"(%arg0) : (tensor<2x4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @sigmoid_operands() {
  // expected-error @+1 {{'nova.sigmoid' op takes (x), has 0 operands}}
  %0 = "nova.sigmoid"() : () -> tensor<2x4xf32>
  return
}

// -----

func.func @silu_result(%arg0: tensor<2x4xf32>) {
  // expected-error @+1 {{'nova.silu' op result type is bf16[7,7], must be f32[2,4]}}
  %0 = "nova.silu"(%arg0) : (tensor<2x4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @silu_operands() {
  // expected-error @+1 {{'nova.silu' op takes (x), has 0 operands}}
  %0 = "nova.silu"() : () -> tensor<2x4xf32>
  return
}

// -----

func.func @softplus_result(%arg0: tensor<2x4xf32>) {
  // expected-error @+1 {{'nova.softplus' op result type is bf16[7,7], must be f32[2,4]}}
  %0 = "nova.softplus"(%arg0) {beta = 1.000000e+00 : f64, threshold = 2.000000e+01 : f64} : (tensor<2x4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @softplus_operands() {
  // expected-error @+1 {{'nova.softplus' op takes (x), has 0 operands}}
  %0 = "nova.softplus"() {beta = 1.000000e+00 : f64, threshold = 2.000000e+01 : f64} : () -> tensor<2x4xf32>
  return
}

// -----

func.func @mish_result(%arg0: tensor<2x4xf32>) {
  // expected-error @+1 {{'nova.mish' op result type is bf16[7,7], must be f32[2,4]}}
  %0 = "nova.mish"(%arg0) : (tensor<2x4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @mish_operands() {
  // expected-error @+1 {{'nova.mish' op takes (x), has 0 operands}}
  %0 = "nova.mish"() : () -> tensor<2x4xf32>
  return
}

// -----

func.func @swiglu_result(%arg0: tensor<2x4xf32>) {
  // expected-error @+1 {{'nova.swiglu' op result type is bf16[7,7], must be f32[2,2]}}
  %0 = "nova.swiglu"(%arg0) : (tensor<2x4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @swiglu_operands() {
  // expected-error @+1 {{'nova.swiglu' op takes (x, y?), has 0 operands}}
  %0 = "nova.swiglu"() : () -> tensor<2x2xf32>
  return
}

// -----

func.func @leaky_relu_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.leaky_relu' op operand types are (i32), must be (f32)}}
  %0 = "nova.leaky_relu"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @elu_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.elu' op operand types are (i32), must be (f32)}}
  %0 = "nova.elu"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @gelu_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.gelu' op operand types are (i32), must be (f32)}}
  %0 = "nova.gelu"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @sigmoid_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.sigmoid' op operand types are (i32), must be (f32)}}
  %0 = "nova.sigmoid"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @silu_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.silu' op operand types are (i32), must be (f32)}}
  %0 = "nova.silu"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @softplus_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.softplus' op operand types are (i32), must be (f32)}}
  %0 = "nova.softplus"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @mish_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.mish' op operand types are (i32), must be (f32)}}
  %0 = "nova.mish"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @gelu_2(%arg0: tensor<2xf32>) {
  // expected-error @+1 {{'nova.gelu' op approximate='maybe' is unknown}}
  %0 = "nova.gelu"(%arg0) {approximate = "maybe"} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @elu_2(%arg0: tensor<2xf32>) {
  // expected-error @+1 {{'nova.elu' op alpha must be a number}}
  %0 = "nova.elu"(%arg0) {alpha = "big"} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @swiglu_1(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.swiglu' op one operand is halved along its last axis, and (2, 3) has no even one}}
  %0 = "nova.swiglu"(%arg0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}
