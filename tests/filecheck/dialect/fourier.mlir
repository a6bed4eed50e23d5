// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg | %filecheck %s
// RUN: %nova-opt %s --decompose-composites | %filecheck %s --check-prefix=PRIMITIVES
// The ops of the family `fourier`: what they are made of, and their loops.

// PRIMITIVES-LABEL: func.func @dft(
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.join %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.join %
// PRIMITIVES-NOT: nova.dft
// CHECK-LABEL: func.func @dft(
// CHECK: linalg.contract
// CHECK-NOT: nova.
func.func @dft(%arg0: tensor<2x8x2xf32>) -> tensor<2x8x2xf32> {
  %0 = "nova.dft"(%arg0) {columns = false, scale = 5.000000e-01 : f64, sign = -1 : i64} : (tensor<2x8x2xf32>) -> tensor<2x8x2xf32>
  return %0 : tensor<2x8x2xf32>
}

// PRIMITIVES-LABEL: func.func @dft_columns(
// PRIMITIVES: nova.permute %
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.join %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.join %
// PRIMITIVES: nova.permute %
// PRIMITIVES-NOT: nova.dft
// CHECK-LABEL: func.func @dft_columns(
// CHECK: linalg.contract
// CHECK-NOT: nova.
func.func @dft_columns(%arg0: tensor<8x3x2xf64>) -> tensor<8x3x2xf64> {
  %0 = "nova.dft"(%arg0) {columns = true, scale = 1.000000e+00 : f64, sign = 1 : i64} : (tensor<8x3x2xf64>) -> tensor<8x3x2xf64>
  return %0 : tensor<8x3x2xf64>
}

// PRIMITIVES-LABEL: func.func @rdft(
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.join %
// PRIMITIVES: nova.matmul %
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.join %
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.join %
// PRIMITIVES: nova.flip %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.join %
// PRIMITIVES: nova.flip %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.join %
// PRIMITIVES-NOT: nova.rdft
// CHECK-LABEL: func.func @rdft(
// CHECK: linalg.contract
// CHECK-NOT: nova.
func.func @rdft(%arg0: tensor<2x16xf32>) -> tensor<2x9x2xf32> {
  %0 = "nova.rdft"(%arg0) {scale = 1.000000e+00 : f64} : (tensor<2x16xf32>) -> tensor<2x9x2xf32>
  return %0 : tensor<2x9x2xf32>
}

// PRIMITIVES-LABEL: func.func @irdft(
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.reshape %
// PRIMITIVES: nova.join %
// PRIMITIVES: nova.matmul %
// PRIMITIVES-NOT: nova.irdft
// CHECK-LABEL: func.func @irdft(
// CHECK: linalg.contract
// CHECK-NOT: nova.
func.func @irdft(%arg0: tensor<2x9x2xf32>) -> tensor<2x16xf32> {
  %0 = "nova.irdft"(%arg0) {n = 16 : i64, scale = 1.000000e+00 : f64} : (tensor<2x9x2xf32>) -> tensor<2x16xf32>
  return %0 : tensor<2x16xf32>
}
