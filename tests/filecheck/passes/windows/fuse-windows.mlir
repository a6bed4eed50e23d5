// RUN: %nova-opt %s --fuse-windows --canonicalize | %filecheck %s

#in = affine_map<(ky, kx, y, x) -> (y * 2 + ky, x + kx)>
#id = affine_map<(ky, kx, y, x) -> (ky, kx, y, x)>
#out = affine_map<(ky, kx, y, x) -> (y, x)>

// A pooling reads the windows in place; an operand without values has their number of taps.
// CHECK-DAG: #[[IN:.*]] = affine_map<(d0, d1, d2, d3) -> (d2 * 2 + d0, d1 + d3)>
// CHECK-DAG: #[[TAPS:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1)>
// CHECK-DAG: #[[OUT:.*]] = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
// CHECK-LABEL: func.func @pooling
// CHECK: linalg.generic {indexing_maps = [#[[IN]], #[[TAPS]], #[[OUT]]], {{.*}} ins(%arg0, %{{.*}} : tensor<9x12xf32>, tensor<3x3xf32>) outs(%arg1 : tensor<4x10xf32>)
// CHECK-NEXT: ^bb0(%[[X:.*]]: f32, %{{.*}}: f32, %[[TOTAL:.*]]: f32):
// CHECK-NEXT: arith.maximumf %[[TOTAL]], %[[X]]
// CHECK-NOT: linalg.generic
func.func @pooling(%x: tensor<9x12xf32>, %c: tensor<4x10xf32>) -> tensor<4x10xf32> {
  %empty = tensor.empty() : tensor<3x3x4x10xf32>
  %w = linalg.generic {indexing_maps = [#in, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%x : tensor<9x12xf32>) outs(%empty : tensor<3x3x4x10xf32>) {
  ^bb0(%i: f32, %o: f32):
    linalg.yield %i : f32
  } -> tensor<3x3x4x10xf32>
  %y = linalg.generic {indexing_maps = [#id, #out], iterator_types = ["reduction", "reduction", "parallel", "parallel"]} ins(%w : tensor<3x3x4x10xf32>) outs(%c : tensor<4x10xf32>) {
  ^bb0(%i: f32, %o: f32):
    %m = arith.maximumf %o, %i : f32
    linalg.yield %m : f32
  } -> tensor<4x10xf32>
  return %y : tensor<4x10xf32>
}

// Windows that others read as well stay.
// CHECK-LABEL: func.func @shared
// CHECK: ins(%arg0 : tensor<9x12xf32>) outs(%{{.*}} : tensor<3x3x4x10xf32>)
// CHECK: ins(%{{.*}} : tensor<3x3x4x10xf32>) outs(%arg1 : tensor<4x10xf32>)
func.func @shared(%x: tensor<9x12xf32>, %c: tensor<4x10xf32>) -> (tensor<4x10xf32>, tensor<3x3x4x10xf32>) {
  %empty = tensor.empty() : tensor<3x3x4x10xf32>
  %w = linalg.generic {indexing_maps = [#in, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%x : tensor<9x12xf32>) outs(%empty : tensor<3x3x4x10xf32>) {
  ^bb0(%i: f32, %o: f32):
    linalg.yield %i : f32
  } -> tensor<3x3x4x10xf32>
  %y = linalg.generic {indexing_maps = [#id, #out], iterator_types = ["reduction", "reduction", "parallel", "parallel"]} ins(%w : tensor<3x3x4x10xf32>) outs(%c : tensor<4x10xf32>) {
  ^bb0(%i: f32, %o: f32):
    %m = arith.maximumf %o, %i : f32
    linalg.yield %m : f32
  } -> tensor<4x10xf32>
  return %y, %w : tensor<4x10xf32>, tensor<3x3x4x10xf32>
}
