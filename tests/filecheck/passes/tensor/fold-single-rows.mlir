// RUN: %nova-opt %s --fold-single-rows | %filecheck %s

#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>

// One row times a large matrix: a matrix-vector product, and reshapes around it.
// CHECK-LABEL: func.func @row
// CHECK: %[[X:.*]] = tensor.collapse_shape %arg0 {{\[}}[0, 1]] : tensor<1x256xf32> into tensor<256xf32>
// CHECK: linalg.contract {{.*}} ins(%[[X]], %arg1 : tensor<256xf32>, tensor<512x256xf32>) outs({{.*}} : tensor<512xf32>)
// CHECK: tensor.expand_shape {{.*}} : tensor<512xf32> into tensor<1x512xf32>
func.func @row(%x: tensor<1x256xf32>, %w: tensor<512x256xf32>, %c: tensor<1x512xf32>) -> tensor<1x512xf32> {
  %0 = linalg.contract indexing_maps = [#a, #b, #c] ins(%x, %w : tensor<1x256xf32>, tensor<512x256xf32>) outs(%c : tensor<1x512xf32>) -> tensor<1x512xf32>
  return %0 : tensor<1x512xf32>
}

// Several rows, a small matrix, and one that is not contiguous along the sum stay.
// CHECK-LABEL: func.func @others
// CHECK-COUNT-3: -> tensor<{{.*}}x{{.*}}xf32>
func.func @others(%x: tensor<2x256xf32>, %w: tensor<512x256xf32>, %c: tensor<2x512xf32>, %y: tensor<1x8xf32>, %v: tensor<512x8xf32>, %d: tensor<1x512xf32>, %z: tensor<1x256xf32>, %u: tensor<256x512xf32>) -> (tensor<2x512xf32>, tensor<1x512xf32>, tensor<1x512xf32>) {
  // CHECK-NOT: tensor.collapse_shape
  %0 = linalg.contract indexing_maps = [#a, #b, #c] ins(%x, %w : tensor<2x256xf32>, tensor<512x256xf32>) outs(%c : tensor<2x512xf32>) -> tensor<2x512xf32>
  %1 = linalg.contract indexing_maps = [#a, #b, #c] ins(%y, %v : tensor<1x8xf32>, tensor<512x8xf32>) outs(%d : tensor<1x512xf32>) -> tensor<1x512xf32>
  %2 = linalg.contract indexing_maps = [#a, affine_map<(m, n, k) -> (k, n)>, #c] ins(%z, %u : tensor<1x256xf32>, tensor<256x512xf32>) outs(%d : tensor<1x512xf32>) -> tensor<1x512xf32>
  return %0, %1, %2 : tensor<2x512xf32>, tensor<1x512xf32>, tensor<1x512xf32>
}
