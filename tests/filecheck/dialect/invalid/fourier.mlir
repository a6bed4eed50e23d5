// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @dft_result(%arg0: tensor<2x8x2xf32>) {
  // expected-error @+1 {{'nova.dft' op result type is bf16[7,7], must be f32[2,8,2]}}
  %0 = "nova.dft"(%arg0) {columns = false, scale = 5.000000e-01 : f64, sign = -1 : i64} : (tensor<2x8x2xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @dft_operands() {
  // expected-error @+1 {{'nova.dft' op takes (x), has 0 operands}}
  %0 = "nova.dft"() {columns = false, scale = 5.000000e-01 : f64, sign = -1 : i64} : () -> tensor<2x8x2xf32>
  return
}

// -----

func.func @rdft_result(%arg0: tensor<2x16xf32>) {
  // expected-error @+1 {{'nova.rdft' op result type is bf16[7,7], must be f32[2,9,2]}}
  %0 = "nova.rdft"(%arg0) {scale = 1.000000e+00 : f64} : (tensor<2x16xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @rdft_operands() {
  // expected-error @+1 {{'nova.rdft' op takes (x), has 0 operands}}
  %0 = "nova.rdft"() {scale = 1.000000e+00 : f64} : () -> tensor<2x9x2xf32>
  return
}

// -----

func.func @irdft_result(%arg0: tensor<2x9x2xf32>) {
  // expected-error @+1 {{'nova.irdft' op result type is bf16[7,7], must be f32[2,16]}}
  %0 = "nova.irdft"(%arg0) {n = 16 : i64, scale = 1.000000e+00 : f64} : (tensor<2x9x2xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @irdft_operands() {
  // expected-error @+1 {{'nova.irdft' op takes (x), has 0 operands}}
  %0 = "nova.irdft"() {n = 16 : i64, scale = 1.000000e+00 : f64} : () -> tensor<2x16xf32>
  return
}

// -----

func.func @dft_1(%arg0: tensor<8x3xf32>) {
  // expected-error @+1 {{'nova.dft' op f32[8,3] has no last axis of two parts}}
  %0 = "nova.dft"(%arg0) {sign = 1 : i64, scale = 1.0 : f64, columns = false} : (tensor<8x3xf32>) -> tensor<8x3xf32>
  return
}

// -----

func.func @dft_2(%arg0: tensor<8x2xf32>) {
  // expected-error @+1 {{'nova.dft' op sign is -1 or 1, not 2}}
  %0 = "nova.dft"(%arg0) {sign = 2 : i64, scale = 1.0 : f64, columns = false} : (tensor<8x2xf32>) -> tensor<8x2xf32>
  return
}

// -----

func.func @irdft_1(%arg0: tensor<9x2xf32>) {
  // expected-error @+1 {{'nova.irdft' op f32[9,2] are not the 8 terms of 14 elements}}
  %0 = "nova.irdft"(%arg0) {n = 14 : i64, scale = 1.0 : f64} : (tensor<9x2xf32>) -> tensor<14xf32>
  return
}
