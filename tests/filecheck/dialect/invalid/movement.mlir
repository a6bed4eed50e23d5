// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @reshape_result(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.reshape' op result type is bf16[7,7], must be f32[6]}}
  %0 = "nova.reshape"(%arg0) {shape = array<i64: 6>} : (tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @reshape_operands() {
  // expected-error @+1 {{'nova.reshape' op takes (x), has 0 operands}}
  %0 = "nova.reshape"() {shape = array<i64: 6>} : () -> tensor<6xf32>
  return
}

// -----

func.func @permute_result(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.permute' op result type is bf16[7,7], must be f32[3,2]}}
  %0 = "nova.permute"(%arg0) {axes = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @permute_operands() {
  // expected-error @+1 {{'nova.permute' op takes (x), has 0 operands}}
  %0 = "nova.permute"() {axes = array<i64: 1, 0>} : () -> tensor<3x2xf32>
  return
}

// -----

func.func @expand_result(%arg0: tensor<1x3xf32>) {
  // expected-error @+1 {{'nova.expand' op result type is bf16[7,7], must be f32[4,3]}}
  %0 = "nova.expand"(%arg0) {shape = array<i64: 4, 3>} : (tensor<1x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @expand_operands() {
  // expected-error @+1 {{'nova.expand' op takes (x), has 0 operands}}
  %0 = "nova.expand"() {shape = array<i64: 4, 3>} : () -> tensor<4x3xf32>
  return
}

// -----

func.func @flip_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.flip' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.flip"(%arg0) {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @flip_operands() {
  // expected-error @+1 {{'nova.flip' op takes (x), has 0 operands}}
  %0 = "nova.flip"() {axes = array<i64: 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @slice_result(%arg0: tensor<6xf32>) {
  // expected-error @+1 {{'nova.slice' op result type is bf16[7,7], must be f32[3]}}
  %0 = "nova.slice"(%arg0) {starts = array<i64: 1>, steps = array<i64: 2>, stops = array<i64: 6>} : (tensor<6xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @slice_operands() {
  // expected-error @+1 {{'nova.slice' op takes (x), has 0 operands}}
  %0 = "nova.slice"() {starts = array<i64: 1>, steps = array<i64: 2>, stops = array<i64: 6>} : () -> tensor<3xf32>
  return
}

// -----

func.func @unslice_result(%arg0: tensor<3xf32>) {
  // expected-error @+1 {{'nova.unslice' op result type is bf16[7,7], must be f32[6]}}
  %0 = "nova.unslice"(%arg0) {shape = array<i64: 6>, starts = array<i64: 1>, steps = array<i64: 2>} : (tensor<3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @unslice_operands() {
  // expected-error @+1 {{'nova.unslice' op takes (x), has 0 operands}}
  %0 = "nova.unslice"() {shape = array<i64: 6>, starts = array<i64: 1>, steps = array<i64: 2>} : () -> tensor<6xf32>
  return
}

// -----

func.func @pad_result(%arg0: tensor<3xf32>) {
  // expected-error @+1 {{'nova.pad' op result type is bf16[7,7], must be f32[6]}}
  %0 = "nova.pad"(%arg0) {high = array<i64: 2>, low = array<i64: 1>, value = 7.000000e+00 : f64} : (tensor<3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @pad_operands() {
  // expected-error @+1 {{'nova.pad' op takes (x), has 0 operands}}
  %0 = "nova.pad"() {high = array<i64: 2>, low = array<i64: 1>, value = 7.000000e+00 : f64} : () -> tensor<6xf32>
  return
}

// -----

func.func @join_result(%arg0: tensor<2xf32>, %arg1: tensor<3xf32>) {
  // expected-error @+1 {{'nova.join' op result type is bf16[7,7], must be f32[5]}}
  %0 = "nova.join"(%arg0, %arg1) {axis = 0 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<2xf32>, tensor<3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @join_operands() {
  // expected-error @+1 {{'nova.join' op takes (x, y?, z?, w?), has 0 operands}}
  %0 = "nova.join"() {axis = 0 : i64, operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> tensor<5xf32>
  return
}

// -----

func.func @tril_result(%arg0: tensor<3x3xf32>) {
  // expected-error @+1 {{'nova.tril' op result type is bf16[7,7], must be f32[3,3]}}
  %0 = "nova.tril"(%arg0) {k = 0 : i64} : (tensor<3x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @tril_operands() {
  // expected-error @+1 {{'nova.tril' op takes (x), has 0 operands}}
  %0 = "nova.tril"() {k = 0 : i64} : () -> tensor<3x3xf32>
  return
}

// -----

func.func @triu_result(%arg0: tensor<3x3xf32>) {
  // expected-error @+1 {{'nova.triu' op result type is bf16[7,7], must be f32[3,3]}}
  %0 = "nova.triu"(%arg0) {k = 1 : i64} : (tensor<3x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @triu_operands() {
  // expected-error @+1 {{'nova.triu' op takes (x), has 0 operands}}
  %0 = "nova.triu"() {k = 1 : i64} : () -> tensor<3x3xf32>
  return
}

// -----

func.func @reshape_1(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.reshape' op (2, 3) has 6 elements, (5,) has 5}}
  %0 = "nova.reshape"(%arg0) {shape = array<i64: 5>} : (tensor<2x3xf32>) -> tensor<5xf32>
  return
}

// -----

func.func @reshape_2(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.reshape' op needs the attribute `shape`}}
  %0 = "nova.reshape"(%arg0) : (tensor<2x3xf32>) -> tensor<6xf32>
  return
}

// -----

func.func @permute_1(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.permute' op axes (1, 1) do not name each of 2 axes once}}
  %0 = "nova.permute"(%arg0) {axes = array<i64: 1, 1>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return
}

// -----

func.func @permute_2(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.permute' op axes must be ints, not 'T'}}
  %0 = "nova.permute"(%arg0) {axes = "T"} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return
}

// -----

func.func @expand_1(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.expand' op shapes (2, 3) and (4, 3) do not broadcast: axis -2 is 2 and 4}}
  %0 = "nova.expand"(%arg0) {shape = array<i64: 4, 3>} : (tensor<2x3xf32>) -> tensor<4x3xf32>
  return
}

// -----

func.func @flip_1(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.flip' op axis 5 is out of range}}
  %0 = "nova.flip"(%arg0) {axes = array<i64: 5>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @slice_1(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.slice' op needs the attribute `stops`}}
  %0 = "nova.slice"(%arg0) {starts = array<i64: 1>} : (tensor<4xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @slice_2(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.slice' op a step of 0}}
  %0 = "nova.slice"(%arg0) {starts = array<i64: 1>, stops = array<i64: 3>, steps = array<i64: 0>} : (tensor<4xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @unslice_1(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.unslice' op needs the attribute `steps`}}
  %0 = "nova.unslice"(%arg0) {shape = array<i64: 6>, starts = array<i64: 1>} : (tensor<4xf32>) -> tensor<6xf32>
  return
}

// -----

func.func @pad_1(%arg0: tensor<3xf32>) {
  // expected-error @+1 {{'nova.pad' op pad widths (1, 1) and (0, 0) for rank 1}}
  %0 = "nova.pad"(%arg0) {low = array<i64: 1, 1>, high = array<i64: 0, 0>} : (tensor<3xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @tril_1(%arg0: tensor<3xf32>) {
  // expected-error @+1 {{'nova.tril' op a triangle of shape (3,): it takes two axes or more}}
  %0 = "nova.tril"(%arg0) : (tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @triu_1(%arg0: tensor<3x3xf32>) {
  // expected-error @+1 {{'nova.triu' op k must be an int, not 1.5}}
  %0 = "nova.triu"(%arg0) {k = 1.5 : f64} : (tensor<3x3xf32>) -> tensor<3x3xf32>
  return
}
