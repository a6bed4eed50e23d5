// RUN: %nova-opt %s --lower-kernels='target=x86_64-v3' | %filecheck %s

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d1, d2)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>

// Few rows by a transposed matrix: vectors along k, four columns at a time, whose lanes are summed
// side by side. Nothing is copied into panels.
// CHECK: func.func private @nova_direct_f32_3_40_100_3_40_100_1_1_100_40_1_more
// CHECK: memref.prefetch
// CHECK-COUNT-24: vector.fma
// CHECK: vector.maskedload
// CHECK: vector.shuffle
// CHECK-NOT: nova_pack
func.func private @product(%x: memref<3x100xf32>, %w: memref<40x100xf32>, %y: memref<3x40xf32>) attributes {nova.grid = array<i64: 3, 40>, nova.kernel, nova.work = 24000 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : memref<3x100xf32>, memref<40x100xf32>) outs(%y : memref<3x40xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %r, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

func.func @main(%x: memref<3x100xf32>, %w: memref<40x100xf32>, %y: memref<3x40xf32>, %s: memref<0xi8>) attributes {nova.inputs = 2 : i64, nova.outputs = 1 : i64, nova.workspace = 0 : i64} {
  call @product(%x, %w, %y) : (memref<3x100xf32>, memref<40x100xf32>, memref<3x40xf32>) -> ()
  return
}
