// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @uniform_result(%arg0: tensor<i64>) {
  // expected-error @+1 {{'nova.uniform' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.uniform"(%arg0) {shape = array<i64: 4>, stream = 0 : i64} : (tensor<i64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @uniform_operands() {
  // expected-error @+1 {{'nova.uniform' op takes (seed), has 0 operands}}
  %0 = "nova.uniform"() {shape = array<i64: 4>, stream = 0 : i64} : () -> tensor<4xf32>
  return
}

// -----

func.func @normal_result(%arg0: tensor<i64>) {
  // expected-error @+1 {{'nova.normal' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.normal"(%arg0) {shape = array<i64: 4>} : (tensor<i64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @normal_operands() {
  // expected-error @+1 {{'nova.normal' op takes (seed), has 0 operands}}
  %0 = "nova.normal"() {shape = array<i64: 4>} : () -> tensor<4xf32>
  return
}

// -----

func.func @uniform_1(%arg0: tensor<f32>) {
  // expected-error @+1 {{'nova.uniform' op the seed must hold integers, not f32}}
  %0 = "nova.uniform"(%arg0) {shape = array<i64: 4>} : (tensor<f32>) -> tensor<4xf32>
  return
}

// -----

func.func @normal_1(%arg0: tensor<i64>) {
  // expected-error @+1 {{'nova.normal' op needs the attribute `shape`}}
  %0 = "nova.normal"(%arg0) : (tensor<i64>) -> tensor<4xf32>
  return
}
