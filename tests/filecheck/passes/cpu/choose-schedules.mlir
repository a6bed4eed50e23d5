// RUN: %nova-opt %s --choose-schedules='schedules=9275291e6e70:mr=4:nv=2:tile=64x256,000000000000:kc=128' | %filecheck %s

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>

// CHECK-LABEL: func.func private @product(
// CHECK-SAME: nova.schedule = {mr = 4 : i64, nv = 2 : i64, tile = array<i64: 64, 256>}
func.func private @product(%x: memref<64x784xf32>, %w: memref<784x512xf32>, %y: memref<64x512xf32>) attributes {nova.grid = array<i64: 64, 512>, nova.kernel, nova.work = 51380224 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : memref<64x784xf32>, memref<784x512xf32>) outs(%y : memref<64x512xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %r, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// A kernel that nobody has chosen for stays as it is.
// CHECK-LABEL: func.func private @other(
// CHECK-NOT: nova.schedule
func.func private @other(%x: memref<64x784xf32>) attributes {nova.grid = array<i64>, nova.kernel, nova.work = 0 : i64} {
  return
}

func.func @main(%x: memref<64x784xf32>, %w: memref<784x512xf32>, %y: memref<64x512xf32>, %s: memref<0xi8>) attributes {nova.inputs = 2 : i64, nova.outputs = 1 : i64, nova.workspace = 0 : i64} {
  call @product(%x, %w, %y) : (memref<64x784xf32>, memref<784x512xf32>, memref<64x512xf32>) -> ()
  call @other(%x) : (memref<64x784xf32>) -> ()
  return
}
