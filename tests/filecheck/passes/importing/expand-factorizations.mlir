// RUN: %nova-opt %s --expand-factorizations | %filecheck %s
// Factorizations become loops of linalg ops.

// CHECK-LABEL: func.func @cholesky(
// CHECK: scf.for
// CHECK: linalg.generic
// CHECK-NOT: stablehlo.cholesky
// CHECK-NOT: nova.
func.func @cholesky(%arg0: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = "stablehlo.cholesky"(%arg0) {lower = true} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// Calls of other libraries stay.
// CHECK-LABEL: func.func @eig(
// CHECK: stablehlo.custom_call @lapack_sgeev_ffi
func.func @eig(%arg0: tensor<4x4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @lapack_sgeev_ffi(%arg0) {mhlo.backend_config = {}} : (tensor<4x4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
