// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @exp_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.exp' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.exp"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @exp_operands() {
  // expected-error @+1 {{'nova.exp' op takes (x), has 0 operands}}
  %0 = "nova.exp"() : () -> tensor<4xf32>
  return
}

// -----

func.func @exp2_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.exp2' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.exp2"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @exp2_operands() {
  // expected-error @+1 {{'nova.exp2' op takes (x), has 0 operands}}
  %0 = "nova.exp2"() : () -> tensor<4xf32>
  return
}

// -----

func.func @expm1_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.expm1' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.expm1"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @expm1_operands() {
  // expected-error @+1 {{'nova.expm1' op takes (x), has 0 operands}}
  %0 = "nova.expm1"() : () -> tensor<4xf32>
  return
}

// -----

func.func @log_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.log' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.log"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @log_operands() {
  // expected-error @+1 {{'nova.log' op takes (x), has 0 operands}}
  %0 = "nova.log"() : () -> tensor<4xf32>
  return
}

// -----

func.func @log2_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.log2' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.log2"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @log2_operands() {
  // expected-error @+1 {{'nova.log2' op takes (x), has 0 operands}}
  %0 = "nova.log2"() : () -> tensor<4xf32>
  return
}

// -----

func.func @log10_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.log10' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.log10"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @log10_operands() {
  // expected-error @+1 {{'nova.log10' op takes (x), has 0 operands}}
  %0 = "nova.log10"() : () -> tensor<4xf32>
  return
}

// -----

func.func @log1p_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.log1p' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.log1p"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @log1p_operands() {
  // expected-error @+1 {{'nova.log1p' op takes (x), has 0 operands}}
  %0 = "nova.log1p"() : () -> tensor<4xf32>
  return
}

// -----

func.func @sqrt_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.sqrt' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.sqrt"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @sqrt_operands() {
  // expected-error @+1 {{'nova.sqrt' op takes (x), has 0 operands}}
  %0 = "nova.sqrt"() : () -> tensor<4xf32>
  return
}

// -----

func.func @rsqrt_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.rsqrt' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.rsqrt"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @rsqrt_operands() {
  // expected-error @+1 {{'nova.rsqrt' op takes (x), has 0 operands}}
  %0 = "nova.rsqrt"() : () -> tensor<4xf32>
  return
}

// -----

func.func @erf_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.erf' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.erf"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @erfc_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.erfc' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.erfc"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @erf_operands() {
  // expected-error @+1 {{'nova.erf' op takes (x), has 0 operands}}
  %0 = "nova.erf"() : () -> tensor<4xf32>
  return
}

// -----

func.func @erfc_operands() {
  // expected-error @+1 {{'nova.erfc' op takes (x), has 0 operands}}
  %0 = "nova.erfc"() : () -> tensor<4xf32>
  return
}

// -----

func.func @sin_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.sin' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.sin"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @sin_operands() {
  // expected-error @+1 {{'nova.sin' op takes (x), has 0 operands}}
  %0 = "nova.sin"() : () -> tensor<4xf32>
  return
}

// -----

func.func @cos_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.cos' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.cos"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @cos_operands() {
  // expected-error @+1 {{'nova.cos' op takes (x), has 0 operands}}
  %0 = "nova.cos"() : () -> tensor<4xf32>
  return
}

// -----

func.func @tan_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.tan' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.tan"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @tan_operands() {
  // expected-error @+1 {{'nova.tan' op takes (x), has 0 operands}}
  %0 = "nova.tan"() : () -> tensor<4xf32>
  return
}

// -----

func.func @asin_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.asin' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.asin"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @asin_operands() {
  // expected-error @+1 {{'nova.asin' op takes (x), has 0 operands}}
  %0 = "nova.asin"() : () -> tensor<4xf32>
  return
}

// -----

func.func @acos_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.acos' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.acos"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @acos_operands() {
  // expected-error @+1 {{'nova.acos' op takes (x), has 0 operands}}
  %0 = "nova.acos"() : () -> tensor<4xf32>
  return
}

// -----

func.func @atan_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.atan' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.atan"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @atan_operands() {
  // expected-error @+1 {{'nova.atan' op takes (x), has 0 operands}}
  %0 = "nova.atan"() : () -> tensor<4xf32>
  return
}

// -----

func.func @sinh_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.sinh' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.sinh"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @sinh_operands() {
  // expected-error @+1 {{'nova.sinh' op takes (x), has 0 operands}}
  %0 = "nova.sinh"() : () -> tensor<4xf32>
  return
}

// -----

