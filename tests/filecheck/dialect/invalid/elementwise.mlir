// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @eq_result(%arg0: tensor<2x3xf32>, %arg1: tensor<2x1xf32>) {
  // expected-error @+1 {{'nova.eq' op result type is bf16[7,7], must be bool[2,3]}}
  %0 = "nova.eq"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @eq_operands() {
  // expected-error @+1 {{'nova.eq' op takes (x, y), has 0 operands}}
  %0 = "nova.eq"() : () -> tensor<2x3xi1>
  return
}

// -----

func.func @ne_result(%arg0: tensor<2x3xf32>, %arg1: tensor<2x1xf32>) {
  // expected-error @+1 {{'nova.ne' op result type is bf16[7,7], must be bool[2,3]}}
  %0 = "nova.ne"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @ne_operands() {
  // expected-error @+1 {{'nova.ne' op takes (x, y), has 0 operands}}
  %0 = "nova.ne"() : () -> tensor<2x3xi1>
  return
}

// -----

func.func @lt_result(%arg0: tensor<2x3xf32>, %arg1: tensor<2x1xf32>) {
  // expected-error @+1 {{'nova.lt' op result type is bf16[7,7], must be bool[2,3]}}
  %0 = "nova.lt"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @lt_operands() {
  // expected-error @+1 {{'nova.lt' op takes (x, y), has 0 operands}}
  %0 = "nova.lt"() : () -> tensor<2x3xi1>
  return
}

// -----

func.func @le_result(%arg0: tensor<2x3xf32>, %arg1: tensor<2x1xf32>) {
  // expected-error @+1 {{'nova.le' op result type is bf16[7,7], must be bool[2,3]}}
  %0 = "nova.le"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @le_operands() {
  // expected-error @+1 {{'nova.le' op takes (x, y), has 0 operands}}
  %0 = "nova.le"() : () -> tensor<2x3xi1>
  return
}

// -----

func.func @gt_result(%arg0: tensor<2x3xf32>, %arg1: tensor<2x1xf32>) {
  // expected-error @+1 {{'nova.gt' op result type is bf16[7,7], must be bool[2,3]}}
  %0 = "nova.gt"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @gt_operands() {
  // expected-error @+1 {{'nova.gt' op takes (x, y), has 0 operands}}
  %0 = "nova.gt"() : () -> tensor<2x3xi1>
  return
}

// -----

func.func @ge_result(%arg0: tensor<2x3xf32>, %arg1: tensor<2x1xf32>) {
  // expected-error @+1 {{'nova.ge' op result type is bf16[7,7], must be bool[2,3]}}
  %0 = "nova.ge"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @ge_operands() {
  // expected-error @+1 {{'nova.ge' op takes (x, y), has 0 operands}}
  %0 = "nova.ge"() : () -> tensor<2x3xi1>
  return
}

// -----

func.func @isnan_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.isnan' op result type is bf16[7,7], must be bool[4]}}
  %0 = "nova.isnan"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @isnan_operands() {
  // expected-error @+1 {{'nova.isnan' op takes (x), has 0 operands}}
  %0 = "nova.isnan"() : () -> tensor<4xi1>
  return
}

// -----

func.func @isinf_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.isinf' op result type is bf16[7,7], must be bool[4]}}
  %0 = "nova.isinf"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @isinf_operands() {
  // expected-error @+1 {{'nova.isinf' op takes (x), has 0 operands}}
  %0 = "nova.isinf"() : () -> tensor<4xi1>
  return
}

// -----

func.func @isfinite_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.isfinite' op result type is bf16[7,7], must be bool[4]}}
  %0 = "nova.isfinite"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @isfinite_operands() {
  // expected-error @+1 {{'nova.isfinite' op takes (x), has 0 operands}}
  %0 = "nova.isfinite"() : () -> tensor<4xi1>
  return
}

// -----

func.func @logical_and_result(%arg0: tensor<4xi1>, %arg1: tensor<4xi1>) {
  // expected-error @+1 {{'nova.logical_and' op result type is bf16[7,7], must be bool[4]}}
  %0 = "nova.logical_and"(%arg0, %arg1) : (tensor<4xi1>, tensor<4xi1>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @logical_and_operands() {
  // expected-error @+1 {{'nova.logical_and' op takes (x, y), has 0 operands}}
  %0 = "nova.logical_and"() : () -> tensor<4xi1>
  return
}

// -----

func.func @logical_or_result(%arg0: tensor<4xi1>, %arg1: tensor<4xi1>) {
  // expected-error @+1 {{'nova.logical_or' op result type is bf16[7,7], must be bool[4]}}
  %0 = "nova.logical_or"(%arg0, %arg1) : (tensor<4xi1>, tensor<4xi1>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @logical_or_operands() {
  // expected-error @+1 {{'nova.logical_or' op takes (x, y), has 0 operands}}
  %0 = "nova.logical_or"() : () -> tensor<4xi1>
  return
}

// -----

func.func @logical_xor_result(%arg0: tensor<4xi1>, %arg1: tensor<4xi1>) {
  // expected-error @+1 {{'nova.logical_xor' op result type is bf16[7,7], must be bool[4]}}
  %0 = "nova.logical_xor"(%arg0, %arg1) : (tensor<4xi1>, tensor<4xi1>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @logical_xor_operands() {
  // expected-error @+1 {{'nova.logical_xor' op takes (x, y), has 0 operands}}
  %0 = "nova.logical_xor"() : () -> tensor<4xi1>
  return
}

// -----

func.func @logical_not_result(%arg0: tensor<4xi1>) {
  // expected-error @+1 {{'nova.logical_not' op result type is bf16[7,7], must be bool[4]}}
  %0 = "nova.logical_not"(%arg0) : (tensor<4xi1>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @logical_not_operands() {
  // expected-error @+1 {{'nova.logical_not' op takes (x), has 0 operands}}
  %0 = "nova.logical_not"() : () -> tensor<4xi1>
  return
}

// -----

func.func @detach_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.detach' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.detach"(%arg0) : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @detach_operands() {
  // expected-error @+1 {{'nova.detach' op takes (x), has 0 operands}}
  %0 = "nova.detach"() : () -> tensor<4xf32>
  return
}

// -----

func.func @where_result(%arg0: tensor<3xi1>, %arg1: tensor<2x3xf32>, %arg2: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.where' op result type is bf16[7,7], must be f32[2,3]}}
  %0 = "nova.where"(%arg0, %arg1, %arg2) : (tensor<3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @where_operands() {
  // expected-error @+1 {{'nova.where' op takes (cond, x, y), has 0 operands}}
  %0 = "nova.where"() : () -> tensor<2x3xf32>
  return
}

// -----

func.func @cast_result(%arg0: tensor<4xbf16>) {
  // expected-error @+1 {{'nova.cast' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.cast"(%arg0) {dtype = f32} : (tensor<4xbf16>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @cast_operands() {
  // expected-error @+1 {{'nova.cast' op takes (x), has 0 operands}}
  %0 = "nova.cast"() {dtype = f32} : () -> tensor<4xf32>
  return
}

// -----

func.func @eq_1(%arg0: tensor<2x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.eq' op shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2}}
  %0 = "nova.eq"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xi1>
  return
}

// -----

func.func @ne_1(%arg0: tensor<2x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.ne' op shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2}}
  %0 = "nova.ne"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xi1>
  return
}

// -----

func.func @lt_1(%arg0: tensor<2x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.lt' op shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2}}
  %0 = "nova.lt"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xi1>
  return
}

// -----

func.func @le_1(%arg0: tensor<2x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.le' op shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2}}
  %0 = "nova.le"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xi1>
  return
}

// -----

func.func @gt_1(%arg0: tensor<2x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.gt' op shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2}}
  %0 = "nova.gt"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xi1>
  return
}

// -----

func.func @ge_1(%arg0: tensor<2x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.ge' op shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2}}
  %0 = "nova.ge"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xi1>
  return
}

// -----

func.func @logical_and_1(%arg0: tensor<2x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.logical_and' op shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2}}
  %0 = "nova.logical_and"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xi1>
  return
}

// -----

func.func @logical_or_1(%arg0: tensor<2x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.logical_or' op shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2}}
  %0 = "nova.logical_or"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xi1>
  return
}

// -----

func.func @logical_xor_1(%arg0: tensor<2x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.logical_xor' op shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2}}
  %0 = "nova.logical_xor"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xi1>
  return
}

// -----

func.func @lt_2(%arg0: tensor<2xf32>, %arg1: tensor<2xf64>) {
  // expected-error @+1 {{'nova.lt' op operand types are (f32, f64), must be (f64, f64)}}
  %0 = "nova.lt"(%arg0, %arg1) : (tensor<2xf32>, tensor<2xf64>) -> tensor<2xi1>
  return
}

// -----

func.func @lt_3(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.lt' op result type is f32[2], must be bool[2]}}
  %0 = "nova.lt"(%arg0, %arg1) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @where_1(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>, %arg2: tensor<2xf32>) {
  // expected-error @+1 {{'nova.where' op operand types are (f32, f32, f32), must be (bool, f32, f32)}}
  %0 = "nova.where"(%arg0, %arg1, %arg2) : (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @where_2(%arg0: tensor<2xi1>, %arg1: tensor<3xf32>, %arg2: tensor<3xf32>) {
  // expected-error @+1 {{'nova.where' op shapes (2,) and (3,) and (3,) do not broadcast: axis -1 is 2 and 3}}
  %0 = "nova.where"(%arg0, %arg1, %arg2) : (tensor<2xi1>, tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @cast_1(%arg0: tensor<2xf32>) {
  // expected-error @+1 {{'nova.cast' op needs the attribute `dtype`}}
  %0 = "nova.cast"(%arg0) : (tensor<2xf32>) -> tensor<2xf64>
  return
}

// -----

func.func @cast_2(%arg0: tensor<2xf32>) {
  // expected-error @+1 {{'nova.cast' op 1 is not an element type of Nova}}
  %0 = "nova.cast"(%arg0) {dtype = 1 : i64} : (tensor<2xf32>) -> tensor<2xf64>
  return
}

// -----

func.func @cast_3(%arg0: tensor<2xf32>) {
  // expected-error @+1 {{'nova.cast' op result type is f64[2], must be f16[2]}}
  %0 = "nova.cast"(%arg0) {dtype = f16} : (tensor<2xf32>) -> tensor<2xf64>
  return
}
