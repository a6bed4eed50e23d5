// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @bitwise_and_result(%arg0: tensor<2x3xi32>, %arg1: tensor<3xi32>) {
  // expected-error @+1 {{'nova.bitwise_and' op result type is bf16[7,7], must be i32[2,3]}}
  %0 = "nova.bitwise_and"(%arg0, %arg1) : (tensor<2x3xi32>, tensor<3xi32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @bitwise_and_operands() {
  // expected-error @+1 {{'nova.bitwise_and' op takes (x, y), has 0 operands}}
  %0 = "nova.bitwise_and"() : () -> tensor<2x3xi32>
  return
}

// -----

func.func @bitwise_or_result(%arg0: tensor<2x3xi32>, %arg1: tensor<3xi32>) {
  // expected-error @+1 {{'nova.bitwise_or' op result type is bf16[7,7], must be i32[2,3]}}
  %0 = "nova.bitwise_or"(%arg0, %arg1) : (tensor<2x3xi32>, tensor<3xi32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @bitwise_or_operands() {
  // expected-error @+1 {{'nova.bitwise_or' op takes (x, y), has 0 operands}}
  %0 = "nova.bitwise_or"() : () -> tensor<2x3xi32>
  return
}

// -----

func.func @bitwise_xor_result(%arg0: tensor<2x3xi32>, %arg1: tensor<3xi32>) {
  // expected-error @+1 {{'nova.bitwise_xor' op result type is bf16[7,7], must be i32[2,3]}}
  %0 = "nova.bitwise_xor"(%arg0, %arg1) : (tensor<2x3xi32>, tensor<3xi32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @bitwise_xor_operands() {
  // expected-error @+1 {{'nova.bitwise_xor' op takes (x, y), has 0 operands}}
  %0 = "nova.bitwise_xor"() : () -> tensor<2x3xi32>
  return
}

// -----

func.func @bitwise_left_shift_result(%arg0: tensor<2x3xi32>, %arg1: tensor<3xi32>) {
  // expected-error @+1 {{'nova.bitwise_left_shift' op result type is bf16[7,7], must be i32[2,3]}}
  %0 = "nova.bitwise_left_shift"(%arg0, %arg1) : (tensor<2x3xi32>, tensor<3xi32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @bitwise_left_shift_operands() {
  // expected-error @+1 {{'nova.bitwise_left_shift' op takes (x, y), has 0 operands}}
  %0 = "nova.bitwise_left_shift"() : () -> tensor<2x3xi32>
  return
}

// -----

func.func @bitwise_right_shift_result(%arg0: tensor<2x3xi32>, %arg1: tensor<3xi32>) {
  // expected-error @+1 {{'nova.bitwise_right_shift' op result type is bf16[7,7], must be i32[2,3]}}
  %0 = "nova.bitwise_right_shift"(%arg0, %arg1) : (tensor<2x3xi32>, tensor<3xi32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @bitwise_right_shift_operands() {
  // expected-error @+1 {{'nova.bitwise_right_shift' op takes (x, y), has 0 operands}}
  %0 = "nova.bitwise_right_shift"() : () -> tensor<2x3xi32>
  return
}

// -----

func.func @bitwise_not_result(%arg0: tensor<4xui8>) {
  // expected-error @+1 {{'nova.bitwise_not' op result type is bf16[7,7], must be u8[4]}}
  %0 = "nova.bitwise_not"(%arg0) : (tensor<4xui8>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @bitwise_not_operands() {
  // expected-error @+1 {{'nova.bitwise_not' op takes (x), has 0 operands}}
  %0 = "nova.bitwise_not"() : () -> tensor<4xui8>
  return
}

// -----

func.func @bitwise_and_1(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.bitwise_and' op bits of f32}}
  %0 = "nova.bitwise_and"(%arg0, %arg1) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @bitwise_or_1(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.bitwise_or' op bits of f32}}
  %0 = "nova.bitwise_or"(%arg0, %arg1) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @bitwise_xor_1(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.bitwise_xor' op bits of f32}}
  %0 = "nova.bitwise_xor"(%arg0, %arg1) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @bitwise_not_1(%arg0: tensor<2xf32>) {
  // expected-error @+1 {{'nova.bitwise_not' op bits of f32}}
  %0 = "nova.bitwise_not"(%arg0) : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @bitwise_left_shift_1(%arg0: tensor<2xi1>, %arg1: tensor<2xi1>) {
  // expected-error @+1 {{'nova.bitwise_left_shift' op shifts of bool}}
  %0 = "nova.bitwise_left_shift"(%arg0, %arg1) : (tensor<2xi1>, tensor<2xi1>) -> tensor<2xi1>
  return
}

// -----

func.func @bitwise_right_shift_1(%arg0: tensor<2xi1>, %arg1: tensor<2xi1>) {
  // expected-error @+1 {{'nova.bitwise_right_shift' op shifts of bool}}
  %0 = "nova.bitwise_right_shift"(%arg0, %arg1) : (tensor<2xi1>, tensor<2xi1>) -> tensor<2xi1>
  return
}

// -----

func.func @bitcast_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.bitcast' op result type is bf16[7,7], must be i32[4]}}
  %0 = "nova.bitcast"(%arg0) {dtype = i32} : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @bitcast_operands() {
  // expected-error @+1 {{'nova.bitcast' op takes (x), has 0 operands}}
  %0 = "nova.bitcast"() {dtype = i32} : () -> tensor<4xi32>
  return
}
