// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @gather_result(%arg0: tensor<4x3xf32>, %arg1: tensor<2x3xi64>) {
  // expected-error @+1 {{'nova.gather' op result type is bf16[7,7], must be f32[2,3]}}
  %0 = "nova.gather"(%arg0, %arg1) {axis = 0 : i64} : (tensor<4x3xf32>, tensor<2x3xi64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @gather_operands() {
  // expected-error @+1 {{'nova.gather' op takes (x, index), has 0 operands}}
  %0 = "nova.gather"() {axis = 0 : i64} : () -> tensor<2x3xf32>
  return
}

// -----

func.func @take_result(%arg0: tensor<4x3xf32>, %arg1: tensor<5xi64>) {
  // expected-error @+1 {{'nova.take' op result type is bf16[7,7], must be f32[5,3]}}
  %0 = "nova.take"(%arg0, %arg1) {axis = 0 : i64} : (tensor<4x3xf32>, tensor<5xi64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @take_operands() {
  // expected-error @+1 {{'nova.take' op takes (x, index), has 0 operands}}
  %0 = "nova.take"() {axis = 0 : i64} : () -> tensor<5x3xf32>
  return
}

// -----

func.func @embedding_result(%arg0: tensor<10x4xf32>, %arg1: tensor<2x3xi64>) {
  // expected-error @+1 {{'nova.embedding' op result type is bf16[7,7], must be f32[2,3,4]}}
  %0 = "nova.embedding"(%arg0, %arg1) : (tensor<10x4xf32>, tensor<2x3xi64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @embedding_operands() {
  // expected-error @+1 {{'nova.embedding' op takes (weight, index), has 0 operands}}
  %0 = "nova.embedding"() : () -> tensor<2x3x4xf32>
  return
}

// -----

func.func @scatter_add_result(%arg0: tensor<4xf32>, %arg1: tensor<6xi64>, %arg2: tensor<6xf32>) {
  // expected-error @+1 {{'nova.scatter_add' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.scatter_add"(%arg0, %arg1, %arg2) {axis = 0 : i64} : (tensor<4xf32>, tensor<6xi64>, tensor<6xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @scatter_add_operands() {
  // expected-error @+1 {{'nova.scatter_add' op takes (x, index, updates), has 0 operands}}
  %0 = "nova.scatter_add"() {axis = 0 : i64} : () -> tensor<4xf32>
  return
}

// -----

func.func @index_add_result(%arg0: tensor<4x3xf32>, %arg1: tensor<6xi64>, %arg2: tensor<6x3xf32>) {
  // expected-error @+1 {{'nova.index_add' op result type is bf16[7,7], must be f32[4,3]}}
  %0 = "nova.index_add"(%arg0, %arg1, %arg2) {axis = 0 : i64} : (tensor<4x3xf32>, tensor<6xi64>, tensor<6x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @index_add_operands() {
  // expected-error @+1 {{'nova.index_add' op takes (x, index, updates), has 0 operands}}
  %0 = "nova.index_add"() {axis = 0 : i64} : () -> tensor<4x3xf32>
  return
}

// -----

func.func @one_hot_result(%arg0: tensor<4xi64>) {
  // expected-error @+1 {{'nova.one_hot' op result type is bf16[7,7], must be f32[4,3]}}
  %0 = "nova.one_hot"(%arg0) {dtype = f32, num_classes = 3 : i64} : (tensor<4xi64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @one_hot_operands() {
  // expected-error @+1 {{'nova.one_hot' op takes (index), has 0 operands}}
  %0 = "nova.one_hot"() {dtype = f32, num_classes = 3 : i64} : () -> tensor<4x3xf32>
  return
}

// -----

func.func @arange_result() {
  // expected-error @+1 {{'nova.arange' op result type is bf16[7,7], must be i64[5]}}
  %0 = "nova.arange"() {dtype = i64, start = 0 : i64, step = 1 : i64, stop = 5 : i64} : () -> tensor<7x7xbf16>
  return
}

// -----

func.func @full_result() {
  // expected-error @+1 {{'nova.full' op result type is bf16[7,7], must be f32[2,3]}}
  %0 = "nova.full"() {dtype = f32, shape = array<i64: 2, 3>, value = 1.500000e+00 : f64} : () -> tensor<7x7xbf16>
  return
}

// -----

func.func @extent_result() {
  // expected-error @+1 {{'nova.extent' op result type is bf16[7,7], must be f32[]}}
  %0 = "nova.extent"() {dtype = f32, value = 5 : i64} : () -> tensor<7x7xbf16>
  return
}

// -----

func.func @gather_1(%arg0: tensor<4x3xf32>, %arg1: tensor<2x3xi32>) {
  // expected-error @+1 {{'nova.gather' op operand types are (f32, i32), must be (f32, i64)}}
  %0 = "nova.gather"(%arg0, %arg1) {axis = 0 : i64} : (tensor<4x3xf32>, tensor<2x3xi32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @gather_2(%arg0: tensor<4x3xf32>, %arg1: tensor<2xi64>) {
  // expected-error @+1 {{'nova.gather' op index (2,) for x (4, 3) along axis 0}}
  %0 = "nova.gather"(%arg0, %arg1) {axis = 0 : i64} : (tensor<4x3xf32>, tensor<2xi64>) -> tensor<2xf32>
  return
}

// -----

func.func @take_1(%arg0: tensor<4x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.take' op index must hold integers, not f32}}
  %0 = "nova.take"(%arg0, %arg1) {axis = 0 : i64} : (tensor<4x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @take_2(%arg0: tensor<4x3xf32>, %arg1: tensor<2xi64>) {
  // expected-error @+1 {{'nova.take' op axis 2 is out of range for a tensor of rank 2}}
  %0 = "nova.take"(%arg0, %arg1) {axis = 2 : i64} : (tensor<4x3xf32>, tensor<2xi64>) -> tensor<2x3xf32>
  return
}

// -----

func.func @embedding_1(%arg0: tensor<4xf32>, %arg1: tensor<2xi64>) {
  // expected-error @+1 {{'nova.embedding' op the weight is (rows, features), not (4,)}}
  %0 = "nova.embedding"(%arg0, %arg1) : (tensor<4xf32>, tensor<2xi64>) -> tensor<2xf32>
  return
}

// -----

func.func @scatter_add_1(%arg0: tensor<4xf32>, %arg1: tensor<6xi64>, %arg2: tensor<5xf32>) {
  // expected-error @+1 {{'nova.scatter_add' op updates (5,) for an index of shape (6,)}}
  %0 = "nova.scatter_add"(%arg0, %arg1, %arg2) {axis = 0 : i64} : (tensor<4xf32>, tensor<6xi64>, tensor<5xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @index_add_1(%arg0: tensor<4xf32>, %arg1: tensor<6xi64>, %arg2: tensor<5xf32>) {
  // expected-error @+1 {{'nova.index_add' op updates (5,): 6 indices want (6,)}}
  %0 = "nova.index_add"(%arg0, %arg1, %arg2) {axis = 0 : i64} : (tensor<4xf32>, tensor<6xi64>, tensor<5xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @one_hot_1(%arg0: tensor<4xi64>) {
  // expected-error @+1 {{'nova.one_hot' op needs the attribute `num_classes`}}
  %0 = "nova.one_hot"(%arg0) : (tensor<4xi64>) -> tensor<4x3xi64>
  return
}

// -----

func.func @one_hot_2(%arg0: tensor<4xi64>) {
  // expected-error @+1 {{'nova.one_hot' op num_classes}}
  %0 = "nova.one_hot"(%arg0) {num_classes = -3 : i64} : (tensor<4xi64>) -> tensor<4x3xi64>
  return
}

// -----

func.func @extent_1() {
  // expected-error @+1 {{'nova.extent' op needs the attribute `value`}}
  %0 = "nova.extent"() : () -> tensor<i64>
  return
}

// -----

func.func @extent_2() {
  // expected-error @+1 {{'nova.extent' op value must be an int, not 'B'}}
  %0 = "nova.extent"() {value = "B"} : () -> tensor<i64>
  return
}

// -----

func.func @arange_1() {
  // expected-error @+1 {{'nova.arange' op needs the attribute `start`}}
  %0 = "nova.arange"() : () -> tensor<4xi64>
  return
}

// -----

func.func @arange_2() {
  // expected-error @+1 {{'nova.arange' op no finite range: start, stop, step = [0, 4, 0]}}
  %0 = "nova.arange"() {start = 0 : i64, stop = 4 : i64, step = 0 : i64} : () -> tensor<4xi64>
  return
}

// -----

func.func @full_1() {
  // expected-error @+1 {{'nova.full' op needs the attribute `value`}}
  %0 = "nova.full"() {shape = array<i64: 4>} : () -> tensor<4xf32>
  return
}

// -----

func.func @full_2() {
  // expected-error @+1 {{'nova.full' op shape}}
  %0 = "nova.full"() {shape = array<i64: -4>, value = 1.0 : f64} : () -> tensor<4xf32>
  return
}

// -----

func.func @dynamic_slice_result(%arg0: tensor<4x3xf32>, %arg1: tensor<2xi64>) {
  // expected-error @+1 {{'nova.dynamic_slice' op result type is bf16[7,7], must be f32[2,2]}}
  %0 = "nova.dynamic_slice"(%arg0, %arg1) {slice_sizes = array<i64: 2, 2>} : (tensor<4x3xf32>, tensor<2xi64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @dynamic_update_slice_result(%arg0: tensor<4x3xf32>, %arg1: tensor<2x2xf32>, %arg2: tensor<2xi64>) {
  // expected-error @+1 {{'nova.dynamic_update_slice' op result type is bf16[7,7], must be f32[4,3]}}
  %0 = "nova.dynamic_update_slice"(%arg0, %arg1, %arg2) : (tensor<4x3xf32>, tensor<2x2xf32>, tensor<2xi64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @clamp_index_result(%arg0: tensor<4xi64>) {
  // expected-error @+1 {{'nova.clamp_index' op result type is bf16[7,7], must be i64[4]}}
  %0 = "nova.clamp_index"(%arg0) {axis_size = 3 : i64} : (tensor<4xi64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @clamp_index_operands() {
  // expected-error @+1 {{'nova.clamp_index' op takes (index), has 0 operands}}
  %0 = "nova.clamp_index"() {axis_size = 3 : i64} : () -> tensor<4xi64>
  return
}
