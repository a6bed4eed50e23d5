// RUN: %nova-opt %s --lower-kernels='target=x86_64-v3' --canonicalize --cse | %filecheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#col = affine_map<(d0, d1) -> (d1)>
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
#scalar = affine_map<(d0, d1) -> ()>

// A kernel gains the range of tiles to compute. Rows are summed in a register: the accumulator is
// carried by the innermost loop, and only its additions may be reordered.
// CHECK-LABEL: func.func private @rows(
// CHECK-SAME: %[[X:.*]]: memref<512x256xf32>, %[[Y:.*]]: memref<512xf32>, %[[BEGIN:.*]]: index, %[[END:.*]]: index)
// CHECK-SAME: nova.core = "vector"
// CHECK-SAME: nova.tiles = 2 : i64
// CHECK: scf.for %[[TILE:.*]] = %[[BEGIN]] to %[[END]]
// CHECK: %[[LOW:.*]] = arith.muli %[[TILE]], %c256
// CHECK: %[[HIGH:.*]] = arith.addi %[[LOW]], %c256
// CHECK: scf.for %[[R:.*]] = %[[LOW]] to %[[HIGH]]
// CHECK: %[[OLD:.*]] = memref.load %[[Y]][%[[R]]]
// CHECK: %[[SUM:.*]] = scf.for {{.*}} iter_args(%[[ACC:.*]] = %[[OLD]]) -> (f32) {
// CHECK: arith.addf %[[ACC]], %{{.*}} fastmath<reassoc,contract> : f32
// CHECK: memref.store %[[SUM]], %[[Y]][%[[R]]]
func.func private @rows(%x: memref<512x256xf32>, %y: memref<512xf32>) attributes {nova.grid = array<i64: 512>, nova.kernel, nova.work = 131072 : i64} {
  linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : memref<512x256xf32>) outs(%y : memref<512xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %out, %in : f32
    linalg.yield %0 : f32
  }
  return
}

// Columns are summed row by row: the loop that walks memory is innermost, the reduction is not.
// CHECK-LABEL: func.func private @columns(
// CHECK: %[[LOW:.*]] = arith.muli
// CHECK: %[[HIGH:.*]] = arith.addi %[[LOW]]
// CHECK: scf.for %{{.*}} = %c0 to %c512
// CHECK: scf.for %[[C:.*]] = %[[LOW]] to %[[HIGH]]
// CHECK: memref.load %{{.*}}[%[[C]]] : memref<256xf32>
// CHECK: memref.store %{{.*}}, %{{.*}}[%[[C]]] : memref<256xf32>
func.func private @columns(%x: memref<512x256xf32>, %y: memref<256xf32>) attributes {nova.grid = array<i64: 256>, nova.kernel, nova.work = 131072 : i64} {
  linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]} ins(%x : memref<512x256xf32>) outs(%y : memref<256xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %out, %in : f32
    linalg.yield %0 : f32
  }
  return
}

// Outside of reductions nothing may be reordered, and dimensions that memory walks are one loop.
// CHECK-LABEL: func.func private @sums(
// CHECK: scf.for
// CHECK: scf.for %[[I:.*]] = %c0 to %c32
// CHECK-NOT: scf.for
// CHECK: arith.addf %{{.*}}, %{{.*}} : f32
// CHECK: return
func.func private @sums(%x: memref<8x4xf32>, %y: memref<8x4xf32>) attributes {nova.grid = array<i64: 8, 4>, nova.kernel, nova.work = 32 : i64} {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : memref<8x4xf32>) outs(%y : memref<8x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %in : f32
    linalg.yield %0 : f32
  }
  return
}

// Bools are bytes in memory and bits in registers.
// CHECK-LABEL: func.func private @bools(
// CHECK-SAME: memref<8x4xi8>, %{{.*}}: memref<8x4xi8>, %{{.*}}: memref<8x4xi8>
// CHECK: %[[BYTE:.*]] = memref.load %{{.*}} : memref<32xi8>
// CHECK: arith.trunci %[[BYTE]] : i8 to i1
// CHECK: %[[BIT:.*]] = arith.andi %{{.*}} : i1
// CHECK: %[[WIDE:.*]] = arith.extui %[[BIT]] : i1 to i8
// CHECK: memref.store %[[WIDE]]
func.func private @bools(%x: memref<8x4xi1>, %y: memref<8x4xi1>, %z: memref<8x4xi1>) attributes {nova.grid = array<i64: 8, 4>, nova.kernel, nova.work = 32 : i64} {
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %y : memref<8x4xi1>, memref<8x4xi1>) outs(%z : memref<8x4xi1>) {
  ^bb0(%a: i1, %b: i1, %out: i1):
    %0 = arith.andi %a, %b : i1
    linalg.yield %0 : i1
  }
  return
}

// A product of some size is packed and computed with vectors, in functions that all products of the
// module share; its zeroed destination is not read.
// CHECK-LABEL: func.func private @product(
// CHECK-SAME: nova.core = "matrix"
// CHECK: memref.alloca() {alignment = 64 : i64}
// CHECK-NOT: linalg.generic
// CHECK: call @nova_pack_squares_f32_f32_[[MR:[0-9]+]](
// CHECK: call @nova_pack_lanes_f32_f32_16(
// CHECK: call @nova_multiply_f32_[[MR]]x16(
// CHECK: return
func.func private @product(%x: memref<128x64xf32>, %y: memref<64x96xf32>, %z: memref<128x96xf32>) attributes {nova.grid = array<i64: 128, 96>, nova.kernel, nova.work = 1572864 : i64} {
  %zero = arith.constant 0.0 : f32
  linalg.generic {indexing_maps = [#scalar, #id], iterator_types = ["parallel", "parallel"]} ins(%zero : f32) outs(%z : memref<128x96xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : memref<128x64xf32>, memref<64x96xf32>) outs(%z : memref<128x96xf32>) {
  ^bb0(%p: f32, %q: f32, %out: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %out, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// main says which tiles: all of them.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: memref<8x4xi8>
// CHECK: call @rows(%{{.*}}, %{{.*}}, %c0, %c2)
// CHECK: call @sums(%{{.*}}, %{{.*}}, %c0, %c1)
func.func @main(%x: memref<512x256xf32>, %y: memref<512xf32>, %z: memref<256xf32>, %b: memref<8x4xi1>, %c: memref<8x4xi1>, %p: memref<128x64xf32>, %q: memref<64x96xf32>, %r: memref<128x96xf32>, %s: memref<8x4xf32>, %t: memref<8x4xf32>, %ws: memref<0xi8>) attributes {nova.outputs = 0 : i64, nova.workspace = 0 : i64} {
  call @rows(%x, %y) : (memref<512x256xf32>, memref<512xf32>) -> ()
  call @columns(%x, %z) : (memref<512x256xf32>, memref<256xf32>) -> ()
  call @bools(%b, %b, %c) : (memref<8x4xi1>, memref<8x4xi1>, memref<8x4xi1>) -> ()
  call @product(%p, %q, %r) : (memref<128x64xf32>, memref<64x96xf32>, memref<128x96xf32>) -> ()
  call @sums(%s, %t) : (memref<8x4xf32>, memref<8x4xf32>) -> ()
  return
}

// CHECK-LABEL: func.func private @nova_pack_squares_
// CHECK-SAME: {llvm.noalias}
// CHECK-SAME: nova.shared
// CHECK-LABEL: func.func private @nova_multiply_
// CHECK: iter_args({{.*}}) -> (vector<8xf32>
