// RUN: %nova-opt %s --pack-operands='target=x86_64-v3' | %filecheck %s
// RUN: %nova-opt %s --pack-operands='target=x86_64-v3' --lower-kernels='target=x86_64-v3' | %filecheck %s --check-prefix=LOOPS
// RUN: %nova-opt %s --pack-operands='target=x86_64-v3 cores=16' | %filecheck %s --check-prefix=CORES

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>

// CHECK-DAG: #[[FIRST:map[0-9]*]] = affine_map<(d0, d1, d2) -> (d1, d0, d2)>
// CHECK-DAG: #[[SECOND:map[0-9]*]] = affine_map<(d0, d1, d2) -> (d1 + 341, d0, d2)>

// CHECK-LABEL: func.func private @large(
// CHECK-SAME: memref<1048576xf32>,
// CHECK-SAME: nova.packed = [array<i64: 1, [[NR:[0-9]+]], 3>]
// On many cores, the tile of each core packs its operands.
// CORES-LABEL: func.func private @large(
// CORES-SAME: nova.schedule = {tiles = 16 : i64}
// CORES-NOT: @pack_0
// LOOPS-LABEL: func.func private @large(
// LOOPS-NOT: call @nova_multiply_copying
// LOOPS: call @nova_multiply_far_f32
func.func private @large(%x: memref<1024x1024xf32>, %w: memref<1024x1024xf32>, %y: memref<1024x1024xf32>) attributes {nova.grid = array<i64: 1024, 1024>, nova.ins = 2 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 2147483648 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : memref<1024x1024xf32>, memref<1024x1024xf32>) outs(%y : memref<1024x1024xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %r, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// Packing does not pay for few rows.
// CHECK-LABEL: func.func private @few_rows(
// CHECK-NOT: nova.packed
func.func private @few_rows(%x: memref<384x1024xf32>, %w: memref<1024x2048xf32>, %y: memref<384x2048xf32>) attributes {nova.grid = array<i64: 384, 2048>, nova.ins = 2 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 1610612736 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : memref<384x1024xf32>, memref<1024x2048xf32>) outs(%y : memref<384x2048xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %r, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// A kernel for each block of k: panels of all columns, in tiles of whole rows of B.
// CHECK-LABEL: func.func private @pack_0(
// CHECK-SAME: %[[B:arg[0-9]+]]: memref<1024x1024xf32>, %[[P0:arg[0-9]+]]: memref<[[COUNT:[0-9]+]]x341x[[NR]]xf32>
// CHECK-SAME: nova.grid = array<i64: [[COUNT]], 341>
// CHECK-SAME: nova.schedule = {tile = array<i64: [[COUNT]], 22>}
// CHECK: %[[ROWS:.*]] = memref.reinterpret_cast %[[B]]
// CHECK: indexing_maps = [#[[FIRST]], {{.*}} ins(%[[ROWS]]
// CHECK-SAME: outs(%[[P0]]
// CHECK-LABEL: func.func private @pack_1(
// CHECK: indexing_maps = [#[[SECOND]], {{.*}} ins(

// The panels are after the planned bytes of the workspace.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[S:arg[0-9]+]]: memref<4194432xi8>
// CHECK-SAME: nova.workspace = 4194432
// CHECK: %[[AT:.*]] = arith.constant 128 : index
// CHECK: call @pack_0(
// CHECK: call @pack_1(
// CHECK: call @pack_2(
// CHECK: %[[PACKED:.*]] = memref.view %[[S]][%{{.*}}][] : memref<{{[0-9]+}}xi8> to memref<1048576xf32>
// CHECK: call @large(%{{.*}}, %[[PACKED]], %{{.*}})
func.func @main(%x: memref<1024x1024xf32>, %w: memref<1024x1024xf32>, %u: memref<384x1024xf32>, %v: memref<1024x2048xf32>, %y: memref<1024x1024xf32>, %z: memref<384x2048xf32>, %s: memref<100xi8>) attributes {nova.inputs = 4 : i64, nova.outputs = 2 : i64, nova.workspace = 100 : i64} {
  call @large(%x, %w, %y) : (memref<1024x1024xf32>, memref<1024x1024xf32>, memref<1024x1024xf32>) -> ()
  call @few_rows(%u, %v, %z) : (memref<384x1024xf32>, memref<1024x2048xf32>, memref<384x2048xf32>) -> ()
  return
}
