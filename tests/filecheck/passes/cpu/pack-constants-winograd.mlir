// RUN: %nova-opt %s --pack-constants='target=x86_64-v4' | %filecheck %s
// RUN: %nova-opt %s --pack-constants='target=x86_64-v4 winograd=off' | %filecheck %s --check-prefix=OFF
// RUN: %nova-opt %s --pack-constants='target=x86_64-v4' --lower-kernels='target=x86_64-v4' | %filecheck %s --check-prefix=LOOPS

#none = affine_map<(d0, d1, d2, d3) -> ()>
#all = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#w = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1, d4, d5, d6)>
#x = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, d2 + d5, d3 + d6)>
#y = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d1, d2, d3)>

// 36 matrices of 64 x 32 elements, with a gap after each.
// CHECK-DAG: memref.global "private" constant @weights_packed0 : memref<76608xf32> =
// CHECK-DAG: memref.global "private" constant @weights : memref<64x32x3x3xf32> = dense<2.000000e+00> {nova.unpacked}
// OFF-DAG: memref.global "private" constant @weights_packed0 : memref<20160xf32> =
memref.global "private" constant @weights : memref<64x32x3x3xf32> = dense<2.000000e+00>

// CHECK-LABEL: func.func private @convolution(
// CHECK-SAME: %[[W:arg[0-9]+]]: memref<76608xf32>,
// CHECK-NOT: nova.packed
// CHECK-SAME: nova.winograd = [array<i64: 0, 4>]
// OFF-LABEL: func.func private @convolution(
// OFF-SAME: nova.packed
// OFF-NOT: nova.winograd
// Blocks of two rows of tiles; every tile reads all weights.
// LOOPS-LABEL: func.func private @convolution(
// LOOPS-SAME: nova.reads = {{\[\[}}array<i64: 0, 306432, 0, 0, 0>]
// LOOPS-SAME: nova.tile = array<i64: 1, 64, 448>
// LOOPS: scf.if
// LOOPS: func.call @nova_winograd_input_4x16_
// LOOPS: scf.for
// LOOPS: func.call @nova_multiply_prepacked_f32_
// LOOPS: func.call @nova_winograd_output_4x16
func.func private @convolution(%w: memref<64x32x3x3xf32>, %x: memref<2x32x58x58xf32>, %y: memref<2x64x56x56xf32>) attributes {nova.grid = array<i64: 2, 64, 56, 56>, nova.ins = 2 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 231211008 : i64} {
  %zero = arith.constant 0.000000e+00 : f32
  linalg.generic {indexing_maps = [#none, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%zero : f32) outs(%y : memref<2x64x56x56xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#w, #x, #y], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]} ins(%w, %x : memref<64x32x3x3xf32>, memref<2x32x58x58xf32>) outs(%y : memref<2x64x56x56xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %r, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

func.func @main(%x: memref<2x32x58x58xf32>, %y: memref<2x64x56x56xf32>, %s: memref<0xi8>) attributes {nova.inputs = 1 : i64, nova.outputs = 1 : i64, nova.workspace = 0 : i64} {
  %w = memref.get_global @weights : memref<64x32x3x3xf32>
  call @convolution(%w, %x, %y) : (memref<64x32x3x3xf32>, memref<2x32x58x58xf32>, memref<2x64x56x56xf32>) -> ()
  return
}
