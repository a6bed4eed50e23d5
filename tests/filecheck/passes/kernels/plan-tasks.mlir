// RUN: %nova-opt %s --lower-kernels='target=x86_64-v3' --plan-tasks=task-ns=10000 | %filecheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>

// A tile is 256 rows of 1024 bytes. The runtime cuts tiles into tasks of 10 us.
// CHECK-LABEL: func.func private @rows(
// CHECK-SAME: nova.loops = array<i64: 1024>
// CHECK-SAME: nova.reads = {{\[}}[array<i64: 0, 1024, 1024>], []]
// CHECK-SAME: nova.task_ns = 10000 : i64
// CHECK-SAME: nova.tile = array<i64: 256>
// CHECK-SAME: nova.writes = {{\[}}[], [array<i64: 0, 4, 4>]]
func.func private @rows(%x: memref<1024x256xf32>, %y: memref<1024xf32>) attributes {nova.grid = array<i64: 1024>, nova.kernel, nova.work = 262144 : i64} {
  linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : memref<1024x256xf32>) outs(%y : memref<1024xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %out, %in : f32
    linalg.yield %0 : f32
  }
  return
}

// A column of x is a hull of nearly all of it.
// CHECK-LABEL: func.func private @columns(
// CHECK-SAME: nova.reads = {{\[}}[array<i64: 0, 1047556, 4>], []]
// CHECK-SAME: nova.writes = {{\[}}[], [array<i64: 0, 4, 4>]]
func.func private @columns(%x: memref<1024x256xf32>, %y: memref<256xf32>) attributes {nova.grid = array<i64: 256>, nova.kernel, nova.work = 262144 : i64} {
  linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]} ins(%x : memref<1024x256xf32>) outs(%y : memref<256xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %out, %in : f32
    linalg.yield %0 : f32
  }
  return
}

// What is read at computed places is read whole.
// CHECK-LABEL: func.func private @gather(
// CHECK-SAME: nova.reads = {{\[}}[array<i64: 0, 256, 0>], [array<i64: 0, 8, 8>], []]
// CHECK-SAME: nova.task_ns = 10000 : i64
func.func private @gather(%table: memref<64xf32>, %ids: memref<16xi64>, %y: memref<16xf32>) attributes {nova.grid = array<i64: 16>, nova.kernel, nova.work = 48 : i64} {
  linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%ids : memref<16xi64>) outs(%y : memref<16xf32>) {
  ^bb0(%id: i64, %out: f32):
    %at = arith.index_cast %id : i64 to index
    %0 = memref.load %table[%at] : memref<64xf32>
    linalg.yield %0 : f32
  }
  return
}

func.func @main(%x: memref<1024x256xf32>, %t: memref<64xf32>, %i: memref<16xi64>, %y: memref<1024xf32>, %z: memref<256xf32>, %w: memref<16xf32>, %ws: memref<0xi8>) attributes {nova.outputs = 3 : i64, nova.workspace = 0 : i64} {
  call @rows(%x, %y) : (memref<1024x256xf32>, memref<1024xf32>) -> ()
  call @columns(%x, %z) : (memref<1024x256xf32>, memref<256xf32>) -> ()
  call @gather(%t, %i, %w) : (memref<64xf32>, memref<16xi64>, memref<16xf32>) -> ()
  return
}
