// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg | %filecheck %s
// The ops of the family `kernels`: what they are made of, and their loops.

// CHECK-LABEL: func.func @loop_kernel(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.exp
// CHECK-NOT: nova.
func.func @loop_kernel(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.loop_kernel"(%arg0) {dtypes = "f32", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, ranks = array<i64: 1>, result = 0 : i64, sizes = array<i64: 4>, source = "def scale(x, out):\0A    for i in range(len(x)):\0A        out[i] = exp(x[i])"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @loop_kernel_in_order(
// CHECK: linalg.fill
// CHECK: arith.index_cast
// CHECK: arith.index_cast
// CHECK: arith.index_cast
// CHECK: scf.for
// CHECK: arith.index_cast
// CHECK: arith.index_cast
// CHECK: tensor.extract
// CHECK: arith.addf
// CHECK: arith.index_cast
// CHECK: tensor.insert
// CHECK: scf.yield
// CHECK-NOT: nova.
func.func @loop_kernel_in_order(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.loop_kernel"(%arg0) {dtypes = "f32", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, ranks = array<i64: 1>, result = 0 : i64, sizes = array<i64: 4>, source = "def total(x, out):\0A    s = 0.0\0A    for i in range(len(x)):\0A        s += x[i]\0A        out[i] = s"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @mlir_kernel(
// CHECK: tensor.extract
// CHECK: tensor.insert
// CHECK-NOT: nova.
func.func @mlir_kernel(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.mlir_kernel"(%arg0) {dtypes = "f32", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, ranks = array<i64: 1>, result = 0 : i64, sizes = array<i64: 4>, source = "func.func @mlir_kernel(%x: tensor<4xf32>) -> tensor<4xf32> {\0A  %c = arith.constant 0 : index\0A  %0 = tensor.extract %x[%c] : tensor<4xf32>\0A  %1 = tensor.insert %0 into %x[%c] : tensor<4xf32>\0A  return %1 : tensor<4xf32>\0A}"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
