// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @cumsum_result(%arg0: tensor<2x5xf32>) {
  // expected-error @+1 {{'nova.cumsum' op result type is bf16[7,7], must be f32[2,5]}}
  %0 = "nova.cumsum"(%arg0) {axis = 1 : i64} : (tensor<2x5xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @cumsum_operands() {
  // expected-error @+1 {{'nova.cumsum' op takes (x), has 0 operands}}
  %0 = "nova.cumsum"() {axis = 1 : i64} : () -> tensor<2x5xf32>
  return
}

// -----

func.func @logcumsumexp_result(%arg0: tensor<2x5xf32>) {
  // expected-error @+1 {{'nova.logcumsumexp' op result type is bf16[7,7], must be f32[2,5]}}
  %0 = "nova.logcumsumexp"(%arg0) {axis = 1 : i64} : (tensor<2x5xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @logcumsumexp_operands() {
  // expected-error @+1 {{'nova.logcumsumexp' op takes (x), has 0 operands}}
  %0 = "nova.logcumsumexp"() {axis = 1 : i64} : () -> tensor<2x5xf32>
  return
}

// -----

func.func @argcummax_result(%arg0: tensor<2x5xf32>) {
  // expected-error @+1 {{'nova.argcummax' op result type is bf16[7,7], must be i64[2,5]}}
  %0 = "nova.argcummax"(%arg0) {axis = 1 : i64} : (tensor<2x5xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @argcummax_operands() {
  // expected-error @+1 {{'nova.argcummax' op takes (x), has 0 operands}}
  %0 = "nova.argcummax"() {axis = 1 : i64} : () -> tensor<2x5xi64>
  return
}

// -----

func.func @argcummin_result(%arg0: tensor<2x5xf32>) {
  // expected-error @+1 {{'nova.argcummin' op result type is bf16[7,7], must be i64[2,5]}}
  %0 = "nova.argcummin"(%arg0) {axis = 1 : i64} : (tensor<2x5xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @argcummin_operands() {
  // expected-error @+1 {{'nova.argcummin' op takes (x), has 0 operands}}
  %0 = "nova.argcummin"() {axis = 1 : i64} : () -> tensor<2x5xi64>
  return
}

// -----

func.func @linear_recurrence_result(%arg0: tensor<2x5xf32>, %arg1: tensor<2x5xf32>) {
  // expected-error @+1 {{'nova.linear_recurrence' op result type is bf16[7,7], must be f32[2,5]}}
  %0 = "nova.linear_recurrence"(%arg0, %arg1) {axis = 1 : i64} : (tensor<2x5xf32>, tensor<2x5xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @linear_recurrence_operands() {
  // expected-error @+1 {{'nova.linear_recurrence' op takes (factor, term), has 0 operands}}
  %0 = "nova.linear_recurrence"() {axis = 1 : i64} : () -> tensor<2x5xf32>
  return
}

// -----

func.func @windows_result(%arg0: tensor<2x9xf32>) {
  // expected-error @+1 {{'nova.windows' op result type is bf16[7,7], must be f32[2,3,4]}}
  %0 = "nova.windows"(%arg0) {dilation = array<i64: 1>, kernel = array<i64: 3>, stride = array<i64: 2>} : (tensor<2x9xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @windows_operands() {
  // expected-error @+1 {{'nova.windows' op takes (x), has 0 operands}}
  %0 = "nova.windows"() {dilation = array<i64: 1>, kernel = array<i64: 3>, stride = array<i64: 2>} : () -> tensor<2x3x4xf32>
  return
}

// -----

func.func @overlap_add_result(%arg0: tensor<2x3x4xf32>) {
  // expected-error @+1 {{'nova.overlap_add' op result type is bf16[7,7], must be f32[2,9]}}
  %0 = "nova.overlap_add"(%arg0) {dilation = array<i64: 1>, size = array<i64: 9>, stride = array<i64: 2>} : (tensor<2x3x4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @overlap_add_operands() {
  // expected-error @+1 {{'nova.overlap_add' op takes (x), has 0 operands}}
  %0 = "nova.overlap_add"() {dilation = array<i64: 1>, size = array<i64: 9>, stride = array<i64: 2>} : () -> tensor<2x9xf32>
  return
}

// -----

func.func @conv_channels_last_result(%arg0: tensor<2x9x4xf32>, %arg1: tensor<5x3x4xf32>) {
  // expected-error @+1 {{'nova.conv_channels_last' op result type is bf16[7,7], must be f32[2,4,5]}}
  %0 = "nova.conv_channels_last"(%arg0, %arg1) {dilation = array<i64: 1>, stride = array<i64: 2>} : (tensor<2x9x4xf32>, tensor<5x3x4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @conv_channels_last_operands() {
  // expected-error @+1 {{'nova.conv_channels_last' op takes (x, weight), has 0 operands}}
  %0 = "nova.conv_channels_last"() {dilation = array<i64: 1>, stride = array<i64: 2>} : () -> tensor<2x4x5xf32>
  return
}

// -----

func.func @conv_channels_last_weight_gradient_result(%arg0: tensor<2x9x4xf32>, %arg1: tensor<2x7x5xf32>) {
  // expected-error @+1 {{'nova.conv_channels_last_weight_gradient' op result type is bf16[7,7], must be f32[5,3,4]}}
  %0 = "nova.conv_channels_last_weight_gradient"(%arg0, %arg1) {dilation = array<i64: 1>, kernel = array<i64: 3>, stride = array<i64: 1>} : (tensor<2x9x4xf32>, tensor<2x7x5xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @conv_channels_last_weight_gradient_operands() {
  // expected-error @+1 {{'nova.conv_channels_last_weight_gradient' op takes (x, g), has 0 operands}}
  %0 = "nova.conv_channels_last_weight_gradient"() {dilation = array<i64: 1>, kernel = array<i64: 3>, stride = array<i64: 1>} : () -> tensor<5x3x4xf32>
  return
}

// -----

func.func @argsort_result(%arg0: tensor<2x5xf32>) {
  // expected-error @+1 {{'nova.argsort' op result type is bf16[7,7], must be i64[2,5]}}
  %0 = "nova.argsort"(%arg0) {axis = 1 : i64, descending = false} : (tensor<2x5xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @argsort_operands() {
  // expected-error @+1 {{'nova.argsort' op takes (x), has 0 operands}}
  %0 = "nova.argsort"() {axis = 1 : i64, descending = false} : () -> tensor<2x5xi64>
  return
}

// -----

func.func @argtopk_result(%arg0: tensor<2x9xf32>) {
  // expected-error @+1 {{'nova.argtopk' op result type is bf16[7,7], must be i64[2,2]}}
  %0 = "nova.argtopk"(%arg0) {axis = 1 : i64, k = 2 : i64, largest = true} : (tensor<2x9xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @argtopk_operands() {
  // expected-error @+1 {{'nova.argtopk' op takes (x), has 0 operands}}
  %0 = "nova.argtopk"() {axis = 1 : i64, k = 2 : i64, largest = true} : () -> tensor<2x2xi64>
  return
}

// -----

func.func @scatter_result(%arg0: tensor<4xf32>, %arg1: tensor<2xi64>, %arg2: tensor<2xf32>) {
  // expected-error @+1 {{'nova.scatter' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.scatter"(%arg0, %arg1, %arg2) {axis = 0 : i64} : (tensor<4xf32>, tensor<2xi64>, tensor<2xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @scatter_operands() {
  // expected-error @+1 {{'nova.scatter' op takes (x, index, updates), has 0 operands}}
  %0 = "nova.scatter"() {axis = 0 : i64} : () -> tensor<4xf32>
  return
}

// -----

func.func @scatter_max_result(%arg0: tensor<4xf32>, %arg1: tensor<2xi64>, %arg2: tensor<2xf32>) {
  // expected-error @+1 {{'nova.scatter_max' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.scatter_max"(%arg0, %arg1, %arg2) {axis = 0 : i64} : (tensor<4xf32>, tensor<2xi64>, tensor<2xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @scatter_max_operands() {
  // expected-error @+1 {{'nova.scatter_max' op takes (x, index, updates), has 0 operands}}
  %0 = "nova.scatter_max"() {axis = 0 : i64} : () -> tensor<4xf32>
  return
}

// -----

func.func @scatter_min_result(%arg0: tensor<4xi32>, %arg1: tensor<2xi64>, %arg2: tensor<2xi32>) {
  // expected-error @+1 {{'nova.scatter_min' op result type is bf16[7,7], must be i32[4]}}
  %0 = "nova.scatter_min"(%arg0, %arg1, %arg2) {axis = 0 : i64} : (tensor<4xi32>, tensor<2xi64>, tensor<2xi32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @scatter_min_operands() {
  // expected-error @+1 {{'nova.scatter_min' op takes (x, index, updates), has 0 operands}}
  %0 = "nova.scatter_min"() {axis = 0 : i64} : () -> tensor<4xi32>
  return
}

// -----

func.func @searchsorted_result(%arg0: tensor<3xf32>, %arg1: tensor<2x2xf32>) {
  // expected-error @+1 {{'nova.searchsorted' op result type is bf16[7,7], must be i64[2,2]}}
  %0 = "nova.searchsorted"(%arg0, %arg1) {right = true} : (tensor<3xf32>, tensor<2x2xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @searchsorted_operands() {
  // expected-error @+1 {{'nova.searchsorted' op takes (sorted, values), has 0 operands}}
  %0 = "nova.searchsorted"() {right = true} : () -> tensor<2x2xi64>
  return
}

// -----

func.func @dequantize_result(%arg0: tensor<2x34xui8>) {
  // expected-error @+1 {{'nova.dequantize' op result type is bf16[7,7], must be f32[2,32]}}
  %0 = "nova.dequantize"(%arg0) {format = "q8_0"} : (tensor<2x34xui8>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @dequantize_operands() {
  // expected-error @+1 {{'nova.dequantize' op takes (blocks), has 0 operands}}
  %0 = "nova.dequantize"() {format = "q8_0"} : () -> tensor<2x32xf32>
  return
}

// -----

func.func @quantized_matmul_result(%arg0: tensor<3x256xf32>, %arg1: tensor<2x144xui8>) {
  // expected-error @+1 {{'nova.quantized_matmul' op result type is bf16[7,7], must be f32[3,2]}}
  %0 = "nova.quantized_matmul"(%arg0, %arg1) {format = "q4_k"} : (tensor<3x256xf32>, tensor<2x144xui8>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @quantized_matmul_operands() {
  // expected-error @+1 {{'nova.quantized_matmul' op takes (x, blocks), has 0 operands}}
  %0 = "nova.quantized_matmul"() {format = "q4_k"} : () -> tensor<3x2xf32>
  return
}

// -----

func.func @cumsum_1(%arg0: tensor<2xf32>) {
  // expected-error @+1 {{'nova.cumsum' op axis 1 is out of range}}
  %0 = "nova.cumsum"(%arg0) {axis = 1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @logcumsumexp_1(%arg0: tensor<2xf32>) {
  // expected-error @+1 {{'nova.logcumsumexp' op axis 1 is out of range}}
  %0 = "nova.logcumsumexp"(%arg0) {axis = 1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @argcummax_1(%arg0: tensor<2xf32>) {
  // expected-error @+1 {{'nova.argcummax' op axis 1 is out of range}}
  %0 = "nova.argcummax"(%arg0) {axis = 1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @argcummin_1(%arg0: tensor<2xf32>) {
  // expected-error @+1 {{'nova.argcummin' op axis 1 is out of range}}
  %0 = "nova.argcummin"(%arg0) {axis = 1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @linear_recurrence_1(%arg0: tensor<2xf32>, %arg1: tensor<3xf32>) {
  // expected-error @+1 {{'nova.linear_recurrence' op factors (2,) and terms (3,) differ}}
  %0 = "nova.linear_recurrence"(%arg0, %arg1) {axis = 0 : i64} : (tensor<2xf32>, tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @windows_1(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.windows' op windows of (9,) do not fit in (4,)}}
  %0 = "nova.windows"(%arg0) {kernel = array<i64: 9>} : (tensor<4xf32>) -> tensor<9x1xf32>
  return
}

// -----

func.func @windows_2(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.windows' op kernel (0,): not 1 positive sizes}}
  %0 = "nova.windows"(%arg0) {kernel = array<i64: 0>} : (tensor<4xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @overlap_add_1(%arg0: tensor<2x4xf32>) {
  // expected-error @+1 {{'nova.overlap_add' op 4 windows of 2 taps do not fit in an axis of 3}}
  %0 = "nova.overlap_add"(%arg0) {size = array<i64: 3>} : (tensor<2x4xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @overlap_add_2(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.overlap_add' op 1 sizes for windows (4,)}}
  %0 = "nova.overlap_add"(%arg0) {size = array<i64: 3>} : (tensor<4xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @conv_channels_last_1(%arg0: tensor<2x9x4xf32>, %arg1: tensor<5x3x3xf32>) {
  // expected-error @+1 {{'nova.conv_channels_last' op x has 4 channels, the weight 3}}
  %0 = "nova.conv_channels_last"(%arg0, %arg1) : (tensor<2x9x4xf32>, tensor<5x3x3xf32>) -> tensor<2x7x5xf32>
  return
}

// -----

func.func @conv_channels_last_2(%arg0: tensor<2x2x4xf32>, %arg1: tensor<5x3x4xf32>) {
  // expected-error @+1 {{'nova.conv_channels_last' op windows of (3,) do not fit in (2,)}}
  %0 = "nova.conv_channels_last"(%arg0, %arg1) : (tensor<2x2x4xf32>, tensor<5x3x4xf32>) -> tensor<2x1x5xf32>
  return
}

// -----

func.func @conv_channels_last_3(%arg0: tensor<2x4xf32>, %arg1: tensor<5x4xf32>) {
  // expected-error @+1 {{'nova.conv_channels_last' op x (2, 4) and weight (5, 4): not both (.., positions, channels)}}
  %0 = "nova.conv_channels_last"(%arg0, %arg1) : (tensor<2x4xf32>, tensor<5x4xf32>) -> tensor<2x5xf32>
  return
}

// -----

func.func @conv_channels_last_4(%arg0: tensor<2x9x4xf32>, %arg1: tensor<5x3x4xf64>) {
  // expected-error @+1 {{'nova.conv_channels_last' op operand types are (f32, f64), must be (f64, f64)}}
  %0 = "nova.conv_channels_last"(%arg0, %arg1) : (tensor<2x9x4xf32>, tensor<5x3x4xf64>) -> tensor<2x7x5xf32>
  return
}

// -----

func.func @conv_channels_last_weight_gradient_1(%arg0: tensor<2x9x4xf32>, %arg1: tensor<2x6x5xf32>) {
  // expected-error @+1 {{'nova.conv_channels_last_weight_gradient' op g (2, 6, 5): there are (2, 7) windows}}
  %0 = "nova.conv_channels_last_weight_gradient"(%arg0, %arg1) {kernel = array<i64: 3>} : (tensor<2x9x4xf32>, tensor<2x6x5xf32>) -> tensor<5x3x4xf32>
  return
}

// -----

func.func @argsort_1(%arg0: tensor<2xf32>) {
  // expected-error @+1 {{'nova.argsort' op descending is True or False}}
  %0 = "nova.argsort"(%arg0) {descending = 1 : i64} : (tensor<2xf32>) -> tensor<2xi64>
  return
}

// -----

func.func @scatter_1(%arg0: tensor<4xf32>, %arg1: tensor<2xi64>, %arg2: tensor<3xf32>) {
  // expected-error @+1 {{'nova.scatter' op index (2,) and updates (3,) for x (4,)}}
  %0 = "nova.scatter"(%arg0, %arg1, %arg2) {axis = 0 : i64} : (tensor<4xf32>, tensor<2xi64>, tensor<3xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @scatter_max_1(%arg0: tensor<4xf32>, %arg1: tensor<2xi64>, %arg2: tensor<3xf32>) {
  // expected-error @+1 {{'nova.scatter_max' op index (2,) and updates (3,) for x (4,)}}
  %0 = "nova.scatter_max"(%arg0, %arg1, %arg2) {axis = 0 : i64} : (tensor<4xf32>, tensor<2xi64>, tensor<3xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @scatter_min_1(%arg0: tensor<4xf32>, %arg1: tensor<2xi64>, %arg2: tensor<3xf32>) {
  // expected-error @+1 {{'nova.scatter_min' op index (2,) and updates (3,) for x (4,)}}
  %0 = "nova.scatter_min"(%arg0, %arg1, %arg2) {axis = 0 : i64} : (tensor<4xf32>, tensor<2xi64>, tensor<3xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @argtopk_1(%arg0: tensor<2xf32>) {
  // expected-error @+1 {{'nova.argtopk' op the first 3 of an axis of 2}}
  %0 = "nova.argtopk"(%arg0) {k = 3 : i64} : (tensor<2xf32>) -> tensor<3xi64>
  return
}

// -----

func.func @dequantize_1(%arg0: tensor<2x34xui8>) {
  // expected-error @+1 {{'nova.dequantize' op format 'q9'}}
  %0 = "nova.dequantize"(%arg0) {format = "q9"} : (tensor<2x34xui8>) -> tensor<2x32xf32>
  return
}

// -----

func.func @quantized_matmul_1(%arg0: tensor<64xf32>, %arg1: tensor<2x34xui8>) {
  // expected-error @+1 {{'nova.quantized_matmul' op x (64,) with blocks of 32 elements}}
  %0 = "nova.quantized_matmul"(%arg0, %arg1) {format = "q8_0"} : (tensor<64xf32>, tensor<2x34xui8>) -> tensor<2xf32>
  return
}

// -----

func.func @searchsorted_1(%arg0: tensor<2x3xf32>, %arg1: tensor<4xf32>) {
  // expected-error @+1 {{'nova.searchsorted' op sorted (2, 3) for values (4,)}}
  %0 = "nova.searchsorted"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<4xf32>) -> tensor<4xi64>
  return
}
