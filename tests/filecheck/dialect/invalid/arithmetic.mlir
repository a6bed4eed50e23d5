// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @neg_result(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.neg' op result type is bf16[7,7], must be f32[2,3]}}
  %0 = "nova.neg"(%arg0) : (tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @neg_operands() {
  // expected-error @+1 {{'nova.neg' op takes (x), has 0 operands}}
  %0 = "nova.neg"() : () -> tensor<2x3xf32>
  return
}

// -----

func.func @abs_result(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.abs' op result type is bf16[7,7], must be f32[2,3]}}
  %0 = "nova.abs"(%arg0) : (tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @abs_operands() {
  // expected-error @+1 {{'nova.abs' op takes (x), has 0 operands}}
  %0 = "nova.abs"() : () -> tensor<2x3xf32>
  return
}

// -----

func.func @sign_result(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.sign' op result type is bf16[7,7], must be f32[2,3]}}
  %0 = "nova.sign"(%arg0) : (tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @sign_operands() {
  // expected-error @+1 {{'nova.sign' op takes (x), has 0 operands}}
  %0 = "nova.sign"() : () -> tensor<2x3xf32>
  return
}

// -----

func.func @square_result(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.square' op result type is bf16[7,7], must be f32[2,3]}}
  %0 = "nova.square"(%arg0) : (tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @square_operands() {
  // expected-error @+1 {{'nova.square' op takes (x), has 0 operands}}
  %0 = "nova.square"() : () -> tensor<2x3xf32>
  return
}

// -----

func.func @reciprocal_result(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.reciprocal' op result type is bf16[7,7], must be f32[2,3]}}
  %0 = "nova.reciprocal"(%arg0) : (tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @reciprocal_operands() {
  // expected-error @+1 {{'nova.reciprocal' op takes (x), has 0 operands}}
  %0 = "nova.reciprocal"() : () -> tensor<2x3xf32>
  return
}

// -----

func.func @add_result(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) {
  // expected-error @+1 {{'nova.add' op result type is bf16[7,7], must be f32[2,3]}}
  %0 = "nova.add"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @add_operands() {
  // expected-error @+1 {{'nova.add' op takes (x, y), has 0 operands}}
  %0 = "nova.add"() : () -> tensor<2x3xf32>
  return
}

// -----

func.func @sub_result(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) {
  // expected-error @+1 {{'nova.sub' op result type is bf16[7,7], must be f32[2,3]}}
  %0 = "nova.sub"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @sub_operands() {
  // expected-error @+1 {{'nova.sub' op takes (x, y), has 0 operands}}
  %0 = "nova.sub"() : () -> tensor<2x3xf32>
  return
}

// -----

func.func @mul_result(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) {
  // expected-error @+1 {{'nova.mul' op result type is bf16[7,7], must be f32[2,3]}}
  %0 = "nova.mul"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @mul_operands() {
  // expected-error @+1 {{'nova.mul' op takes (x, y), has 0 operands}}
  %0 = "nova.mul"() : () -> tensor<2x3xf32>
  return
}

// -----

func.func @div_result(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) {
  // expected-error @+1 {{'nova.div' op result type is bf16[7,7], must be f32[2,3]}}
  %0 = "nova.div"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @div_operands() {
  // expected-error @+1 {{'nova.div' op takes (x, y), has 0 operands}}
  %0 = "nova.div"() : () -> tensor<2x3xf32>
  return
}

// -----

func.func @floor_div_result(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) {
  // expected-error @+1 {{'nova.floor_div' op result type is bf16[7,7], must be f32[2,3]}}
  %0 = "nova.floor_div"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @floor_div_operands() {
  // expected-error @+1 {{'nova.floor_div' op takes (x, y), has 0 operands}}
  %0 = "nova.floor_div"() : () -> tensor<2x3xf32>
  return
}

// -----

func.func @mod_result(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) {
  // expected-error @+1 {{'nova.mod' op result type is bf16[7,7], must be f32[2,3]}}
  %0 = "nova.mod"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @mod_operands() {
  // expected-error @+1 {{'nova.mod' op takes (x, y), has 0 operands}}
  %0 = "nova.mod"() : () -> tensor<2x3xf32>
  return
}

// -----

func.func @pow_result(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) {
  // expected-error @+1 {{'nova.pow' op result type is bf16[7,7], must be f32[2,3]}}
  %0 = "nova.pow"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @pow_operands() {
  // expected-error @+1 {{'nova.pow' op takes (x, y), has 0 operands}}
  %0 = "nova.pow"() : () -> tensor<2x3xf32>
  return
}

// -----

func.func @minimum_result(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) {
  // expected-error @+1 {{'nova.minimum' op result type is bf16[7,7], must be f32[2,3]}}
  %0 = "nova.minimum"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @minimum_operands() {
  // expected-error @+1 {{'nova.minimum' op takes (x, y), has 0 operands}}
  %0 = "nova.minimum"() : () -> tensor<2x3xf32>
  return
}

// -----

func.func @maximum_result(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) {
  // expected-error @+1 {{'nova.maximum' op result type is bf16[7,7], must be f32[2,3]}}
  %0 = "nova.maximum"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @maximum_operands() {
  // expected-error @+1 {{'nova.maximum' op takes (x, y), has 0 operands}}
  %0 = "nova.maximum"() : () -> tensor<2x3xf32>
  return
}

// -----

func.func @floor_result(%arg0: tensor<4xf64>) {
  // expected-error @+1 {{'nova.floor' op result type is bf16[7,7], must be f64[4]}}
  %0 = "nova.floor"(%arg0) : (tensor<4xf64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @floor_operands() {
  // expected-error @+1 {{'nova.floor' op takes (x), has 0 operands}}
  %0 = "nova.floor"() : () -> tensor<4xf64>
  return
}

// -----

func.func @ceil_result(%arg0: tensor<4xf64>) {
  // expected-error @+1 {{'nova.ceil' op result type is bf16[7,7], must be f64[4]}}
  %0 = "nova.ceil"(%arg0) : (tensor<4xf64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @ceil_operands() {
  // expected-error @+1 {{'nova.ceil' op takes (x), has 0 operands}}
  %0 = "nova.ceil"() : () -> tensor<4xf64>
  return
}

// -----

func.func @round_result(%arg0: tensor<4xf64>) {
  // expected-error @+1 {{'nova.round' op result type is bf16[7,7], must be f64[4]}}
  %0 = "nova.round"(%arg0) : (tensor<4xf64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @round_operands() {
  // expected-error @+1 {{'nova.round' op takes (x), has 0 operands}}
  %0 = "nova.round"() : () -> tensor<4xf64>
  return
}

// -----

func.func @trunc_result(%arg0: tensor<4xf64>) {
  // expected-error @+1 {{'nova.trunc' op result type is bf16[7,7], must be f64[4]}}
  %0 = "nova.trunc"(%arg0) : (tensor<4xf64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @trunc_operands() {
  // expected-error @+1 {{'nova.trunc' op takes (x), has 0 operands}}
  %0 = "nova.trunc"() : () -> tensor<4xf64>
  return
}

// -----

func.func @clamp_result(%arg0: tensor<5xf32>) {
  // expected-error @+1 {{'nova.clamp' op result type is bf16[7,7], must be f32[5]}}
  %0 = "nova.clamp"(%arg0) {max = 1.000000e+00 : f64, min = -1.000000e+00 : f64} : (tensor<5xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @clamp_operands() {
  // expected-error @+1 {{'nova.clamp' op takes (x), has 0 operands}}
  %0 = "nova.clamp"() {max = 1.000000e+00 : f64, min = -1.000000e+00 : f64} : () -> tensor<5xf32>
  return
}

// -----

func.func @add_1(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xi32>) {
  // expected-error @+1 {{'nova.add' op operand types are (f32, i32), must be (f32, f32)}}
  %0 = "nova.add"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2x3xi32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @neg_1(%arg0: tensor<?x3xf32>) {
  // expected-error @+1 {{'nova.neg' op tensor<?x3xf32> has no static shape}}
  %0 = "nova.neg"(%arg0) : (tensor<?x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @neg_2(%arg0: tensor<*xf32>) {
  // expected-error @+1 {{'nova.neg' op tensor<*xf32> has no static shape}}
  %0 = "nova.neg"(%arg0) : (tensor<*xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @neg_3(%arg0: tensor<2xi17>) {
  // expected-error @+1 {{'nova.neg' op element type i17 is not one of Nova's}}
  %0 = "nova.neg"(%arg0) : (tensor<2xi17>) -> tensor<2xi17>
  return
}

// -----

func.func @neg_4(%arg0: tensor<2xui17>) {
  // expected-error @+1 {{'nova.neg' op element type ui17 is not one of Nova's}}
  %0 = "nova.neg"(%arg0) : (tensor<2xui17>) -> tensor<2xui17>
  return
}

// -----

func.func @neg_5(%arg0: tensor<2xf32>) {
  // expected-error @+1 {{'nova.neg' op has no attribute `axis`}}
  %0 = "nova.neg"(%arg0) {axis = 0 : i64} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @add_2(%arg0: tensor<2x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.add' op shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2}}
  %0 = "nova.add"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @sub_1(%arg0: tensor<2x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.sub' op shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2}}
  %0 = "nova.sub"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @mul_1(%arg0: tensor<2x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.mul' op shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2}}
  %0 = "nova.mul"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @div_1(%arg0: tensor<2x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.div' op shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2}}
  %0 = "nova.div"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @floor_div_1(%arg0: tensor<2x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.floor_div' op shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2}}
  %0 = "nova.floor_div"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @mod_1(%arg0: tensor<2x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.mod' op shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2}}
  %0 = "nova.mod"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @pow_1(%arg0: tensor<2x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.pow' op shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2}}
  %0 = "nova.pow"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @minimum_1(%arg0: tensor<2x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.minimum' op shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2}}
  %0 = "nova.minimum"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @maximum_1(%arg0: tensor<2x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.maximum' op shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2}}
  %0 = "nova.maximum"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @mul_2(%arg0: tensor<2xf32>, %arg1: tensor<2xf64>) {
  // expected-error @+1 {{'nova.mul' op operand types are (f32, f64), must be (f64, f64)}}
  %0 = "nova.mul"(%arg0, %arg1) : (tensor<2xf32>, tensor<2xf64>) -> tensor<2xf64>
  return
}

// -----

func.func @clamp_1(%arg0: tensor<2xf32>) {
  // expected-error @+1 {{'nova.clamp' op min must be a number, not 'low'}}
  %0 = "nova.clamp"(%arg0) {min = "low"} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @add_complex(%arg0: tensor<4xcomplex<f32>>) {
  // expected-error @+1 {{'nova.add' op operands are complex: only nova.complex, nova.real and nova.imag have such types}}
  %0 = "nova.add"(%arg0, %arg0) : (tensor<4xcomplex<f32>>, tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>>
  return
}
