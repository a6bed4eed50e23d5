// RUN: %nova-opt %s --lower-kernels='target=x86_64-v3' --canonicalize --cse | %filecheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#col = affine_map<(d0, d1) -> (d1)>
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
#scalar = affine_map<(d0, d1) -> ()>
#flat = affine_map<(d0) -> (d0)>

// A kernel gains the range of tiles to compute. Rows are summed by several vectors, which are added
// at the end in an order that the shape decides; products may be contracted, nothing is reordered.
// CHECK-LABEL: func.func private @rows(
// CHECK-SAME: %[[X:.*]]: memref<512x256xf32>, %[[Y:.*]]: memref<512xf32>, %[[BEGIN:.*]]: index, %[[END:.*]]: index)
// CHECK-SAME: nova.core = "vector"
// CHECK-SAME: nova.tiles = 2 : i64
// CHECK: scf.for %[[TILE:.*]] = %[[BEGIN]] to %[[END]]
// CHECK: %[[LOW:.*]] = arith.muli %[[TILE]], %c256
// CHECK: %[[HIGH:.*]] = arith.addi %[[LOW]], %c256
// CHECK: scf.for %[[R:.*]] = %[[LOW]] to %[[HIGH]]
// CHECK: %[[SUM:.*]]:4 = scf.for {{.*}} step %c32 iter_args(%[[ACC:[^ ]*]] = %{{.*}}) -> (vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>) {
// CHECK: vector.load
// CHECK: arith.addf %[[ACC]], %{{.*}} fastmath<contract> : vector<8xf32>
// CHECK: arith.addf %[[SUM]]#0, %[[SUM]]#1
// CHECK: arith.addf %[[SUM]]#2, %[[SUM]]#3
// CHECK: vector.shuffle %{{.*}} [0, 1, 2, 3]
// CHECK: vector.shuffle %{{.*}} [4, 5, 6, 7]
// CHECK: %[[LANES:.*]] = vector.extract
// CHECK: %[[OLD:.*]] = memref.load %[[Y]][%[[R]]]
// CHECK: %[[ALL:.*]] = arith.addf %[[OLD]], %[[LANES]]
// CHECK: memref.store %[[ALL]], %[[Y]][%[[R]]]
func.func private @rows(%x: memref<512x256xf32>, %y: memref<512xf32>) attributes {nova.grid = array<i64: 512>, nova.kernel, nova.work = 131072 : i64} {
  linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : memref<512x256xf32>) outs(%y : memref<512xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %out, %in : f32
    linalg.yield %0 : f32
  }
  return
}

// Columns are summed in registers, several vectors of them together: blocks of 64 rows on their
// own, each from zero, and the sums of the blocks are added to what is there.
// CHECK-LABEL: func.func private @columns(
// CHECK: %[[LOW:.*]] = arith.muli
// CHECK: %[[HIGH:.*]] = arith.addi %[[LOW]]
// CHECK: scf.for %[[C:.*]] = %[[LOW]] to %[[HIGH]] step %c32
// CHECK: %[[OLD:.*]] = vector.load %{{.*}}[%[[C]]] : memref<256xf32>, vector<8xf32>
// CHECK: %[[SUM:.*]]:4 = scf.for %[[ROW:.*]] = %c0 to %c512 step %c64 iter_args(%[[ACC:[^ ]*]] = %[[OLD]],
// CHECK: %[[LAST:.*]] = arith.addi %[[ROW]], %c64 : index
// CHECK: %[[BLOCK:.*]]:4 = scf.for %{{.*}} = %[[ROW]] to %[[LAST]] step %c1 iter_args(%{{[^ ]*}} = %[[ZERO:[^ ,]*]], %{{[^ ]*}} = %[[ZERO]],
// CHECK: arith.addf %[[ACC]], %[[BLOCK]]#0 fastmath<contract> : vector<8xf32>
// CHECK: vector.store %[[SUM]]#0, %{{.*}}[%[[C]]] : memref<256xf32>, vector<8xf32>
func.func private @columns(%x: memref<512x256xf32>, %y: memref<256xf32>) attributes {nova.grid = array<i64: 256>, nova.kernel, nova.work = 131072 : i64} {
  linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]} ins(%x : memref<512x256xf32>) outs(%y : memref<256xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %out, %in : f32
    linalg.yield %0 : f32
  }
  return
}

