// RUN: %nova-opt %s --stablehlo-to-linalg | %filecheck %s

// A function of its own is inlined; the product keeps its loop, the rest is one loop behind it.
// CHECK-LABEL: func.func @main(
// CHECK: iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: linalg.generic
// CHECK-SAME: iterator_types = ["parallel", "parallel"]
// CHECK: arith.addf
// CHECK: math.tanh
// CHECK-NOT: linalg.generic
// CHECK-NOT: stablehlo
// CHECK: return
func.func @main(%x: tensor<8x16xf32>, %w: tensor<16x10xf32>, %b: tensor<10xf32>) -> tensor<8x10xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x10xf32>) -> tensor<8x10xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<10xf32>) -> tensor<8x10xf32>
  %2 = stablehlo.add %0, %1 : tensor<8x10xf32>
  %3 = call @act(%2) : (tensor<8x10xf32>) -> tensor<8x10xf32>
  return %3 : tensor<8x10xf32>
}
func.func private @act(%x: tensor<8x10xf32>) -> tensor<8x10xf32> {
  %0 = stablehlo.tanh %x : tensor<8x10xf32>
  return %0 : tensor<8x10xf32>
}

// Unsigned numbers are divided as such, and are signless afterwards.
// CHECK-LABEL: func.func @unsigned(%arg0: tensor<4xi8>) -> tensor<4xi8>
// CHECK: arith.divui
func.func @unsigned(%x: tensor<4xui8>) -> tensor<4xui8> {
  %three = stablehlo.constant dense<3> : tensor<4xui8>
  %0 = stablehlo.divide %x, %three : tensor<4xui8>
  return %0 : tensor<4xui8>
}

// CHECK-LABEL: func.func @halves(
// CHECK: arith.extf %{{.*}} : bf16 to f32
// CHECK: math.exp %{{.*}} : f32
// CHECK: arith.truncf %{{.*}} : f32 to bf16
func.func @halves(%x: tensor<4xbf16>) -> tensor<4xbf16> {
  %0 = stablehlo.exponential %x : tensor<4xbf16>
  return %0 : tensor<4xbf16>
}
