// RUN: %nova-opt %s --lower-kernels='target=x86_64-v3' --plan-tasks | %filecheck %s

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0) -> (d0)>

// What somebody has chosen is followed, and stays to be seen: the tiles, and the tasks.
// CHECK-LABEL: func.func private @product(
// CHECK-SAME: nova.schedule = {kc = 196 : i64, mr = 4 : i64, nv = 2 : i64, task_ns = 1 : i64, tile = array<i64: 32, 256>}
// CHECK-SAME: nova.task_ns = 1 : i64
// CHECK-SAME: nova.tile = array<i64: 32, 256>
// CHECK-SAME: nova.tiles = 4 : i64
func.func private @product(%x: memref<64x784xf32>, %w: memref<784x512xf32>, %y: memref<64x512xf32>) attributes {nova.grid = array<i64: 64, 512>, nova.kernel, nova.schedule = {mr = 4, nv = 2, kc = 196, tile = array<i64: 32, 256>, task_ns = 1}, nova.work = 51380224 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : memref<64x784xf32>, memref<784x512xf32>) outs(%y : memref<64x512xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %r, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// CHECK-LABEL: func.func private @copy(
// CHECK-SAME: nova.tile = array<i64: 300>
// CHECK-SAME: nova.tiles = 4 : i64
func.func private @copy(%x: memref<1000xf32>, %y: memref<1000xf32>) attributes {nova.grid = array<i64: 1000>, nova.kernel, nova.schedule = {tile = array<i64: 300>}, nova.work = 1000 : i64} {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : memref<1000xf32>) outs(%y : memref<1000xf32>) {
  ^bb0(%p: f32, %q: f32):
    linalg.yield %p : f32
  }
  return
}

func.func @main(%x: memref<64x784xf32>, %w: memref<784x512xf32>, %y: memref<64x512xf32>, %s: memref<0xi8>) attributes {nova.inputs = 2 : i64, nova.outputs = 1 : i64, nova.workspace = 0 : i64} {
  call @product(%x, %w, %y) : (memref<64x784xf32>, memref<784x512xf32>, memref<64x512xf32>) -> ()
  return
}
