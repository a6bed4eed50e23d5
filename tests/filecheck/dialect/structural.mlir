// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg | %filecheck %s
// The ops of the family `structural`: what they are made of, and their loops.

// CHECK-LABEL: func.func @barrier(
// CHECK: nova.barrier %
func.func @barrier(%arg0: tensor<4xf32>, %arg1: tensor<f32>) -> tensor<4xf32> {
  %0 = "nova.barrier"(%arg0, %arg1) {region = 1 : i64} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @constant(
// CHECK: arith.constant dense<[1.000000e+00, 2.500000e+00]> : tensor<2xf32>
// CHECK-NOT: nova.
func.func @constant() -> tensor<2xf32> {
  %0 = "nova.constant"() {value = dense<[1.0, 2.5]> : tensor<2xf32>} : () -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// Unsigned elements become signless, with the same bytes.
// CHECK-LABEL: func.func @constant_unsigned(
// CHECK: arith.constant dense<[1, -1]> : tensor<2xi8>
// CHECK-NOT: ui8
func.func @constant_unsigned() -> tensor<2xui8> {
  %0 = "nova.constant"() {value = dense<[1, 255]> : tensor<2xui8>} : () -> tensor<2xui8>
  return %0 : tensor<2xui8>
}
