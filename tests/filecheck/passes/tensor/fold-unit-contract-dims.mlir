// RUN: %nova-opt %s --fold-unit-contract-dims | %filecheck %s

#a = affine_map<(b, m, n, k) -> (b, m, k)>
#w = affine_map<(b, m, n, k) -> (n, k)>
#batched = affine_map<(b, m, n, k) -> (b, n, k)>
#c = affine_map<(b, m, n, k) -> (b, m, n)>

// Rows of two dims, of which one has one element, are the rows of a matrix.
// CHECK-LABEL: func.func @rows(
// CHECK: tensor.collapse_shape {{.*}} {{\[\[}}0, 1], [2]] : tensor<1x8x4xbf16> into tensor<8x4xbf16>
// CHECK: linalg.contract {{.*}} ins({{.*}} : tensor<8x4xbf16>, tensor<6x4xbf16>) outs({{.*}} : tensor<8x6xf32>)
// CHECK: tensor.expand_shape {{.*}} output_shape [1, 8, 6]
func.func @rows(%a: tensor<1x8x4xbf16>, %w: tensor<6x4xbf16>, %c: tensor<1x8x6xf32>) -> tensor<1x8x6xf32> {
  %0 = linalg.contract indexing_maps = [#a, #w, #c] ins(%a, %w : tensor<1x8x4xbf16>, tensor<6x4xbf16>) outs(%c : tensor<1x8x6xf32>) -> tensor<1x8x6xf32>
  return %0 : tensor<1x8x6xf32>
}

// So is a batch of one matrix.
// CHECK-LABEL: func.func @batch(
// CHECK: linalg.contract {{.*}} ins({{.*}} : tensor<8x4xf32>, tensor<6x4xf32>) outs({{.*}} : tensor<8x6xf32>)
func.func @batch(%a: tensor<1x8x4xf32>, %b: tensor<1x6x4xf32>, %c: tensor<1x8x6xf32>) -> tensor<1x8x6xf32> {
  %0 = linalg.contract indexing_maps = [#a, #batched, #c] ins(%a, %b : tensor<1x8x4xf32>, tensor<1x6x4xf32>) outs(%c : tensor<1x8x6xf32>) -> tensor<1x8x6xf32>
  return %0 : tensor<1x8x6xf32>
}

// A matrix with one row stays a matrix: its other row dim has one element too.
// CHECK-LABEL: func.func @row(
// CHECK: linalg.contract {{.*}} ins({{.*}} : tensor<1x1x4xf32>, tensor<6x4xf32>)
func.func @row(%a: tensor<1x1x4xf32>, %w: tensor<6x4xf32>, %c: tensor<1x1x6xf32>) -> tensor<1x1x6xf32> {
  %0 = linalg.contract indexing_maps = [#a, #w, #c] ins(%a, %w : tensor<1x1x4xf32>, tensor<6x4xf32>) outs(%c : tensor<1x1x6xf32>) -> tensor<1x1x6xf32>
  return %0 : tensor<1x1x6xf32>
}

// More than one element: nothing to fold.
// CHECK-LABEL: func.func @batches(
// CHECK-NOT: tensor.collapse_shape
// CHECK: linalg.contract
func.func @batches(%a: tensor<2x8x4xf32>, %b: tensor<2x6x4xf32>, %c: tensor<2x8x6xf32>) -> tensor<2x8x6xf32> {
  %0 = linalg.contract indexing_maps = [#a, #batched, #c] ins(%a, %b : tensor<2x8x4xf32>, tensor<2x6x4xf32>) outs(%c : tensor<2x8x6xf32>) -> tensor<2x8x6xf32>
  return %0 : tensor<2x8x6xf32>
}
