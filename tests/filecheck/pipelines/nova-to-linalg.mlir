// RUN: %nova-opt %s --nova-to-linalg | %filecheck %s

// From composites to few fused loops: the bias and the activation are one body, the product keeps
// its own, and no named op is left.
// CHECK-LABEL: func.func @main(
// CHECK: iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: linalg.generic
// CHECK-SAME: iterator_types = ["parallel", "parallel"]
// CHECK: arith.addf
// CHECK: math.erf
// CHECK-NOT: linalg.generic
// CHECK-NOT: nova.
// CHECK-NOT: linalg.fill
// CHECK: return
func.func @main(%x: tensor<8x16xf32>, %w: tensor<10x16xf32>, %b: tensor<10xf32>) -> tensor<8x10xf32> {
  %0 = "nova.linear"(%x, %w, %b) : (tensor<8x16xf32>, tensor<10x16xf32>, tensor<10xf32>) -> tensor<8x10xf32>
  %1 = "nova.gelu"(%0) : (tensor<8x10xf32>) -> tensor<8x10xf32>
  return %1 : tensor<8x10xf32>
}

// What forward and backward both expand is computed once.
// CHECK-LABEL: func.func @shared(
// CHECK: math.exp
// CHECK-NOT: math.exp
// CHECK: return
func.func @shared(%x: tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>) {
  %0 = "nova.softmax"(%x) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %1 = "nova.softmax"(%x) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %0, %1 : tensor<8x16xf32>, tensor<8x16xf32>
}
