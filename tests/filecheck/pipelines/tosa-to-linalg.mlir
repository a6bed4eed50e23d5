// RUN: %nova-opt %s --tosa-to-linalg | %filecheck %s

// CHECK-LABEL: func.func @main(
// CHECK: iterator_types = ["parallel", "parallel", "parallel", "reduction"]
// CHECK: math.tanh
// CHECK-NOT: tosa.
// CHECK: return
func.func @main(%x: tensor<2x4x8xf32>, %w: tensor<2x8x4xf32>) -> tensor<2x4x4xf32> {
  %zero = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %0 = tosa.matmul %x, %w, %zero, %zero : (tensor<2x4x8xf32>, tensor<2x8x4xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<2x4x4xf32>
  %1 = tosa.tanh %0 : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  return %1 : tensor<2x4x4xf32>
}
