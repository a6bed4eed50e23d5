// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg | %filecheck %s
// The ops of the family `movement`: what they are made of, and their loops.

// CHECK-LABEL: func.func @reshape(
// CHECK: tensor.collapse_shape
// CHECK-NOT: nova.
func.func @reshape(%arg0: tensor<2x3xf32>) -> tensor<6xf32> {
  %0 = "nova.reshape"(%arg0) {shape = array<i64: 6>} : (tensor<2x3xf32>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
}

// CHECK-LABEL: func.func @permute(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK-NOT: nova.
func.func @permute(%arg0: tensor<2x3xf32>) -> tensor<3x2xf32> {
  %0 = "nova.permute"(%arg0) {axes = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}

// CHECK-LABEL: func.func @expand(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK-NOT: nova.
func.func @expand(%arg0: tensor<1x3xf32>) -> tensor<4x3xf32> {
  %0 = "nova.expand"(%arg0) {shape = array<i64: 4, 3>} : (tensor<1x3xf32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// CHECK-LABEL: func.func @flip(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK-NOT: nova.
func.func @flip(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.flip"(%arg0) {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @slice(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK-NOT: nova.
func.func @slice(%arg0: tensor<6xf32>) -> tensor<3xf32> {
  %0 = "nova.slice"(%arg0) {starts = array<i64: 1>, steps = array<i64: 2>, stops = array<i64: 6>} : (tensor<6xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// CHECK-LABEL: func.func @unslice(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: arith.subi
// CHECK: arith.divsi
// CHECK: arith.remsi
// CHECK: arith.cmpi
// CHECK: arith.andi
// CHECK: arith.cmpi
// CHECK: arith.andi
// CHECK: arith.cmpi
// CHECK: arith.andi
// CHECK-NOT: nova.
func.func @unslice(%arg0: tensor<3xf32>) -> tensor<6xf32> {
  %0 = "nova.unslice"(%arg0) {shape = array<i64: 6>, starts = array<i64: 1>, steps = array<i64: 2>} : (tensor<3xf32>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
}

// CHECK-LABEL: func.func @pad(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: arith.subi
// CHECK: arith.cmpi
// CHECK: arith.andi
// CHECK: arith.cmpi
// CHECK: arith.andi
// CHECK: arith.maxsi
// CHECK: arith.minsi
// CHECK: arith.index_cast
// CHECK: tensor.extract
// CHECK-NOT: nova.
func.func @pad(%arg0: tensor<3xf32>) -> tensor<6xf32> {
  %0 = "nova.pad"(%arg0) {high = array<i64: 2>, low = array<i64: 1>, value = 7.000000e+00 : f64} : (tensor<3xf32>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
}

// CHECK-LABEL: func.func @join(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: arith.subi
// CHECK: arith.maxsi
// CHECK: arith.minsi
// CHECK: arith.index_cast
// CHECK: tensor.extract
// CHECK: arith.subi
// CHECK: arith.maxsi
// CHECK: arith.minsi
// CHECK: arith.index_cast
// CHECK-NOT: nova.
func.func @join(%arg0: tensor<2xf32>, %arg1: tensor<3xf32>) -> tensor<5xf32> {
  %0 = "nova.join"(%arg0, %arg1) {axis = 0 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<2xf32>, tensor<3xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// CHECK-LABEL: func.func @join_four(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: arith.subi
// CHECK: arith.maxsi
// CHECK: arith.minsi
// CHECK: arith.index_cast
// CHECK: arith.index_cast
// CHECK: tensor.extract
// CHECK: arith.subi
// CHECK-NOT: nova.
func.func @join_four(%arg0: tensor<2x1xi64>, %arg1: tensor<2x1xi64>, %arg2: tensor<2x2xi64>, %arg3: tensor<2x1xi64>) -> tensor<2x5xi64> {
  %0 = "nova.join"(%arg0, %arg1, %arg2, %arg3) {axis = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 1>} : (tensor<2x1xi64>, tensor<2x1xi64>, tensor<2x2xi64>, tensor<2x1xi64>) -> tensor<2x5xi64>
  return %0 : tensor<2x5xi64>
}

// CHECK-LABEL: func.func @tril(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: arith.addi
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: arith.cmpi
// CHECK: arith.select
// CHECK-NOT: nova.
func.func @tril(%arg0: tensor<3x3xf32>) -> tensor<3x3xf32> {
  %0 = "nova.tril"(%arg0) {k = 0 : i64} : (tensor<3x3xf32>) -> tensor<3x3xf32>
  return %0 : tensor<3x3xf32>
}

// CHECK-LABEL: func.func @triu(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: arith.addi
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: arith.cmpi
// CHECK: arith.select
// CHECK-NOT: nova.
func.func @triu(%arg0: tensor<3x3xf32>) -> tensor<3x3xf32> {
  %0 = "nova.triu"(%arg0) {k = 1 : i64} : (tensor<3x3xf32>) -> tensor<3x3xf32>
  return %0 : tensor<3x3xf32>
}
