// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @matmul_result(%arg0: tensor<2x3xf32>, %arg1: tensor<3x4xf32>) {
  // expected-error @+1 {{'nova.matmul' op result type is bf16[7,7], must be f32[2,4]}}
  %0 = "nova.matmul"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @matmul_operands() {
  // expected-error @+1 {{'nova.matmul' op takes (x, y), has 0 operands}}
  %0 = "nova.matmul"() : () -> tensor<2x4xf32>
  return
}

// -----

func.func @linear_result(%arg0: tensor<2x3xf32>, %arg1: tensor<4x3xf32>) {
  // expected-error @+1 {{'nova.linear' op result type is bf16[7,7], must be f32[2,4]}}
  %0 = "nova.linear"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @linear_operands() {
  // expected-error @+1 {{'nova.linear' op takes (x, weight, bias?), has 0 operands}}
  %0 = "nova.linear"() : () -> tensor<2x4xf32>
  return
}

// -----

func.func @dot_result(%arg0: tensor<3xf32>, %arg1: tensor<3xf32>) {
  // expected-error @+1 {{'nova.dot' op result type is bf16[7,7], must be f32[]}}
  %0 = "nova.dot"(%arg0, %arg1) : (tensor<3xf32>, tensor<3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @dot_operands() {
  // expected-error @+1 {{'nova.dot' op takes (x, y), has 0 operands}}
  %0 = "nova.dot"() : () -> tensor<f32>
  return
}

// -----

func.func @outer_result(%arg0: tensor<2xf32>, %arg1: tensor<3xf32>) {
  // expected-error @+1 {{'nova.outer' op result type is bf16[7,7], must be f32[2,3]}}
  %0 = "nova.outer"(%arg0, %arg1) : (tensor<2xf32>, tensor<3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @outer_operands() {
  // expected-error @+1 {{'nova.outer' op takes (x, y), has 0 operands}}
  %0 = "nova.outer"() : () -> tensor<2x3xf32>
  return
}

// -----

func.func @matmul_1(%arg0: tensor<2x3xf32>, %arg1: tensor<4x5xf32>) {
  // expected-error @+1 {{'nova.matmul' op (2, 3) @ (4, 5)}}
  %0 = "nova.matmul"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<4x5xf32>) -> tensor<2x5xf32>
  return
}

// -----

func.func @matmul_2(%arg0: tensor<2x3xf32>, %arg1: tensor<3x5xf64>) {
  // expected-error @+1 {{'nova.matmul' op operand types are (f32, f64), must be (f64, f64)}}
  %0 = "nova.matmul"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3x5xf64>) -> tensor<2x5xf64>
  return
}

// -----

func.func @matmul_3(%arg0: tensor<2x2x3xf32>, %arg1: tensor<3x3x5xf32>) {
  // expected-error @+1 {{'nova.matmul' op shapes (2,) and (3,) do not broadcast: axis -1 is 2 and 3}}
  %0 = "nova.matmul"(%arg0, %arg1) : (tensor<2x2x3xf32>, tensor<3x3x5xf32>) -> tensor<2x2x5xf32>
  return
}

// -----

func.func @linear_1(%arg0: tensor<2x3xf32>, %arg1: tensor<4x5xf32>) {
  // expected-error @+1 {{'nova.linear' op x (2, 3) with weight (4, 5)}}
  %0 = "nova.linear"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<4x5xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @dot_1(%arg0: tensor<3xf32>, %arg1: tensor<4xf32>) {
  // expected-error @+1 {{'nova.dot' op wants two vectors of one length, got (3,) and (4,)}}
  %0 = "nova.dot"(%arg0, %arg1) : (tensor<3xf32>, tensor<4xf32>) -> tensor<f32>
  return
}

// -----

func.func @outer_1(%arg0: tensor<3x3xf32>, %arg1: tensor<4xf32>) {
  // expected-error @+1 {{'nova.outer' op wants two vectors, got (3, 3) and (4,)}}
  %0 = "nova.outer"(%arg0, %arg1) : (tensor<3x3xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @wide_matmul_result(%arg0: tensor<2x3xi8>, %arg1: tensor<3x4xi8>) {
  // expected-error @+1 {{'nova.wide_matmul' op result type is bf16[7,7], must be i32[2,4]}}
  %0 = "nova.wide_matmul"(%arg0, %arg1) : (tensor<2x3xi8>, tensor<3x4xi8>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @wide_matmul_operands() {
  // expected-error @+1 {{'nova.wide_matmul' op takes (x, y), has 0 operands}}
  %0 = "nova.wide_matmul"() : () -> tensor<2x4xi32>
  return
}
