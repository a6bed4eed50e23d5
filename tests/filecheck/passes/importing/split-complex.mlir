// RUN: %nova-opt %s --split-complex | %filecheck %s
// Complex values become pairs; arguments and results have a last axis of the two parts.

// CHECK-LABEL: func.func @product(
// CHECK-SAME: tensor<4x2xf32>) -> tensor<4x2xf32>
// CHECK: stablehlo.slice
// CHECK-COUNT-4: stablehlo.multiply {{.*}} : tensor<4xf32>
// CHECK: stablehlo.concatenate
// CHECK-NOT: complex
func.func @product(%arg0: tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>> {
  %0 = stablehlo.multiply %arg0, %arg0 : tensor<4xcomplex<f32>>
  %1 = stablehlo.subtract %0, %arg0 : tensor<4xcomplex<f32>>
  return %1 : tensor<4xcomplex<f32>>
}

// A reduction that multiplies takes both parts at once.
// CHECK-LABEL: func.func @reduce(
// CHECK: stablehlo.reduce(%{{.*}} init: %{{.*}}), (%{{.*}} init: %{{.*}}) across dimensions = [0]
// CHECK-NOT: complex
func.func @reduce(%arg0: tensor<4xcomplex<f64>>) -> tensor<f64> {
  %c = stablehlo.constant dense<(1.0, 0.0)> : tensor<complex<f64>>
  %0 = stablehlo.reduce(%arg0 init: %c) applies stablehlo.multiply across dimensions = [0] : (tensor<4xcomplex<f64>>, tensor<complex<f64>>) -> tensor<complex<f64>>
  %1 = stablehlo.imag %0 : (tensor<complex<f64>>) -> tensor<f64>
  return %1 : tensor<f64>
}

// Elementary functions and transforms are those of Nova's ops.
// CHECK-LABEL: func.func @exponential(
// CHECK-NOT: stablehlo.exponential
// CHECK: math.cos
// CHECK-NOT: complex
func.func @exponential(%arg0: tensor<3xcomplex<f32>>) -> tensor<3xf32> {
  %0 = stablehlo.exponential %arg0 : tensor<3xcomplex<f32>>
  %1 = stablehlo.real %0 : (tensor<3xcomplex<f32>>) -> tensor<3xf32>
  return %1 : tensor<3xf32>
}
