// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @barrier_result(%arg0: tensor<4xf32>, %arg1: tensor<f32>) {
  // expected-error @+1 {{'nova.barrier' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.barrier"(%arg0, %arg1) {region = 1 : i64} : (tensor<4xf32>, tensor<f32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @barrier_operands() {
  // expected-error @+1 {{'nova.barrier' op takes (x, after), has 0 operands}}
  %0 = "nova.barrier"() {region = 1 : i64} : () -> tensor<4xf32>
  return
}

// -----

func.func @barrier_1(%arg0: tensor<4xf32>, %arg1: tensor<f32>) {
  // expected-error @+1 {{'nova.barrier' op needs the attribute `region`}}
  %0 = "nova.barrier"(%arg0, %arg1) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return
}

// -----

func.func @constant_1() {
  // expected-error @+1 {{'nova.constant' op needs a dense `value` of its result type}}
  %0 = "nova.constant"() : () -> tensor<4xf32>
  return
}

// -----

func.func @constant_2() {
  // expected-error @+1 {{'nova.constant' op needs a dense `value` of its result type}}
  %0 = "nova.constant"() {value = 1.0 : f32} : () -> tensor<4xf32>
  return
}

// -----

func.func @constant_3() {
  // expected-error @+1 {{'nova.constant' op needs a dense `value` of its result type}}
  %0 = "nova.constant"() {value = dense<1.0> : tensor<3xf32>} : () -> tensor<4xf32>
  return
}