// Outside of reductions nothing may be reordered, and dimensions that memory walks are one loop,
// here of one turn with four vectors.
// CHECK-LABEL: func.func private @sums(
// CHECK: scf.for
// CHECK-NOT: scf.for
// CHECK-COUNT-4: arith.addf %{{.*}}, %{{.*}} : vector<8xf32>
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
// CHECK: %[[BYTE:.*]] = vector.load %{{.*}} : memref<32xi8>, vector<32xi8>
// CHECK: arith.trunci %[[BYTE]] : vector<32xi8> to vector<32xi1>
// CHECK: %[[BIT:.*]] = arith.andi %{{.*}} : vector<32xi1>
// CHECK: %[[WIDE:.*]] = arith.extui %[[BIT]] : vector<32xi1> to vector<32xi8>
// CHECK: vector.store %[[WIDE]]
func.func private @bools(%x: memref<8x4xi1>, %y: memref<8x4xi1>, %z: memref<8x4xi1>) attributes {nova.grid = array<i64: 8, 4>, nova.kernel, nova.work = 32 : i64} {
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %y : memref<8x4xi1>, memref<8x4xi1>) outs(%z : memref<8x4xi1>) {
  ^bb0(%a: i1, %b: i1, %out: i1):
    %0 = arith.andi %a, %b : i1
    linalg.yield %0 : i1
  }
  return
}

// What is left of the last vector is done under a mask.
// CHECK-LABEL: func.func private @odd(
// CHECK: vector.load %{{.*}} : memref<11xf32>, vector<8xf32>
// CHECK: %[[MASK:.*]] = vector.constant_mask [3] : vector<8xi1>
// CHECK: vector.maskedload %{{.*}}, %[[MASK]]
// CHECK: vector.maskedstore %{{.*}}, %[[MASK]]
func.func private @odd(%x: memref<11xf32>, %y: memref<11xf32>) attributes {nova.grid = array<i64: 11>, nova.kernel, nova.work = 11 : i64} {
  linalg.generic {indexing_maps = [#flat, #flat], iterator_types = ["parallel"]} ins(%x : memref<11xf32>) outs(%y : memref<11xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  }
  return
}

// Elements of 16 bits have no masks here, and are left to a scalar loop.
// CHECK-LABEL: func.func private @odd_halves(
// CHECK: vector.load %{{.*}} : memref<11xf16>, vector<8xf16>
// CHECK: scf.for %{{.*}} = %c8 to %c11 step %c1
// CHECK: memref.load
func.func private @odd_halves(%x: memref<11xf16>, %y: memref<11xf16>) attributes {nova.grid = array<i64: 11>, nova.kernel, nova.work = 11 : i64} {
  linalg.generic {indexing_maps = [#flat, #flat], iterator_types = ["parallel"]} ins(%x : memref<11xf16>) outs(%y : memref<11xf16>) {
  ^bb0(%in: f16, %out: f16):
    %0 = arith.extf %in : f16 to f32
    %1 = arith.addf %0, %0 : f32
    %2 = arith.truncf %1 : f32 to f16
    linalg.yield %2 : f16
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
// CHECK: call @nova_multiply_copying_f32_[[MR]]x16(
// CHECK: return
func.func private @product(%x: memref<356x64xf32>, %y: memref<64x96xf32>, %z: memref<356x96xf32>) attributes {nova.grid = array<i64: 356, 96>, nova.kernel, nova.work = 4374528 : i64} {
  %zero = arith.constant 0.0 : f32
  linalg.generic {indexing_maps = [#scalar, #id], iterator_types = ["parallel", "parallel"]} ins(%zero : f32) outs(%z : memref<356x96xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : memref<356x64xf32>, memref<64x96xf32>) outs(%z : memref<356x96xf32>) {
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
func.func @main(%x: memref<512x256xf32>, %y: memref<512xf32>, %z: memref<256xf32>, %b: memref<8x4xi1>, %c: memref<8x4xi1>, %p: memref<356x64xf32>, %q: memref<64x96xf32>, %r: memref<356x96xf32>, %s: memref<8x4xf32>, %t: memref<8x4xf32>, %o: memref<11xf32>, %h: memref<11xf16>, %ws: memref<0xi8>) attributes {nova.outputs = 0 : i64, nova.workspace = 0 : i64} {
  call @rows(%x, %y) : (memref<512x256xf32>, memref<512xf32>) -> ()
  call @columns(%x, %z) : (memref<512x256xf32>, memref<256xf32>) -> ()
  call @bools(%b, %b, %c) : (memref<8x4xi1>, memref<8x4xi1>, memref<8x4xi1>) -> ()
  call @product(%p, %q, %r) : (memref<356x64xf32>, memref<64x96xf32>, memref<356x96xf32>) -> ()
  call @sums(%s, %t) : (memref<8x4xf32>, memref<8x4xf32>) -> ()
  call @odd(%o, %o) : (memref<11xf32>, memref<11xf32>) -> ()
  call @odd_halves(%h, %h) : (memref<11xf16>, memref<11xf16>) -> ()
  return
}

// CHECK-LABEL: func.func private @nova_multiply_copying_
// CHECK-SAME: {llvm.noalias}
// CHECK-SAME: nova.shared
// CHECK: call @nova_pack_lanes_f32_f32_16(
// CHECK: iter_args({{.*}}) -> (vector<8xf32>
// CHECK: memref.prefetch
// CHECK: vector.store
