// RUN: %nova-opt %s --lower-kernels='target=x86_64-v3' | %filecheck %s

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>

// A small product is one call of a function that has its sizes; nothing is copied into panels.
// CHECK-DAG: func.func private @nova_direct_f32_8_10_16_8_10_16_1_10_1_10_1_more
// CHECK-DAG: vector.maskedload
// CHECK-DAG: vector.fma
// CHECK-DAG: call @nova_direct_f32_8_10_16_8_10_16_1_10_1_10_1_more
// CHECK-NOT: nova_pack
func.func private @product(%x: memref<8x16xf32>, %w: memref<16x10xf32>, %y: memref<8x10xf32>) attributes {nova.grid = array<i64: 8, 10>, nova.kernel, nova.work = 2560 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : memref<8x16xf32>, memref<16x10xf32>) outs(%y : memref<8x10xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %r, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

func.func @main(%x: memref<8x16xf32>, %w: memref<16x10xf32>, %y: memref<8x10xf32>, %s: memref<0xi8>) attributes {nova.inputs = 2 : i64, nova.outputs = 1 : i64, nova.workspace = 0 : i64} {
  call @product(%x, %w, %y) : (memref<8x16xf32>, memref<16x10xf32>, memref<8x10xf32>) -> ()
  return
}
