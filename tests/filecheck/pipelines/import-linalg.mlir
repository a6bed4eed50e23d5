// RUN: %nova-opt %s --import-linalg | %filecheck %s

// Named ops are general before fusion: exp and add are one loop. The product is left alone, with
// the transposed operand read where it lies.
// CHECK: #[[T:.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-LABEL: func.func @main(
// CHECK: linalg.generic {indexing_maps = [#{{.*}}, #[[T]], #{{.*}}], iterator_types = ["parallel", "parallel", "reduction"]} ins(%arg0, %arg1
// CHECK: %[[E:.*]] = math.exp
// CHECK-NEXT: arith.addf %[[E]]
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @main(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> tensor<4x4xf32> {
  %zero = arith.constant 0.0 : f32
  %0 = tensor.empty() : tensor<4x4xf32>
  %1 = linalg.fill ins(%zero : f32) outs(%0 : tensor<4x4xf32>) -> tensor<4x4xf32>
  %e = tensor.empty() : tensor<8x4xf32>
  %t = linalg.transpose ins(%y : tensor<4x8xf32>) outs(%e : tensor<8x4xf32>) permutation = [1, 0]
  %2 = linalg.matmul ins(%x, %t : tensor<4x8xf32>, tensor<8x4xf32>) outs(%1 : tensor<4x4xf32>) -> tensor<4x4xf32>
  %3 = linalg.exp ins(%2 : tensor<4x4xf32>) outs(%0 : tensor<4x4xf32>) -> tensor<4x4xf32>
  %4 = linalg.add ins(%3, %2 : tensor<4x4xf32>, tensor<4x4xf32>) outs(%0 : tensor<4x4xf32>) -> tensor<4x4xf32>
  return %4 : tensor<4x4xf32>
}
