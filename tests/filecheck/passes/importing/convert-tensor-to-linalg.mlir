// RUN: %nova-opt %s --convert-tensor-to-linalg | %filecheck %s

// A slice at constant positions is an access, which fusion can fold.
// CHECK: #[[STEPS:.*]] = affine_map<(d0) -> (d0 * 2 + 1)>
// CHECK-LABEL: func.func @steps(
// CHECK-NOT: tensor.extract
// CHECK: linalg.generic {indexing_maps = [#[[STEPS]], #{{.*}}], iterator_types = ["parallel"]} ins(%arg0
// CHECK-NOT: tensor.extract_slice
func.func @steps(%x: tensor<9xf32>) -> tensor<4xf32> {
  %0 = tensor.extract_slice %x[1] [4] [2] : tensor<9xf32> to tensor<4xf32>
  return %0 : tensor<4xf32>
}

// One that begins at 0 must not give linalg the loop's bounds: it is read at computed positions.
// CHECK-LABEL: func.func @beginning(
// CHECK: linalg.generic {indexing_maps = [#{{.*}}], iterator_types = ["parallel"]} outs(
// CHECK: tensor.extract %arg0
func.func @beginning(%x: tensor<9xf32>) -> tensor<4xf32> {
  %0 = tensor.extract_slice %x[0] [4] [1] : tensor<9xf32> to tensor<4xf32>
  return %0 : tensor<4xf32>
}

// A row at a computed position: the axis of size 1 is left out of the result.
// CHECK-LABEL: func.func @row(
// CHECK: %[[J:.*]] = linalg.index 0
// CHECK: tensor.extract %arg0[%{{.*}}, %[[J]]]
func.func @row(%x: tensor<9x4xf32>, %i: index) -> tensor<4xf32> {
  %0 = tensor.extract_slice %x[%i, 0] [1, 4] [1, 1] : tensor<9x4xf32> to tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @insert(
// CHECK: linalg.generic {{.*}} ins(%arg1
// CHECK: %[[I:.*]] = linalg.index 0
// CHECK: %[[AT:.*]] = arith.subi %[[I]], %arg2
// CHECK: %[[PART:.*]] = tensor.extract %arg0
// CHECK: arith.select %{{.*}}, %[[PART]], %in
func.func @insert(%part: tensor<2xf32>, %whole: tensor<9xf32>, %i: index) -> tensor<9xf32> {
  %0 = tensor.insert_slice %part into %whole[%i] [2] [1] : tensor<2xf32> into tensor<9xf32>
  return %0 : tensor<9xf32>
}

// CHECK-LABEL: func.func @pad(
// CHECK: %[[SEVEN:.*]] = arith.constant 7.0
// CHECK: %[[PART:.*]] = tensor.extract %arg0
// CHECK: arith.select %{{.*}}, %[[PART]], %[[SEVEN]]
// CHECK-NOT: tensor.pad
func.func @pad(%x: tensor<3xf32>) -> tensor<6xf32> {
  %0 = tensor.pad %x low[1] high[2] {
  ^bb0(%i: index):
    %c = arith.constant 7.0 : f32
    tensor.yield %c : f32
  } : tensor<3xf32> to tensor<6xf32>
  return %0 : tensor<6xf32>
}

// CHECK-LABEL: func.func @concat(
// CHECK: %[[A:.*]] = tensor.extract %arg0
// CHECK: %[[B:.*]] = tensor.extract %arg1
// CHECK: arith.select %{{.*}}, %[[B]], %[[A]]
func.func @concat(%x: tensor<3xf32>, %y: tensor<2xf32>) -> tensor<5xf32> {
  %0 = tensor.concat dim(0) %x, %y : (tensor<3xf32>, tensor<2xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// CHECK-LABEL: func.func @splat(
// CHECK: linalg.fill ins(%arg0 : f32)
func.func @splat(%x: f32) -> tensor<5xf32> {
  %0 = tensor.splat %x : tensor<5xf32>
  return %0 : tensor<5xf32>
}
