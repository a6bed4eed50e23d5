// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg | %filecheck %s
// The ops of the family `reductions`: what they are made of, and their loops.

// CHECK-LABEL: func.func @sum(
// CHECK: linalg.fill
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]
// CHECK: arith.addf
// CHECK-NOT: nova.
func.func @sum(%arg0: tensor<2x3xf32>) -> tensor<f32> {
  %0 = "nova.sum"(%arg0) {axis = array<i64: 0, 1>, keepdims = false} : (tensor<2x3xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// CHECK-LABEL: func.func @prod(
// CHECK: linalg.fill
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]
// CHECK: arith.mulf
// CHECK-NOT: nova.
func.func @prod(%arg0: tensor<2x3xf32>) -> tensor<f32> {
  %0 = "nova.prod"(%arg0) {axis = array<i64: 0, 1>, keepdims = false} : (tensor<2x3xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// CHECK-LABEL: func.func @max(
// CHECK: linalg.fill
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]
// CHECK: arith.maximumf
// CHECK-NOT: nova.
func.func @max(%arg0: tensor<2x3xf32>) -> tensor<f32> {
  %0 = "nova.max"(%arg0) {axis = array<i64: 0, 1>, keepdims = false} : (tensor<2x3xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// CHECK-LABEL: func.func @min(
// CHECK: linalg.fill
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]
// CHECK: arith.minimumf
// CHECK-NOT: nova.
func.func @min(%arg0: tensor<2x3xf32>) -> tensor<f32> {
  %0 = "nova.min"(%arg0) {axis = array<i64: 0, 1>, keepdims = false} : (tensor<2x3xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// CHECK-LABEL: func.func @any(
// CHECK: linalg.fill
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]
// CHECK: arith.ori
// CHECK-NOT: nova.
func.func @any(%arg0: tensor<2x3xi1>) -> tensor<i1> {
  %0 = "nova.any"(%arg0) {axis = array<i64: 0, 1>, keepdims = false} : (tensor<2x3xi1>) -> tensor<i1>
  return %0 : tensor<i1>
}

// CHECK-LABEL: func.func @all(
// CHECK: linalg.fill
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]
// CHECK: arith.andi
// CHECK-NOT: nova.
func.func @all(%arg0: tensor<2x3xi1>) -> tensor<i1> {
  %0 = "nova.all"(%arg0) {axis = array<i64: 0, 1>, keepdims = false} : (tensor<2x3xi1>) -> tensor<i1>
  return %0 : tensor<i1>
}

// CHECK-LABEL: func.func @argmax(
// CHECK: tensor.collapse_shape
// CHECK: linalg.fill
// CHECK: linalg.fill
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction"]
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: arith.cmpf
// CHECK: arith.cmpf
// CHECK: arith.xori
// CHECK: arith.cmpf
// CHECK: arith.andi
// CHECK: arith.ori
// CHECK-NOT: nova.
func.func @argmax(%arg0: tensor<2x3xf32>) -> tensor<i64> {
  %0 = "nova.argmax"(%arg0) {keepdims = false} : (tensor<2x3xf32>) -> tensor<i64>
  return %0 : tensor<i64>
}

// CHECK-LABEL: func.func @argmin(
// CHECK: tensor.collapse_shape
// CHECK: linalg.fill
// CHECK: linalg.fill
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction"]
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: arith.cmpf
// CHECK: arith.cmpf
// CHECK: arith.xori
// CHECK: arith.cmpf
// CHECK: arith.andi
// CHECK: arith.ori
// CHECK-NOT: nova.
func.func @argmin(%arg0: tensor<2x3xf32>) -> tensor<i64> {
  %0 = "nova.argmin"(%arg0) {keepdims = false} : (tensor<2x3xf32>) -> tensor<i64>
  return %0 : tensor<i64>
}

// CHECK-LABEL: func.func @sum_rows(
// CHECK: linalg.fill
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: arith.addf
// CHECK-NOT: nova.
func.func @sum_rows(%arg0: tensor<2x3xf32>) -> tensor<2xf32> {
  %0 = "nova.sum"(%arg0) {axis = array<i64: 1>, keepdims = false} : (tensor<2x3xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// CHECK-LABEL: func.func @sum_columns_kept(
// CHECK: linalg.fill
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "parallel"]
// CHECK: arith.addf
// CHECK: tensor.expand_shape
// CHECK-NOT: nova.
func.func @sum_columns_kept(%arg0: tensor<2x3xf32>) -> tensor<1x3xf32> {
  %0 = "nova.sum"(%arg0) {axis = array<i64: 0>, keepdims = true} : (tensor<2x3xf32>) -> tensor<1x3xf32>
  return %0 : tensor<1x3xf32>
}

// CHECK-LABEL: func.func @sum_half(
// CHECK: linalg.fill
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: arith.extf %{{.*}} : f16 to f32
// CHECK: arith.addf
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK-NOT: nova.
func.func @sum_half(%arg0: tensor<2x3xf16>) -> tensor<2xf16> {
  %0 = "nova.sum"(%arg0) {axis = array<i64: 1>, keepdims = false} : (tensor<2x3xf16>) -> tensor<2xf16>
  return %0 : tensor<2xf16>
}

// CHECK-LABEL: func.func @sum_integers(
// CHECK: linalg.fill
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: arith.extsi %{{.*}} : i8 to i64
// CHECK: arith.addi
// CHECK-NOT: nova.
func.func @sum_integers(%arg0: tensor<2x3xi8>) -> tensor<2xi64> {
  %0 = "nova.sum"(%arg0) {axis = array<i64: 1>, keepdims = false} : (tensor<2x3xi8>) -> tensor<2xi64>
  return %0 : tensor<2xi64>
}

// CHECK-LABEL: func.func @argmax_rows(
// CHECK: linalg.fill
// CHECK: linalg.fill
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: arith.cmpf
// CHECK: arith.cmpf
// CHECK: arith.xori
// CHECK: arith.cmpf
// CHECK: arith.andi
// CHECK: arith.ori
// CHECK: arith.cmpi
// CHECK-NOT: nova.
func.func @argmax_rows(%arg0: tensor<2x3xf32>) -> tensor<2xi64> {
  %0 = "nova.argmax"(%arg0) {axis = 1 : i64, keepdims = false} : (tensor<2x3xf32>) -> tensor<2xi64>
  return %0 : tensor<2xi64>
}
