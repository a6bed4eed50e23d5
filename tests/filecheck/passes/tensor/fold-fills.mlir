// RUN: %nova-opt %s --fold-fills | %filecheck %s

#vector = affine_map<(i) -> (i)>
#rows = affine_map<(i, j) -> (i, j)>
#columns = affine_map<(i, j) -> (j)>
#row = affine_map<(i, j) -> (i)>

// Two ops read the constant, and the tensor that was filled with it is gone.
// CHECK-LABEL: func.func @users(
// CHECK: %[[C:.*]] = arith.constant 1.5
// CHECK-NOT: linalg.yield %[[C]]
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<8x4xf32>) outs(
// CHECK: arith.addf %{{.*}}, %[[C]]
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<8x4xf32>) outs(
// CHECK: arith.mulf %{{.*}}, %[[C]]
func.func @users(%x: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %c = arith.constant 1.5 : f32
  %e = tensor.empty() : tensor<4xf32>
  %f = linalg.generic {indexing_maps = [#vector], iterator_types = ["parallel"]} outs(%e : tensor<4xf32>) {
  ^bb0(%out: f32):
    linalg.yield %c : f32
  } -> tensor<4xf32>
  %d = tensor.empty() : tensor<8x4xf32>
  %0 = linalg.generic {indexing_maps = [#rows, #columns, #rows], iterator_types = ["parallel", "parallel"]} ins(%x, %f : tensor<8x4xf32>, tensor<4xf32>) outs(%d : tensor<8x4xf32>) {
  ^bb0(%in: f32, %eps: f32, %out: f32):
    %s = arith.addf %in, %eps : f32
    linalg.yield %s : f32
  } -> tensor<8x4xf32>
  %1 = linalg.generic {indexing_maps = [#columns, #rows, #rows], iterator_types = ["parallel", "parallel"]} ins(%f, %x : tensor<4xf32>, tensor<8x4xf32>) outs(%d : tensor<8x4xf32>) {
  ^bb0(%eps: f32, %in: f32, %out: f32):
    %s = arith.mulf %in, %eps : f32
    linalg.yield %s : f32
  } -> tensor<8x4xf32>
  return %0, %1 : tensor<8x4xf32>, tensor<8x4xf32>
}

// A reshape of a fill is a fill, also when the scalar is an operand.
// CHECK-LABEL: func.func @reshape(
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<2x3x4xf32>)
// CHECK-NOT: expand_shape
// CHECK: return
func.func @reshape() -> tensor<2x3x4xf32> {
  %c = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<6x4xf32>
  %f = linalg.generic {indexing_maps = [affine_map<(i, j) -> ()>, #rows], iterator_types = ["parallel", "parallel"]} ins(%c : f32) outs(%e : tensor<6x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<6x4xf32>
  %0 = tensor.expand_shape %f [[0, 1], [2]] output_shape [2, 3, 4] : tensor<6x4xf32> into tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}

// A reduction keeps its operands: the fill gives the number of its terms.
// CHECK-LABEL: func.func @sum(
// CHECK: ins(%{{.*}} : tensor<8x4xf32>) outs(%{{.*}} : tensor<8xf32>)
func.func @sum(%init: tensor<8xf32>) -> tensor<8xf32> {
  %c = arith.constant 2.0 : f32
  %e = tensor.empty() : tensor<8x4xf32>
  %f = linalg.generic {indexing_maps = [#rows], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<8x4xf32>) {
  ^bb0(%out: f32):
    linalg.yield %c : f32
  } -> tensor<8x4xf32>
  %0 = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]} ins(%f : tensor<8x4xf32>) outs(%init : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.addf %in, %out : f32
    linalg.yield %s : f32
  } -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// A value that is not a constant, and the elements of another tensor, are not fills.
// CHECK-LABEL: func.func @computed(
// CHECK-COUNT-2: linalg.generic
func.func @computed(%v: f32, %x: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %f = linalg.generic {indexing_maps = [#vector], iterator_types = ["parallel"]} outs(%e : tensor<4xf32>) {
  ^bb0(%out: f32):
    linalg.yield %v : f32
  } -> tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [#vector, #vector, #vector], iterator_types = ["parallel"]} ins(%x, %f : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
