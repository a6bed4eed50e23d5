// RUN: %nova-opt %s --lower-kernels='target=x86_64-v3' --canonicalize --cse | %filecheck %s

// What is done with the results of a product is done a strip of rows at a time: both blocks of k of
// the columns are packed once for a tile, and the bias is added to 102 rows when these are finished.
// CHECK-LABEL: func.func private @relu_of_product
// CHECK-SAME: nova.tile = array<i64: 200, 128>
// CHECK: scf.for
// CHECK: call @nova_pack_lanes_f32_f32_16
// CHECK: call @nova_pack_lanes_f32_f32_16
// CHECK: scf.for {{.*}} step %c102
// CHECK: call @nova_pack_squares_f32_f32_6
// CHECK: call @nova_multiply_f32_6x16
// CHECK: call @nova_pack_squares_f32_f32_6
// CHECK: call @nova_multiply_f32_6x16
// CHECK: scf.for {{.*}} step %c8
// CHECK: arith.maximumf
// CHECK-NOT: call
// CHECK: return

#rows = affine_map<(m, n, k) -> (m, k)>
#columns = affine_map<(m, n, k) -> (k, n)>
#result = affine_map<(m, n, k) -> (m, n)>
#own = affine_map<(m, n) -> (m, n)>
#bias = affine_map<(m, n) -> (n)>

func.func private @relu_of_product(%x: memref<400x512xf32>, %w: memref<512x256xf32>, %b: memref<256xf32>, %y: memref<400x256xf32>)
    attributes {nova.grid = array<i64: 400, 256>, nova.ins = 3 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 105062400 : i64} {
  %zero = arith.constant 0.000000e+00 : f32
  linalg.generic {indexing_maps = [affine_map<(m, n) -> ()>, #own], iterator_types = ["parallel", "parallel"]} ins(%zero : f32) outs(%y : memref<400x256xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#rows, #columns, #result], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : memref<400x512xf32>, memref<512x256xf32>) outs(%y : memref<400x256xf32>) {
  ^bb0(%l: f32, %r: f32, %out: f32):
    %p = arith.mulf %l, %r : f32
    %s = arith.addf %out, %p : f32
    linalg.yield %s : f32
  }
  linalg.generic {indexing_maps = [#own, #bias, #own], iterator_types = ["parallel", "parallel"]} ins(%y, %b : memref<400x256xf32>, memref<256xf32>) outs(%y : memref<400x256xf32>) {
  ^bb0(%in: f32, %bias: f32, %out: f32):
    %s = arith.addf %in, %bias : f32
    %m = arith.maximumf %s, %zero : f32
    linalg.yield %m : f32
  }
  return
}
func.func @main(%x: memref<400x512xf32>, %w: memref<512x256xf32>, %b: memref<256xf32>, %y: memref<400x256xf32>, %s: memref<0xi8>) attributes {nova.inputs = 3 : i64, nova.outputs = 1 : i64, nova.workspace = 0 : i64} {
  call @relu_of_product(%x, %w, %b, %y) : (memref<400x512xf32>, memref<512x256xf32>, memref<256xf32>, memref<400x256xf32>) -> ()
  return
}
