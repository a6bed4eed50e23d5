// RUN: %nova-opt %s --pack-constants='target=x86_64-v3' | %filecheck %s
// RUN: %nova-opt %s --pack-constants='target=x86_64-v3' --lower-kernels='target=x86_64-v3' | %filecheck %s --check-prefix=LOOPS

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>

// The weight of a 1x1 convolution is the left operand: its rows are in micropanels.
// CHECK-DAG: memref.global "private" constant @weights_packed0 : memref<[[SIZE:[0-9]+]]xf32> =
// CHECK-DAG: memref.global "private" constant @weights : memref<96x256x1x1xf32> = dense<2.000000e+00> {nova.unpacked}
memref.global "private" constant @weights : memref<96x256x1x1xf32> = dense<2.000000e+00>

// CHECK-LABEL: func.func private @convolution(
// CHECK-SAME: %[[W:arg[0-9]+]]: memref<[[SIZE]]xf32>,
// CHECK-SAME: nova.packed = [array<i64: 0, {{[0-9]+}}, 1>]
// LOOPS-LABEL: func.func private @convolution(
// LOOPS-NOT: call @nova_pack_squares
// LOOPS: call @nova_multiply{{.*}}_prepacked_f32
func.func private @convolution(%w: memref<96x256xf32>, %x: memref<256x784xf32>, %y: memref<96x784xf32>) attributes {nova.grid = array<i64: 96, 784>, nova.kernel, nova.work = 38535168 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%w, %x : memref<96x256xf32>, memref<256x784xf32>) outs(%y : memref<96x784xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %r, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// CHECK-LABEL: func.func @main(
// CHECK-NOT: memref.collapse_shape
// CHECK: %[[PACKED:[0-9]+]] = memref.get_global @weights_packed0
// CHECK: call @convolution(%[[PACKED]], %{{.*}})
func.func @main(%x: memref<256x784xf32>, %y: memref<96x784xf32>, %s: memref<0xi8>) attributes {nova.inputs = 1 : i64, nova.outputs = 1 : i64, nova.workspace = 0 : i64} {
  %g = memref.get_global @weights : memref<96x256x1x1xf32>
  %w = memref.collapse_shape %g [[0], [1, 2, 3]] : memref<96x256x1x1xf32> into memref<96x256xf32>
  call @convolution(%w, %x, %y) : (memref<96x256xf32>, memref<256x784xf32>, memref<96x784xf32>) -> ()
  return
}
