// RUN: %nova-opt %s --merge-contract-dims | %filecheck %s

#a = affine_map<(d0, d1, d2, d3, d4) -> (d3, d4, d0)>
#b = affine_map<(d0, d1, d2, d3, d4) -> (d3, d4, d1, d2)>
#c = affine_map<(d0, d1, d2, d3, d4) -> (d1, d2, d0)>
#swapped = affine_map<(d0, d1, d2, d3, d4) -> (d3, d4, d2, d1)>
#x = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#y = affine_map<(d0, d1, d2) -> (d0, d1)>

// The gradient of a weight has the heads of its neighbour, in a form that fusion leaves.
// CHECK-DAG: #[[A:.*]] = affine_map<(d0, d1, d2, d3) -> (d2, d3, d0)>
// CHECK-DAG: #[[B:.*]] = affine_map<(d0, d1, d2, d3) -> (d2, d3, d1)>
// CHECK-DAG: #[[C:.*]] = affine_map<(d0, d1, d2, d3) -> (d1, d0)>
// CHECK-LABEL: func.func @heads(
// CHECK: %[[G:.*]] = tensor.collapse_shape %arg1 {{\[\[}}0], [1], [2, 3]]
// CHECK: %[[T:.*]] = tensor.collapse_shape %arg2 {{\[\[}}0, 1], [2]]
// CHECK: %[[W:.*]] = linalg.contract indexing_maps = [#[[A]], #[[B]], #[[C]]] ins(%arg0, %[[G]] : {{.*}}) outs(%[[T]] : tensor<24x5xf32>)
// CHECK: return %[[W]]
func.func @heads(%x: tensor<2x3x5xf32>, %g: tensor<2x3x4x6xf32>, %t: tensor<4x6x5xf32>) -> tensor<24x5xf32> {
  %0 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]} ins(%x, %g : tensor<2x3x5xf32>, tensor<2x3x4x6xf32>) outs(%t : tensor<4x6x5xf32>) {
  ^bb0(%in: f32, %in_0: f32, %out: f32):
    %1 = arith.mulf %in, %in_0 : f32
    %2 = arith.addf %out, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<4x6x5xf32>
  %3 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<4x6x5xf32> into tensor<24x5xf32>
  return %3 : tensor<24x5xf32>
}

// The dims are not in this order in an operand.
// CHECK-LABEL: func.func @swapped(
// CHECK: linalg.contract
// CHECK: tensor.collapse_shape
func.func @swapped(%x: tensor<2x3x5xf32>, %g: tensor<2x3x6x4xf32>, %t: tensor<4x6x5xf32>) -> tensor<24x5xf32> {
  %0 = linalg.contract indexing_maps = [#a, #swapped, #c] ins(%x, %g : tensor<2x3x5xf32>, tensor<2x3x6x4xf32>) outs(%t : tensor<4x6x5xf32>) -> tensor<4x6x5xf32>
  %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<4x6x5xf32> into tensor<24x5xf32>
  return %1 : tensor<24x5xf32>
}

// A product of rows has neither rows nor columns.
// CHECK-LABEL: func.func @rows(
// CHECK: linalg.generic
// CHECK: tensor.collapse_shape
func.func @rows(%x: tensor<2x3x5xf32>, %t: tensor<2x3xf32>) -> tensor<6xf32> {
  %0 = linalg.generic {indexing_maps = [#x, #x, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %x : tensor<2x3x5xf32>, tensor<2x3x5xf32>) outs(%t : tensor<2x3xf32>) {
  ^bb0(%in: f32, %in_0: f32, %out: f32):
    %1 = arith.mulf %in, %in_0 : f32
    %2 = arith.addf %out, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<2x3xf32>
  %3 = tensor.collapse_shape %0 [[0, 1]] : tensor<2x3xf32> into tensor<6xf32>
  return %3 : tensor<6xf32>
}
