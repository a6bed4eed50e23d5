// RUN: not %nova-opt %s --lower-device-kernels 2>&1 | %filecheck %s

// CHECK: error: @k holds scf.if that computes whole tensors, which a device cannot run
// CHECK: run pin-control-flow first
func.func private @k(%p: memref<i1>, %x: memref<4xf32>, %y: memref<4xf32>) attributes {nova.grid = array<i64: 4>, nova.ins = 2 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 4 : i64} {
  %0 = memref.load %p[] : memref<i1>
  scf.if %0 {
    linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    }
  }
  return
}
func.func @main(%s: memref<0xi8>) {
  return
}
