// RUN: %nova-opt %s --split-input-file --merge-reductions | %filecheck %s

#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>
#none = affine_map<(d0) -> ()>
#same = affine_map<(d0) -> (d0)>

// The sums of the columns of %g, and of %g times %h: one op that reads %g once, in the place of the
// second one, since %h does not exist before.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[G:.*]]: tensor<512x256xf32>, %[[X:.*]]: tensor<512x256xf32>
// CHECK: %[[H:.*]] = linalg.generic {{.*}}["parallel", "parallel"]
// CHECK: %[[BOTH:.*]]:2 = linalg.generic {{.*}}iterator_types = ["reduction", "parallel"]} ins(%[[G]], %[[H]] : tensor<512x256xf32>, tensor<512x256xf32>) outs(%{{.*}}, %{{.*}} : tensor<256xf32>, tensor<256xf32>)
// CHECK-NEXT: ^bb0(%[[A:.*]]: f32, %[[B:.*]]: f32, %[[SUM:.*]]: f32, %[[DOT:.*]]: f32):
// CHECK-NEXT: %[[FIRST:.*]] = arith.addf %[[SUM]], %[[A]]
// CHECK-NEXT: %[[PRODUCT:.*]] = arith.mulf %[[A]], %[[B]]
// CHECK-NEXT: %[[SECOND:.*]] = arith.addf %[[DOT]], %[[PRODUCT]]
// CHECK-NEXT: linalg.yield %[[FIRST]], %[[SECOND]]
// CHECK: return %[[BOTH]]#0, %[[BOTH]]#1
func.func @main(%g: tensor<512x256xf32>, %x: tensor<512x256xf32>) -> (tensor<256xf32>, tensor<256xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<256xf32>
  %init = linalg.generic {indexing_maps = [#none, #same], iterator_types = ["parallel"]} ins(%zero : f32) outs(%e : tensor<256xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<256xf32>
  %0 = linalg.generic {indexing_maps = [#all, #column], iterator_types = ["reduction", "parallel"]} ins(%g : tensor<512x256xf32>) outs(%init : tensor<256xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.addf %out, %in : f32
    linalg.yield %a : f32
  } -> tensor<256xf32>
  %me = tensor.empty() : tensor<512x256xf32>
  %h = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<512x256xf32>) outs(%me : tensor<512x256xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = math.exp %in : f32
    linalg.yield %a : f32
  } -> tensor<512x256xf32>
  %1 = linalg.generic {indexing_maps = [#all, #all, #column], iterator_types = ["reduction", "parallel"]} ins(%g, %h : tensor<512x256xf32>, tensor<512x256xf32>) outs(%init : tensor<256xf32>) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %p = arith.mulf %in, %in2 : f32
    %a = arith.addf %out, %p : f32
    linalg.yield %a : f32
  } -> tensor<256xf32>
  return %0, %1 : tensor<256xf32>, tensor<256xf32>
}

// -----

#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>
#none = affine_map<(d0) -> ()>
#same = affine_map<(d0) -> (d0)>

// Sums of another matrix, sums along rows, and a sum that reads the first one: nothing is merged.
// CHECK-LABEL: func.func @main(
// CHECK-NOT: %{{.*}}:2 = linalg.generic
func.func @main(%g: tensor<256x256xf32>, %x: tensor<256x256xf32>) -> (tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<256xf32>
  %init = linalg.generic {indexing_maps = [#none, #same], iterator_types = ["parallel"]} ins(%zero : f32) outs(%e : tensor<256xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<256xf32>
  %0 = linalg.generic {indexing_maps = [#all, #column], iterator_types = ["reduction", "parallel"]} ins(%g : tensor<256x256xf32>) outs(%init : tensor<256xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.addf %out, %in : f32
    linalg.yield %a : f32
  } -> tensor<256xf32>
  %1 = linalg.generic {indexing_maps = [#all, #column], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<256x256xf32>) outs(%init : tensor<256xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.addf %out, %in : f32
    linalg.yield %a : f32
  } -> tensor<256xf32>
  %2 = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]} ins(%g : tensor<256x256xf32>) outs(%init : tensor<256xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.addf %out, %in : f32
    linalg.yield %a : f32
  } -> tensor<256xf32>
  %3 = linalg.generic {indexing_maps = [#all, #column, #column], iterator_types = ["reduction", "parallel"]} ins(%g, %0 : tensor<256x256xf32>, tensor<256xf32>) outs(%init : tensor<256xf32>) {
  ^bb0(%in: f32, %m: f32, %out: f32):
    %d = arith.subf %in, %m : f32
    %a = arith.addf %out, %d : f32
    linalg.yield %a : f32
  } -> tensor<256xf32>
  return %0, %1, %2, %3 : tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>
}

// -----

#all = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
#none = affine_map<(d0) -> ()>
#same = affine_map<(d0) -> (d0)>

// The second sum reads a reshape that is made after the first one, of a value that exists before:
// the merged op reads a copy of the reshape.
// CHECK-LABEL: func.func @main(
// CHECK: %[[Y:.*]] = tensor.collapse_shape %arg1
// CHECK: %[[SUMS:.*]]:2 = linalg.generic {{.*}} ins(%arg0, %[[Y]] :
// CHECK: math.exp
func.func @main(%g: tensor<256x256xf32>, %x: tensor<16x16x256xf32>) -> (tensor<256xf32>, tensor<256xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<256xf32>
  %init = linalg.generic {indexing_maps = [#none, #same], iterator_types = ["parallel"]} ins(%zero : f32) outs(%e : tensor<256xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<256xf32>
  %0 = linalg.generic {indexing_maps = [#all, #column], iterator_types = ["reduction", "parallel"]} ins(%g : tensor<256x256xf32>) outs(%init : tensor<256xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.addf %out, %in : f32
    linalg.yield %a : f32
  } -> tensor<256xf32>
  %1 = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel"]} ins(%0 : tensor<256xf32>) outs(%e : tensor<256xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = math.exp %in : f32
    linalg.yield %a : f32
  } -> tensor<256xf32>
  %y = tensor.collapse_shape %x [[0, 1], [2]] : tensor<16x16x256xf32> into tensor<256x256xf32>
  %2 = linalg.generic {indexing_maps = [#all, #all, #column], iterator_types = ["reduction", "parallel"]} ins(%g, %y : tensor<256x256xf32>, tensor<256x256xf32>) outs(%init : tensor<256xf32>) {
  ^bb0(%in: f32, %m: f32, %out: f32):
    %d = arith.mulf %in, %m : f32
    %a = arith.addf %out, %d : f32
    linalg.yield %a : f32
  } -> tensor<256xf32>
  return %1, %2 : tensor<256xf32>, tensor<256xf32>
}
