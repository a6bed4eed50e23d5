// RUN: %nova-opt %s --expand-chlo | %filecheck %s
// A special function is one elementwise op with scalar code; ops of one type have equal bodies.

// CHECK-LABEL: @two_uses
// CHECK-NOT:   chlo.
// CHECK:       [[FIRST:%.+]] = linalg.generic {{.*}} ins(%arg0 : tensor<3x5xf32>)
// CHECK:         math.exp
// CHECK:         arith.select
// CHECK:         linalg.yield {{.*}} : f32
// CHECK:       [[SECOND:%.+]] = linalg.generic {{.*}} ins([[FIRST]] : tensor<3x5xf32>)
// CHECK:         math.exp
// CHECK:         linalg.yield {{.*}} : f32
// CHECK:       return [[SECOND]]
func.func @two_uses(%x: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %0 = chlo.erfc %x : tensor<3x5xf32> -> tensor<3x5xf32>
  %1 = chlo.erfc %0 : tensor<3x5xf32> -> tensor<3x5xf32>
  return %1 : tensor<3x5xf32>
}

// bf16 is computed in f32.
// CHECK-LABEL: @narrow
// CHECK:       linalg.generic
// CHECK:         arith.extf {{.*}} : bf16 to f32
// CHECK:         arith.truncf {{.*}} : f32 to bf16
// CHECK:         linalg.yield {{.*}} : bf16
func.func @narrow(%x: tensor<bf16>) -> tensor<bf16> {
  %0 = chlo.lgamma %x : tensor<bf16> -> tensor<bf16>
  return %0 : tensor<bf16>
}

// Cheap functions, and functions inside of regions, are left to upstream.
// CHECK-LABEL: @others
// CHECK:       chlo.square
// CHECK:       stablehlo.reduce
// CHECK:         chlo.erf
func.func @others(%x: tensor<4xf32>, %start: tensor<f32>) -> tensor<f32> {
  %0 = chlo.square %x : tensor<4xf32> -> tensor<4xf32>
  %1 = stablehlo.reduce(%0 init: %start) across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
   reducer(%a: tensor<f32>, %b: tensor<f32>) {
    %2 = chlo.erf %a : tensor<f32> -> tensor<f32>
    %3 = stablehlo.add %2, %b : tensor<f32>
    stablehlo.return %3 : tensor<f32>
  }
  return %1 : tensor<f32>
}
