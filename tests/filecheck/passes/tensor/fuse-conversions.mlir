// RUN: %nova-opt %s --fuse-conversions | %filecheck %s

#id = affine_map<(d0) -> (d0)>
#half = affine_map<(d0) -> (d0 + 4)>
#row = affine_map<(d0, d1) -> (d1)>
#both = affine_map<(d0, d1) -> (d0, d1)>

// The second half of a row, which one op reads twice.
// CHECK-DAG: #[[HALF:.*]] = affine_map<(d0, d1) -> (d1 + 4)>
// CHECK-LABEL: func.func @rotated
// CHECK: linalg.generic {indexing_maps = [#[[HALF]], #[[HALF]], #{{.*}}]
// CHECK-SAME: ins(%{{.*}}, %{{.*}} : tensor<8xbf16>, tensor<8xbf16>)
// CHECK-COUNT-2: arith.extf
// CHECK: arith.mulf
func.func @rotated(%x: tensor<8xbf16>) -> tensor<2x4xf32> {
  %0 = tensor.empty() : tensor<4xf32>
  %1 = linalg.generic {indexing_maps = [#half, #id], iterator_types = ["parallel"]} ins(%x : tensor<8xbf16>) outs(%0 : tensor<4xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %9 = arith.extf %in : bf16 to f32
    linalg.yield %9 : f32
  } -> tensor<4xf32>
  %2 = tensor.empty() : tensor<2x4xf32>
  %3 = linalg.generic {indexing_maps = [#row, #row, #both], iterator_types = ["parallel", "parallel"]} ins(%1, %1 : tensor<4xf32>, tensor<4xf32>) outs(%2 : tensor<2x4xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %9 = arith.mulf %a, %b : f32
    linalg.yield %9 : f32
  } -> tensor<2x4xf32>
  return %3 : tensor<2x4xf32>
}

// Another op reads the widened row: it stays.
// CHECK-LABEL: func.func @shared
// CHECK: linalg.generic
// CHECK: arith.extf
// CHECK: linalg.generic
// CHECK-SAME: ins(%{{.*}} : tensor<8xf32>)
func.func @shared(%x: tensor<8xbf16>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = tensor.empty() : tensor<8xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<8xbf16>) outs(%0 : tensor<8xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %9 = arith.extf %in : bf16 to f32
    linalg.yield %9 : f32
  } -> tensor<8xf32>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%1 : tensor<8xf32>) outs(%0 : tensor<8xf32>) {
  ^bb0(%a: f32, %out: f32):
    %9 = math.exp %a : f32
    linalg.yield %9 : f32
  } -> tensor<8xf32>
  return %1, %2 : tensor<8xf32>, tensor<8xf32>
}
