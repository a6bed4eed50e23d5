// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg | %filecheck %s
// The ops of the family `complex`: a complex tensor becomes a real one with a last axis of two parts.

// CHECK-LABEL: func.func @complex(
// CHECK-SAME: %[[RE:.*]]: tensor<4xf32>, %[[IM:.*]]: tensor<4xf32>) -> tensor<4x2xf32>
// CHECK: linalg.generic
// CHECK: arith.select
// CHECK-NOT: nova.
func.func @complex(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>) -> tensor<4xcomplex<f32>> {
  %0 = "nova.complex"(%arg0, %arg1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xcomplex<f32>>
  return %0 : tensor<4xcomplex<f32>>
}

// CHECK-LABEL: func.func @real(
// CHECK-SAME: tensor<4x2xf64>) -> tensor<4xf64>
// CHECK-NOT: nova.
func.func @real(%arg0: tensor<4xcomplex<f64>>) -> tensor<4xf64> {
  %0 = "nova.real"(%arg0) : (tensor<4xcomplex<f64>>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// CHECK-LABEL: func.func @imag(
// CHECK-SAME: tensor<2xf32>) -> tensor<f32>
// CHECK-NOT: nova.
func.func @imag(%arg0: tensor<complex<f32>>) -> tensor<f32> {
  %0 = "nova.imag"(%arg0) : (tensor<complex<f32>>) -> tensor<f32>
  return %0 : tensor<f32>
}

// CHECK-LABEL: func.func @from_parts(
// CHECK-SAME: %[[PARTS:.*]]: tensor<4x2xf32>) -> tensor<4x2xf32>
// CHECK-NEXT: %[[SAME:.*]] = tensor.cast %[[PARTS]]
// CHECK-NEXT: return %[[SAME]]
func.func @from_parts(%arg0: tensor<4x2xf32>) -> tensor<4xcomplex<f32>> {
  %0 = "nova.from_parts"(%arg0) : (tensor<4x2xf32>) -> tensor<4xcomplex<f32>>
  return %0 : tensor<4xcomplex<f32>>
}

// CHECK-LABEL: func.func @as_parts(
// CHECK-SAME: %[[PARTS:.*]]: tensor<4x2xf64>) -> tensor<4x2xf64>
// CHECK-NEXT: %[[SAME:.*]] = tensor.cast %[[PARTS]]
// CHECK-NEXT: return %[[SAME]]
func.func @as_parts(%arg0: tensor<4xcomplex<f64>>) -> tensor<4x2xf64> {
  %0 = "nova.as_parts"(%arg0) : (tensor<4xcomplex<f64>>) -> tensor<4x2xf64>
  return %0 : tensor<4x2xf64>
}