func.func @cosh_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.cosh' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.cosh"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @cosh_operands() {
  // expected-error @+1 {{'nova.cosh' op takes (x), has 0 operands}}
  %0 = "nova.cosh"() : () -> tensor<4xf32>
  return
}

// -----

func.func @tanh_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.tanh' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.tanh"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @tanh_operands() {
  // expected-error @+1 {{'nova.tanh' op takes (x), has 0 operands}}
  %0 = "nova.tanh"() : () -> tensor<4xf32>
  return
}

// -----

func.func @asinh_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.asinh' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.asinh"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @asinh_operands() {
  // expected-error @+1 {{'nova.asinh' op takes (x), has 0 operands}}
  %0 = "nova.asinh"() : () -> tensor<4xf32>
  return
}

// -----

func.func @acosh_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.acosh' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.acosh"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @acosh_operands() {
  // expected-error @+1 {{'nova.acosh' op takes (x), has 0 operands}}
  %0 = "nova.acosh"() : () -> tensor<4xf32>
  return
}

// -----

func.func @atanh_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.atanh' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.atanh"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @atanh_operands() {
  // expected-error @+1 {{'nova.atanh' op takes (x), has 0 operands}}
  %0 = "nova.atanh"() : () -> tensor<4xf32>
  return
}

// -----

func.func @atan2_result(%arg0: tensor<4xf64>, %arg1: tensor<4xf64>) {
  // expected-error @+1 {{'nova.atan2' op result type is bf16[7,7], must be f64[4]}}
  %0 = "nova.atan2"(%arg0, %arg1) : (tensor<4xf64>, tensor<4xf64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @atan2_operands() {
  // expected-error @+1 {{'nova.atan2' op takes (y, x), has 0 operands}}
  %0 = "nova.atan2"() : () -> tensor<4xf64>
  return
}

// -----

func.func @exp_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.exp' op operand types are (i32), must be (f32)}}
  %0 = "nova.exp"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @exp2_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.exp2' op operand types are (i32), must be (f32)}}
  %0 = "nova.exp2"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @expm1_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.expm1' op operand types are (i32), must be (f32)}}
  %0 = "nova.expm1"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @log_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.log' op operand types are (i32), must be (f32)}}
  %0 = "nova.log"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @log2_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.log2' op operand types are (i32), must be (f32)}}
  %0 = "nova.log2"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @log10_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.log10' op operand types are (i32), must be (f32)}}
  %0 = "nova.log10"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @log1p_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.log1p' op operand types are (i32), must be (f32)}}
  %0 = "nova.log1p"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @sqrt_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.sqrt' op operand types are (i32), must be (f32)}}
  %0 = "nova.sqrt"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @rsqrt_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.rsqrt' op operand types are (i32), must be (f32)}}
  %0 = "nova.rsqrt"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @erf_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.erf' op operand types are (i32), must be (f32)}}
  %0 = "nova.erf"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @erfc_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.erfc' op operand types are (i32), must be (f32)}}
  %0 = "nova.erfc"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @sin_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.sin' op operand types are (i32), must be (f32)}}
  %0 = "nova.sin"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @cos_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.cos' op operand types are (i32), must be (f32)}}
  %0 = "nova.cos"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @tan_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.tan' op operand types are (i32), must be (f32)}}
  %0 = "nova.tan"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @asin_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.asin' op operand types are (i32), must be (f32)}}
  %0 = "nova.asin"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @acos_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.acos' op operand types are (i32), must be (f32)}}
  %0 = "nova.acos"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @atan_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.atan' op operand types are (i32), must be (f32)}}
  %0 = "nova.atan"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @sinh_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.sinh' op operand types are (i32), must be (f32)}}
  %0 = "nova.sinh"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @cosh_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.cosh' op operand types are (i32), must be (f32)}}
  %0 = "nova.cosh"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @tanh_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.tanh' op operand types are (i32), must be (f32)}}
  %0 = "nova.tanh"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @asinh_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.asinh' op operand types are (i32), must be (f32)}}
  %0 = "nova.asinh"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @acosh_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.acosh' op operand types are (i32), must be (f32)}}
  %0 = "nova.acosh"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @atanh_1(%arg0: tensor<2xi32>) {
  // expected-error @+1 {{'nova.atanh' op operand types are (i32), must be (f32)}}
  %0 = "nova.atanh"(%arg0) : (tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @atan2_1(%arg0: tensor<2x3xf64>, %arg1: tensor<2xf64>) {
  // expected-error @+1 {{'nova.atan2' op shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2}}
  %0 = "nova.atan2"(%arg0, %arg1) : (tensor<2x3xf64>, tensor<2xf64>) -> tensor<2x3xf64>
  return
}
