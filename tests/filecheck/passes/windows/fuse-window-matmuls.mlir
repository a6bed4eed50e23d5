// RUN: %nova-opt %s --fuse-window-matmuls --linalg-generalize-named-ops --canonicalize | %filecheck %s

#in = affine_map<(n, c, ky, kx, y, x) -> (n, c, y + ky, x + kx)>
#in2 = affine_map<(n, c, ky, kx, y, x) -> (n, c, y * 2 + ky, x * 2 + kx)>
#in3 = affine_map<(n, c, ky, kx, y, x) -> (n, c, y * 3 + ky, x * 3 + kx)>
#id = affine_map<(n, c, ky, kx, y, x) -> (n, c, ky, kx, y, x)>
#a = affine_map<(n, o, p, c, ky, kx) -> (o, c, ky, kx)>
#b = affine_map<(n, o, p, c, ky, kx) -> (n, c, ky, kx, p)>
#c = affine_map<(n, o, p, c, ky, kx) -> (n, o, p)>
#none = affine_map<(n, o, p) -> ()>
#all = affine_map<(n, o, p) -> (n, o, p)>

// The matmul reads the image; its positions are two loops.
// CHECK-DAG: #[[A:.*]] = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1, d4, d5, d6)>
// CHECK-DAG: #[[B:.*]] = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, d2 + d5, d3 + d6)>
// CHECK-DAG: #[[B2:.*]] = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, d2 * 2 + d5, d3 * 2 + d6)>
// CHECK-DAG: #[[C:.*]] = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d1, d2, d3)>
// CHECK-LABEL: func.func @convolution(
// CHECK: %[[SUM:.*]] = linalg.generic {indexing_maps = [#[[A]], #[[B]], #[[C]]], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]} ins(%arg0, %arg1 : tensor<32x8x3x3xf32>, tensor<2x8x16x16xf32>)
// CHECK: %[[FLAT:.*]] = tensor.collapse_shape %[[SUM]] {{\[\[}}0], [1], [2, 3]]
// CHECK: return %[[FLAT]]
func.func @convolution(%w: tensor<32x8x3x3xf32>, %x: tensor<2x8x16x16xf32>) -> tensor<2x32x196xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<2x8x3x3x14x14xf32>
  %windows = linalg.generic {indexing_maps = [#in, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%x : tensor<2x8x16x16xf32>) outs(%empty : tensor<2x8x3x3x14x14xf32>) {
  ^bb0(%i: f32, %o: f32):
    linalg.yield %i : f32
  } -> tensor<2x8x3x3x14x14xf32>
  %columns = tensor.collapse_shape %windows [[0], [1], [2], [3], [4, 5]] : tensor<2x8x3x3x14x14xf32> into tensor<2x8x3x3x196xf32>
  %out = tensor.empty() : tensor<2x32x196xf32>
  %zeros = linalg.generic {indexing_maps = [#none, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%zero : f32) outs(%out : tensor<2x32x196xf32>) {
  ^bb0(%i: f32, %o: f32):
    linalg.yield %i : f32
  } -> tensor<2x32x196xf32>
  %y = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]} ins(%w, %columns : tensor<32x8x3x3xf32>, tensor<2x8x3x3x196xf32>) outs(%zeros : tensor<2x32x196xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %r, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x32x196xf32>
  return %y : tensor<2x32x196xf32>
}

// Also with a stride of 2.
// CHECK-LABEL: func.func @strided(
// CHECK-NOT: tensor<2x8x3x3x14x14xf32>
// CHECK: linalg.generic {indexing_maps = [#[[A]], #[[B2]], #[[C]]]
// CHECK: return
func.func @strided(%w: tensor<32x8x3x3xf32>, %x: tensor<2x8x29x29xf32>) -> tensor<2x32x196xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<2x8x3x3x14x14xf32>
  %windows = linalg.generic {indexing_maps = [#in2, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%x : tensor<2x8x29x29xf32>) outs(%empty : tensor<2x8x3x3x14x14xf32>) {
  ^bb0(%i: f32, %o: f32):
    linalg.yield %i : f32
  } -> tensor<2x8x3x3x14x14xf32>
  %columns = tensor.collapse_shape %windows [[0], [1], [2], [3], [4, 5]] : tensor<2x8x3x3x14x14xf32> into tensor<2x8x3x3x196xf32>
  %out = tensor.empty() : tensor<2x32x196xf32>
  %zeros = linalg.generic {indexing_maps = [#none, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%zero : f32) outs(%out : tensor<2x32x196xf32>) {
  ^bb0(%i: f32, %o: f32):
    linalg.yield %i : f32
  } -> tensor<2x32x196xf32>
  %y = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]} ins(%w, %columns : tensor<32x8x3x3xf32>, tensor<2x8x3x3x196xf32>) outs(%zeros : tensor<2x32x196xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %r, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x32x196xf32>
  return %y : tensor<2x32x196xf32>
}

// With larger strides a vector would read few positions: the windows are copied.
// CHECK-LABEL: func.func @far(
// CHECK: tensor<2x8x3x3x14x14xf32>
func.func @far(%w: tensor<32x8x3x3xf32>, %x: tensor<2x8x42x42xf32>) -> tensor<2x32x196xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<2x8x3x3x14x14xf32>
  %windows = linalg.generic {indexing_maps = [#in3, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%x : tensor<2x8x42x42xf32>) outs(%empty : tensor<2x8x3x3x14x14xf32>) {
  ^bb0(%i: f32, %o: f32):
    linalg.yield %i : f32
  } -> tensor<2x8x3x3x14x14xf32>
  %columns = tensor.collapse_shape %windows [[0], [1], [2], [3], [4, 5]] : tensor<2x8x3x3x14x14xf32> into tensor<2x8x3x3x196xf32>
  %out = tensor.empty() : tensor<2x32x196xf32>
  %zeros = linalg.generic {indexing_maps = [#none, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%zero : f32) outs(%out : tensor<2x32x196xf32>) {
  ^bb0(%i: f32, %o: f32):
    linalg.yield %i : f32
  } -> tensor<2x32x196xf32>
  %y = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]} ins(%w, %columns : tensor<32x8x3x3xf32>, tensor<2x8x3x3x196xf32>) outs(%zeros : tensor<2x32x196xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %r, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x32x196xf32>
  return %y : tensor<2x32x196xf32>
}
