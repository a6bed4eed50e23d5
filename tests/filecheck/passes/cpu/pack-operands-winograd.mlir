// RUN: %nova-opt %s --pack-operands='target=x86_64-v4' | %filecheck %s
// RUN: %nova-opt %s --pack-operands='target=x86_64-v4' --lower-kernels='target=x86_64-v4' | %filecheck %s --check-prefix=LOOPS

#none = affine_map<(d0, d1, d2, d3) -> ()>
#all = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#w = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1, d4, d5, d6)>
#x = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, d2 + d5, d3 + d6)>
#y = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d1, d2, d3)>

// CHECK-LABEL: func.func private @convolution(
// CHECK-SAME: memref<595584xf32>,
// CHECK-SAME: nova.winograd = [array<i64: 0, 4>]
func.func private @convolution(%w: memref<128x128x3x3xf32>, %x: memref<2x128x30x30xf32>, %y: memref<2x128x28x28xf32>) attributes {nova.grid = array<i64: 2, 128, 28, 28>, nova.ins = 2 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 462422016 : i64} {
  %zero = arith.constant 0.000000e+00 : f32
  linalg.generic {indexing_maps = [#none, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%zero : f32) outs(%y : memref<2x128x28x28xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#w, #x, #y], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]} ins(%w, %x : memref<128x128x3x3xf32>, memref<2x128x30x30xf32>) outs(%y : memref<2x128x28x28xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %r, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// A kernel transforms the weights: two blocks of 64 output channels, 36 matrices each.
// CHECK-LABEL: func.func private @transform_0(
// CHECK-SAME: memref<128x128x3x3xf32>, %{{.*}}: memref<2x297792xf32>
// CHECK: nova.winograd_point
// CHECK-SAME: block_outputs = 64 : i64
// LOOPS-LABEL: func.func private @transform_0(
// LOOPS: func.call @nova_pack_squares
// LOOPS: func.call @nova_winograd_weights_4_

// CHECK-LABEL: func.func @main(
// CHECK: %[[INTO:.*]] = memref.view {{.*}} to memref<2x297792xf32>
// CHECK: call @transform_0(%arg0, %[[INTO]])
// CHECK: %[[WEIGHTS:.*]] = memref.view {{.*}} to memref<595584xf32>
// CHECK: call @convolution(%[[WEIGHTS]], %arg1, %arg2)
func.func @main(%w: memref<128x128x3x3xf32>, %x: memref<2x128x30x30xf32>, %y: memref<2x128x28x28xf32>, %s: memref<0xi8>) attributes {nova.inputs = 2 : i64, nova.outputs = 1 : i64, nova.workspace = 0 : i64} {
  call @convolution(%w, %x, %y) : (memref<128x128x3x3xf32>, memref<2x128x30x30xf32>, memref<2x128x28x28xf32>) -> ()
  return
}
