// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @sum_result(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.sum' op result type is bf16[7,7], must be f32[]}}
  %0 = "nova.sum"(%arg0) {axis = array<i64: 0, 1>, keepdims = false} : (tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @sum_operands() {
  // expected-error @+1 {{'nova.sum' op takes (x), has 0 operands}}
  %0 = "nova.sum"() {axis = array<i64: 0, 1>, keepdims = false} : () -> tensor<f32>
  return
}

// -----

func.func @prod_result(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.prod' op result type is bf16[7,7], must be f32[]}}
  %0 = "nova.prod"(%arg0) {axis = array<i64: 0, 1>, keepdims = false} : (tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @prod_operands() {
  // expected-error @+1 {{'nova.prod' op takes (x), has 0 operands}}
  %0 = "nova.prod"() {axis = array<i64: 0, 1>, keepdims = false} : () -> tensor<f32>
  return
}

// -----

func.func @max_result(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.max' op result type is bf16[7,7], must be f32[]}}
  %0 = "nova.max"(%arg0) {axis = array<i64: 0, 1>, keepdims = false} : (tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @max_operands() {
  // expected-error @+1 {{'nova.max' op takes (x), has 0 operands}}
  %0 = "nova.max"() {axis = array<i64: 0, 1>, keepdims = false} : () -> tensor<f32>
  return
}

// -----

func.func @min_result(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.min' op result type is bf16[7,7], must be f32[]}}
  %0 = "nova.min"(%arg0) {axis = array<i64: 0, 1>, keepdims = false} : (tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @min_operands() {
  // expected-error @+1 {{'nova.min' op takes (x), has 0 operands}}
  %0 = "nova.min"() {axis = array<i64: 0, 1>, keepdims = false} : () -> tensor<f32>
  return
}

// -----

func.func @any_result(%arg0: tensor<2x3xi1>) {
  // expected-error @+1 {{'nova.any' op result type is bf16[7,7], must be bool[]}}
  %0 = "nova.any"(%arg0) {axis = array<i64: 0, 1>, keepdims = false} : (tensor<2x3xi1>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @any_operands() {
  // expected-error @+1 {{'nova.any' op takes (x), has 0 operands}}
  %0 = "nova.any"() {axis = array<i64: 0, 1>, keepdims = false} : () -> tensor<i1>
  return
}

// -----

func.func @all_result(%arg0: tensor<2x3xi1>) {
  // expected-error @+1 {{'nova.all' op result type is bf16[7,7], must be bool[]}}
  %0 = "nova.all"(%arg0) {axis = array<i64: 0, 1>, keepdims = false} : (tensor<2x3xi1>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @all_operands() {
  // expected-error @+1 {{'nova.all' op takes (x), has 0 operands}}
  %0 = "nova.all"() {axis = array<i64: 0, 1>, keepdims = false} : () -> tensor<i1>
  return
}

// -----

func.func @argmax_result(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.argmax' op result type is bf16[7,7], must be i64[]}}
  %0 = "nova.argmax"(%arg0) {keepdims = false} : (tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @argmax_operands() {
  // expected-error @+1 {{'nova.argmax' op takes (x), has 0 operands}}
  %0 = "nova.argmax"() {keepdims = false} : () -> tensor<i64>
  return
}

// -----

func.func @argmin_result(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.argmin' op result type is bf16[7,7], must be i64[]}}
  %0 = "nova.argmin"(%arg0) {keepdims = false} : (tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @argmin_operands() {
  // expected-error @+1 {{'nova.argmin' op takes (x), has 0 operands}}
  %0 = "nova.argmin"() {keepdims = false} : () -> tensor<i64>
  return
}

// -----

func.func @sum_1(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.sum' op axis 2 is out of range for a tensor of rank 2}}
  %0 = "nova.sum"(%arg0) {axis = 2 : i64} : (tensor<2x3xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @prod_1(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.prod' op axis 2 is out of range for a tensor of rank 2}}
  %0 = "nova.prod"(%arg0) {axis = 2 : i64} : (tensor<2x3xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @max_1(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.max' op axis 2 is out of range for a tensor of rank 2}}
  %0 = "nova.max"(%arg0) {axis = 2 : i64} : (tensor<2x3xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @min_1(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.min' op axis 2 is out of range for a tensor of rank 2}}
  %0 = "nova.min"(%arg0) {axis = 2 : i64} : (tensor<2x3xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @argmax_1(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.argmax' op axis 2 is out of range for a tensor of rank 2}}
  %0 = "nova.argmax"(%arg0) {axis = 2 : i64} : (tensor<2x3xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @argmin_1(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.argmin' op axis 2 is out of range for a tensor of rank 2}}
  %0 = "nova.argmin"(%arg0) {axis = 2 : i64} : (tensor<2x3xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @any_1(%arg0: tensor<2x3xi1>) {
  // expected-error @+1 {{'nova.any' op axis -3 is out of range for a tensor of rank 2}}
  %0 = "nova.any"(%arg0) {axis = -3 : i64} : (tensor<2x3xi1>) -> tensor<2xi1>
  return
}

// -----

func.func @all_1(%arg0: tensor<2x3xi1>) {
  // expected-error @+1 {{'nova.all' op axis -3 is out of range for a tensor of rank 2}}
  %0 = "nova.all"(%arg0) {axis = -3 : i64} : (tensor<2x3xi1>) -> tensor<2xi1>
  return
}

// -----

func.func @sum_2(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.sum' op an axis is named twice in (0, 0)}}
  %0 = "nova.sum"(%arg0) {axis = array<i64: 0, 0>} : (tensor<2x3xf32>) -> tensor<f32>
  return
}

// -----

func.func @sum_3(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.sum' op axis must be an int, not 'rows'}}
  %0 = "nova.sum"(%arg0) {axis = "rows"} : (tensor<2x3xf32>) -> tensor<f32>
  return
}

// -----

func.func @sum_4(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.sum' op attribute [1] has a type that nova ops do not have}}
  %0 = "nova.sum"(%arg0) {axis = [1]} : (tensor<2x3xf32>) -> tensor<f32>
  return
}

// -----

func.func @sum_5(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.sum' op result type is f32[2], must be f32[2,1]}}
  %0 = "nova.sum"(%arg0) {axis = 1 : i64, keepdims = true} : (tensor<2x3xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @max_2(%arg0: tensor<0x3xf32>) {
  // expected-error @+1 {{'nova.max' op no elements to choose from: shape (0, 3) over axes (0, 1)}}
  %0 = "nova.max"(%arg0) : (tensor<0x3xf32>) -> tensor<f32>
  return
}

// -----

func.func @argmax_2(%arg0: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.argmax' op axis 2 is out of range for a tensor of rank 2}}
  %0 = "nova.argmax"(%arg0) {axis = 2 : i64} : (tensor<2x3xf32>) -> tensor<2xi64>
  return
}
