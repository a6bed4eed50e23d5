// RUN: %nova-opt %s --lower-device-kernels='target=cuda:sm_80' --canonicalize --cse | %filecheck %s

#id = affine_map<(d0) -> (d0)>
#wide = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
#row = affine_map<(d0, d1) -> (d0)>
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>

// CHECK: module attributes {gpu.container_module}

// A kernel is one launch, whose shape is constant and noted. Threads move 16 bytes at a time, at
// places that follow each other; 4096 elements are 1024 threads of four.
// CHECK-LABEL: func.func private @elementwise(
// CHECK-SAME: %[[X:.*]]: memref<4096xf32>, %[[Y:.*]]: memref<4096xf32>)
// CHECK-SAME: nova.launch = array<i64: 4, 256, 0>
// CHECK: gpu.launch blocks(%[[BLOCK:[^ ,]*]], {{.*}}) in ({{.*}} = %c4, {{.*}} = %c1, {{.*}} = %c1) threads(%[[THREAD:[^ ,]*]], {{.*}}) in ({{.*}} = %c256,
// CHECK: %[[FIRST:.*]] = arith.muli %[[BLOCK]], %c256
// CHECK: %[[NUMBER:.*]] = arith.addi %[[FIRST]], %[[THREAD]]
// CHECK: %[[AT:.*]] = arith.muli %[[NUMBER]], %c4
// CHECK: vector.load %[[X]][%[[AT]]] {alignment = 16 : i64} : memref<4096xf32>, vector<4xf32>
// CHECK-COUNT-4: math.exp
// CHECK: vector.store %{{.*}}, %[[Y]][%[[AT]]] {alignment = 16 : i64} : memref<4096xf32>, vector<4xf32>
// CHECK: gpu.terminator
// CHECK-NOT: gpu.launch
// CHECK: return
func.func private @elementwise(%x: memref<4096xf32>, %y: memref<4096xf32>) attributes {nova.grid = array<i64: 4096>, nova.ins = 1 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 4096 : i64} {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : memref<4096xf32>) outs(%y : memref<4096xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  }
  return
}

// Threads behind the last point do nothing: 45 points are those of two warps.
// CHECK-LABEL: func.func private @odd(
// CHECK-SAME: nova.launch = array<i64: 1, 64, 0>
// CHECK: %[[INSIDE:.*]] = arith.cmpi ult, %{{.*}}, %c45
// CHECK: scf.if %[[INSIDE]]
// CHECK: memref.load
// CHECK: memref.store
func.func private @odd(%x: memref<45xf32>, %y: memref<45xf32>) attributes {nova.grid = array<i64: 45>, nova.ins = 1 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 45 : i64} {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : memref<45xf32>) outs(%y : memref<45xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.mulf %in, %in : f32
    linalg.yield %0 : f32
  }
  return
}

// Bools are bytes in memory.
// CHECK-LABEL: func.func private @bools(
// CHECK-SAME: memref<64xf32>, %{{.*}}: memref<64xi8>)
// CHECK: arith.extui %{{.*}} : i1 to i8
func.func private @bools(%x: memref<64xf32>, %y: memref<64xi1>) attributes {nova.grid = array<i64: 64>, nova.ins = 1 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 64 : i64} {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : memref<64xf32>) outs(%y : memref<64xi1>) {
  ^bb0(%in: f32, %out: i1):
    %zero = arith.constant 0.0 : f32
    %0 = arith.cmpf ogt, %in, %zero : f32
    linalg.yield %0 : i1
  }
  return
}

// Threads share a row, of which each has its elements in registers, and exchange their sums by
// shuffles. Nothing is stored but the result.
// CHECK-LABEL: func.func private @rows(
// CHECK: gpu.launch
// CHECK: vector.load
// CHECK: arith.addf
// CHECK: gpu.shuffle
// CHECK: memref.store %{{.*}}, %{{.*}}[%{{.*}}] : memref<100xf32>
// CHECK-NOT: memref.store
// CHECK: gpu.terminator
func.func private @rows(%x: memref<100x1024xf32>, %y: memref<100xf32>) attributes {nova.grid = array<i64: 100>, nova.ins = 1 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 102400 : i64} {
  %zero = arith.constant 0.0 : f32
  linalg.generic {indexing_maps = [affine_map<(d0) -> ()>, #id], iterator_types = ["parallel"]} ins(%zero : f32) outs(%y : memref<100xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#wide, #row], iterator_types = ["parallel", "reduction"]} ins(%x : memref<100x1024xf32>) outs(%y : memref<100xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %out, %in : f32
    linalg.yield %0 : f32
  }
  return
}

// What the second op reads, other threads of the block have written: a barrier stands between.
// Nobody reads it behind the kernel, so it is in the memory that the block shares.
// CHECK-LABEL: func.func private @waits(
// CHECK: gpu.launch
// CHECK: math.exp
// CHECK: memref.store %{{.*}}, %[[TEMPORARY:[^ ]*]][%{{.*}}] : memref<90xf32, #gpu.address_space<workgroup>>
// CHECK: gpu.barrier
// CHECK: memref.load %[[TEMPORARY]]
// CHECK: math.log
func.func private @waits(%x: memref<9x10xf32>, %y: memref<10x9xf32>, %t: memref<9x10xf32>) attributes {nova.grid = array<i64>, nova.ins = 1 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 180 : i64} {
  linalg.generic {indexing_maps = [#wide, #wide], iterator_types = ["parallel", "parallel"]} ins(%x : memref<9x10xf32>) outs(%t : memref<9x10xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#turned, #wide], iterator_types = ["parallel", "parallel"]} ins(%t : memref<9x10xf32>) outs(%y : memref<10x9xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.log %in : f32
    linalg.yield %0 : f32
  }
  return
}

// A product of halves is one of tensor cores, whose tiles come through shared memory.
// CHECK-LABEL: func.func private @product(
// CHECK-SAME: nova.launch = array<i64: {{[0-9]+, [0-9]+, [1-9][0-9]+}}>
// CHECK: gpu.dynamic_shared_memory
// CHECK: nvvm.cp.async.shared.global
// CHECK: nvvm.ldmatrix
// CHECK: nvvm.mma.sync
func.func private @product(%x: memref<128x128xbf16>, %w: memref<128x128xbf16>, %y: memref<128x128xf32>) attributes {nova.grid = array<i64: 128, 128>, nova.ins = 2 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 2097152 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : memref<128x128xbf16>, memref<128x128xbf16>) outs(%y : memref<128x128xf32>) {
  ^bb0(%p: bf16, %q: bf16, %r: f32):
    %2 = arith.extf %p : bf16 to f32
    %3 = arith.extf %q : bf16 to f32
    %0 = arith.mulf %2, %3 : f32
    %1 = arith.addf %r, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// A grid without points is not launched.
// CHECK-LABEL: func.func private @nothing(
// CHECK-SAME: nova.launch = array<i64: 0,
// CHECK-NOT: gpu.launch
func.func private @nothing(%x: memref<0xf32>, %y: memref<0xf32>) attributes {nova.grid = array<i64: 0>, nova.ins = 1 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 0 : i64} {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : memref<0xf32>) outs(%y : memref<0xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  return
}

// CHECK-LABEL: func.func @main(
func.func @main(%s: memref<0xi8>) attributes {nova.outputs = 0 : i64, nova.workspace = 0 : i64} {
  return
}
