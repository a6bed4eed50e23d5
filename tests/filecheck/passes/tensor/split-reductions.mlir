// RUN: %nova-opt %s --split-input-file --split-reductions | %filecheck %s

#row = affine_map<(d0, d1) -> (d0, d1)>
#none = affine_map<(d0, d1) -> ()>
#column = affine_map<(d0, d1) -> (d1)>
#first = affine_map<(d0, d1) -> (d0)>

// The sum of everything: 64 parts of 4 rows, and the sum of their sums.
// CHECK-LABEL: func.func @main(
// CHECK: tensor.expand_shape %{{.*}} {{\[\[}}0, 1], [2]] output_shape [64, 4, 256]
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<64xf32>)
// CHECK: %[[PARTS:.*]] = linalg.generic {{.*}}iterator_types = ["parallel", "reduction", "reduction"]} {{.*}} outs(%{{.*}} : tensor<64xf32>)
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction"]} ins(%[[PARTS]] : tensor<64xf32>) outs(%{{.*}} : tensor<f32>)
// CHECK-NEXT: ^bb0(%[[IN:.*]]: f32, %[[OUT:.*]]: f32):
// CHECK-NEXT: arith.addf %[[OUT]], %[[IN]] : f32

// The largest of each column: partial results are neighbours, as the columns are. A counter of the
// loop that is cut counts all of its turns.
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction", "parallel"]} {{.*}} outs(%{{.*}} : tensor<128x64xf32>)
// CHECK: linalg.index 1
// CHECK: linalg.index 0
// CHECK: arith.muli
// CHECK: arith.addi
// CHECK: arith.maximumf
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "parallel"]} {{.*}} outs(%{{.*}} : tensor<64xf32>)

// Rows are enough for all blocks.
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]} {{.*}} outs(%{{.*}} : tensor<512xf32>)
// CHECK-NOT: linalg.generic
func.func @main(%x: tensor<256x256xf32>, %tall: tensor<65536x64xf32>, %wide: tensor<512x65536xf32>, %zero: tensor<f32>, %low: tensor<64xf32>, %zeros: tensor<512xf32>) -> (tensor<f32>, tensor<64xf32>, tensor<512xf32>) {
  %0 = linalg.generic {indexing_maps = [#row, #none], iterator_types = ["reduction", "reduction"]} ins(%x : tensor<256x256xf32>) outs(%zero : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.addf %out, %in : f32
    linalg.yield %a : f32
  } -> tensor<f32>
  %1 = linalg.generic {indexing_maps = [#row, #column], iterator_types = ["reduction", "parallel"]} ins(%tall : tensor<65536x64xf32>) outs(%low : tensor<64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %i = linalg.index 0 : index
    %n = arith.index_cast %i : index to i32
    %f = arith.sitofp %n : i32 to f32
    %p = arith.mulf %in, %f : f32
    %a = arith.maximumf %out, %p : f32
    linalg.yield %a : f32
  } -> tensor<64xf32>
  %2 = linalg.generic {indexing_maps = [#row, #first], iterator_types = ["parallel", "reduction"]} ins(%wide : tensor<512x65536xf32>) outs(%zeros : tensor<512xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.addf %out, %in : f32
    linalg.yield %a : f32
  } -> tensor<512xf32>
  return %0, %1, %2 : tensor<f32>, tensor<64xf32>, tensor<512xf32>
}

// -----

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>

// A product along a long k: its parts are products of their own.
// CHECK-LABEL: func.func @main(
// CHECK: tensor.expand_shape %{{.*}} {{\[\[}}0], [1, 2]] output_shape [16, 64, 1024]
// CHECK: tensor.expand_shape %{{.*}} {{\[\[}}0, 1], [2]] output_shape [64, 1024, 32]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel", "reduction"]} {{.*}} outs(%{{.*}} : tensor<64x16x32xf32>)
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "parallel", "parallel"]} {{.*}} outs(%{{.*}} : tensor<16x32xf32>)
func.func @main(%x: tensor<16x65536xf32>, %y: tensor<65536x32xf32>, %zeros: tensor<16x32xf32>) -> tensor<16x32xf32> {
  %0 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : tensor<16x65536xf32>, tensor<65536x32xf32>) outs(%zeros : tensor<16x32xf32>) {
  ^bb0(%l: f32, %r: f32, %out: f32):
    %p = arith.mulf %l, %r : f32
    %a = arith.addf %out, %p : f32
    linalg.yield %a : f32
  } -> tensor<16x32xf32>
  return %0 : tensor<16x32xf32>
}
