// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @loop_kernel_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.loop_kernel' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.loop_kernel"(%arg0) {dtypes = "f32", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, ranks = array<i64: 1>, result = 0 : i64, sizes = array<i64: 4>, source = "def scale(x, out):\0A    for i in range(len(x)):\0A        out[i] = exp(x[i])"} : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @loop_kernel_operands() {
  // expected-error @+1 {{'nova.loop_kernel' op takes (x0, x1?, x2?, x3?, x4?, x5?, x6?, x7?, x8?, x9?, x10?, x11?, x12?, x13?, x14?, x15?), has 0 operands}}
  %0 = "nova.loop_kernel"() {dtypes = "f32", operandSegmentSizes = array<i32: 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, ranks = array<i64: 1>, result = 0 : i64, sizes = array<i64: 4>, source = "def scale(x, out):\0A    for i in range(len(x)):\0A        out[i] = exp(x[i])"} : () -> tensor<4xf32>
  return
}

// -----

func.func @mlir_kernel_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.mlir_kernel' op result type is bf16[7,7], must be f32[4]}}
  %0 = "nova.mlir_kernel"(%arg0) {dtypes = "f32", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, ranks = array<i64: 1>, result = 0 : i64, sizes = array<i64: 4>, source = "func.func @mlir_kernel_result(%x: tensor<4xf32>) -> tensor<4xf32> {\0A  %c = arith.constant 0 : index\0A  %0 = tensor.extract %x[%c] : tensor<4xf32>\0A  %1 = tensor.insert %0 into %x[%c] : tensor<4xf32>\0A  return %1 : tensor<4xf32>\0A}"} : (tensor<4xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @mlir_kernel_operands() {
  // expected-error @+1 {{'nova.mlir_kernel' op takes (x0, x1?, x2?, x3?, x4?, x5?, x6?, x7?, x8?, x9?, x10?, x11?, x12?, x13?, x14?, x15?), has 0 operands}}
  %0 = "nova.mlir_kernel"() {dtypes = "f32", operandSegmentSizes = array<i32: 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, ranks = array<i64: 1>, result = 0 : i64, sizes = array<i64: 4>, source = "func.func @mlir_kernel_result(%x: tensor<4xf32>) -> tensor<4xf32> {\0A  %c = arith.constant 0 : index\0A  %0 = tensor.extract %x[%c] : tensor<4xf32>\0A  %1 = tensor.insert %0 into %x[%c] : tensor<4xf32>\0A  return %1 : tensor<4xf32>\0A}"} : () -> tensor<4xf32>
  return
}

// -----

func.func @loop_kernel_1(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.loop_kernel' op the text of a kernel does not parse}}
  %0 = "nova.loop_kernel"(%arg0) {source = "def", dtypes = "f32", ranks = array<i64: 1>, result = 0 : i64, sizes = array<i64: 4>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @loop_kernel_2(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.loop_kernel' op the text of a kernel is one function}}
  %0 = "nova.loop_kernel"(%arg0) {source = "3", dtypes = "f32", ranks = array<i64: 1>, result = 0 : i64, sizes = array<i64: 4>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @mlir_kernel_1(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.mlir_kernel' op there is no result 2 of 1}}
  %0 = "nova.mlir_kernel"(%arg0) {source = "", dtypes = "f32", ranks = array<i64: 1>, result = 2 : i64, sizes = array<i64: 4>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @mlir_kernel_2(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.mlir_kernel' op ranks (2,), sizes (4,)}}
  %0 = "nova.mlir_kernel"(%arg0) {source = "", dtypes = "f32", ranks = array<i64: 2>, result = 0 : i64, sizes = array<i64: 4>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}
