// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @mean_result(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.mean' op result type is bf16[7,7], must be f32[]}}
  %0 = "nova.mean"(%arg0) {axis = array<i64: 0, 1>, keepdims = false} : (tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @mean_operands() {
  // expected-error @+1 {{'nova.mean' op takes (x), has 0 operands}}
  %0 = "nova.mean"() {axis = array<i64: 0, 1>, keepdims = false} : () -> tensor<f32>
  return
}

// -----

func.func @var_result(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.var' op result type is bf16[7,7], must be f32[]}}
  %0 = "nova.var"(%arg0) {axis = array<i64: 0, 1>, correction = 1 : i64, keepdims = false} : (tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @var_operands() {
  // expected-error @+1 {{'nova.var' op takes (x), has 0 operands}}
  %0 = "nova.var"() {axis = array<i64: 0, 1>, correction = 1 : i64, keepdims = false} : () -> tensor<f32>
  return
}

// -----

func.func @std_result(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.std' op result type is bf16[7,7], must be f32[]}}
  %0 = "nova.std"(%arg0) {axis = array<i64: 0, 1>, correction = 1 : i64, keepdims = false} : (tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @std_operands() {
  // expected-error @+1 {{'nova.std' op takes (x), has 0 operands}}
  %0 = "nova.std"() {axis = array<i64: 0, 1>, correction = 1 : i64, keepdims = false} : () -> tensor<f32>
  return
}

// -----

func.func @logsumexp_result(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.logsumexp' op result type is bf16[7,7], must be f32[]}}
  %0 = "nova.logsumexp"(%arg0) {axis = array<i64: 0, 1>, keepdims = false} : (tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @logsumexp_operands() {
  // expected-error @+1 {{'nova.logsumexp' op takes (x), has 0 operands}}
  %0 = "nova.logsumexp"() {axis = array<i64: 0, 1>, keepdims = false} : () -> tensor<f32>
  return
}

// -----

func.func @mean_1(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.mean' op axis 2 is out of range for a tensor of rank 2}}
  %0 = "nova.mean"(%arg0) {axis = 2 : i64} : (tensor<2x3xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @var_1(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.var' op axis 2 is out of range for a tensor of rank 2}}
  %0 = "nova.var"(%arg0) {axis = 2 : i64} : (tensor<2x3xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @std_1(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.std' op axis 2 is out of range for a tensor of rank 2}}
  %0 = "nova.std"(%arg0) {axis = 2 : i64} : (tensor<2x3xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @logsumexp_1(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.logsumexp' op axis 2 is out of range for a tensor of rank 2}}
  %0 = "nova.logsumexp"(%arg0) {axis = 2 : i64} : (tensor<2x3xf32>) -> tensor<2xf32>
  return
}
