// RUN: not %nova-opt %s --lower-kernels='target=x86_64-v3' 2>&1 | %filecheck %s

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>

// Panels that are not those of the schedule would be read as other numbers.
// CHECK: error: @product has arguments packed for another schedule than its own
func.func private @product(%x: memref<32x64xf32>, %w: memref<64x48xf32>, %y: memref<32x48xf32>) attributes {nova.grid = array<i64: 32, 48>, nova.kernel, nova.packed = [array<i64: 1, 56, 1>], nova.work = 98304 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : memref<32x64xf32>, memref<64x48xf32>) outs(%y : memref<32x48xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %r, %0 : f32
    linalg.yield %1 : f32
  }
  return
}
func.func @main(%s: memref<0xi8>) {
  return
}
