// RUN: %nova-opt %s --split-input-file --bufferize-kernels | %filecheck %s

// Inputs, then results: kernels return nothing, and main allocates.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK-SAME: %[[X:.*]]: memref<4x8xf32>, %[[Y:.*]]: memref<4x8xf32>) attributes {
// CHECK-SAME: nova.ins = 1 : i64
// CHECK-SAME: nova.outs = 1 : i64
// CHECK: linalg.generic {{.*}} ins(%[[X]] : memref<4x8xf32>) outs(%[[Y]] : memref<4x8xf32>)
// CHECK: return{{$}}
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[A:.*]]: memref<4x8xf32>) -> memref<4x8xf32>
// CHECK-NEXT: %[[R:.*]] = memref.alloc() : memref<4x8xf32>
// CHECK-NEXT: call @kernel_0(%[[A]], %[[R]])
// CHECK-NEXT: return %[[R]]
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func private @kernel_0(%x: tensor<4x8xf32>) -> tensor<4x8xf32> attributes {nova.grid = array<i64: 4, 8>, nova.kernel, nova.work = 32 : i64} {
  %0 = tensor.empty() : tensor<4x8xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x8xf32>) outs(%0 : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %2 = math.exp %in : f32
    linalg.yield %2 : f32
  } -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = call @kernel_0(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

// What stays inside of a kernel is scratch: an argument behind the results.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK-SAME: %{{.*}}: memref<4x8xf32>, %[[OUT:.*]]: memref<4x8xf32>, %[[SCRATCH:.*]]: memref<4xf32>) attributes {
// CHECK-SAME: nova.ins = 1 : i64
// CHECK-SAME: nova.outs = 1 : i64
// CHECK: outs(%[[SCRATCH]] : memref<4xf32>)
// CHECK: outs(%[[OUT]] : memref<4x8xf32>)
// CHECK-NOT: memref.alloc
// CHECK-LABEL: func.func @main(
// CHECK: %[[R:.*]] = memref.alloc() : memref<4x8xf32>
// CHECK: %[[S:.*]] = memref.alloc() : memref<4xf32>
// CHECK: call @kernel_0(%{{.*}}, %[[R]], %[[S]])
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func private @kernel_0(%x: tensor<4x8xf32>) -> tensor<4x8xf32> attributes {nova.grid = array<i64: 4>, nova.kernel, nova.work = 64 : i64} {
  %zero = arith.constant 0.0 : f32
  %0 = tensor.empty() : tensor<4xf32>
  %1 = linalg.fill ins(%zero : f32) outs(%0 : tensor<4xf32>) -> tensor<4xf32>
  %2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x8xf32>) outs(%1 : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %5 = arith.addf %out, %in : f32
    linalg.yield %5 : f32
  } -> tensor<4xf32>
  %3 = tensor.empty() : tensor<4x8xf32>
  %4 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %2 : tensor<4x8xf32>, tensor<4xf32>) outs(%3 : tensor<4x8xf32>) {
  ^bb0(%in: f32, %sum: f32, %out: f32):
    %5 = arith.divf %in, %sum : f32
    linalg.yield %5 : f32
  } -> tensor<4x8xf32>
  return %4 : tensor<4x8xf32>
}
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = call @kernel_0(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

// A reshape between kernels moves nothing; a constant is a global.
// CHECK: memref.global "private" constant @[[C:.*]] : memref<32xf32>
// CHECK-LABEL: func.func @main(
// CHECK: memref.get_global @[[C]]
// CHECK: memref.expand_shape
// CHECK-NOT: memref.copy
// CHECK: return
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func private @kernel_0(%x: tensor<4x8xf32>) -> tensor<4x8xf32> attributes {nova.grid = array<i64: 4, 8>, nova.kernel, nova.work = 32 : i64} {
  %0 = tensor.empty() : tensor<4x8xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x8xf32>) outs(%0 : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %2 = math.exp %in : f32
    linalg.yield %2 : f32
  } -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}
func.func @main() -> tensor<4x8xf32> {
  %c = arith.constant dense<[1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 5.0]> : tensor<32xf32>
  %x = tensor.expand_shape %c [[0, 1]] output_shape [4, 8] : tensor<32xf32> into tensor<4x8xf32>
  %0 = call @kernel_0(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

// Scratch of one type takes turns: the third intermediate is in the place of the first, which
// nobody reads any more. A tile of rows needs its own rows of it alone: main knows nothing of it.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK-SAME: %[[X:.*]]: memref<8x8xf32>, %[[OUT:.*]]: memref<8x8xf32>) attributes {
// CHECK: %[[S0:.*]] = memref.alloca() {nova.tile_local} : memref<8x8xf32>
// CHECK-NEXT: %[[S1:.*]] = memref.alloca() {nova.tile_local} : memref<8x8xf32>
// CHECK: ins(%[[X]], %[[X]] : memref<8x8xf32>, memref<8x8xf32>) outs(%[[S0]] : memref<8x8xf32>)
// CHECK: ins(%[[S0]], %[[X]] : memref<8x8xf32>, memref<8x8xf32>) outs(%[[S1]] : memref<8x8xf32>)
// CHECK: ins(%[[S1]], %[[X]] : memref<8x8xf32>, memref<8x8xf32>) outs(%[[S0]] : memref<8x8xf32>)
// CHECK: ins(%[[S0]], %[[X]] : memref<8x8xf32>, memref<8x8xf32>) outs(%[[OUT]] : memref<8x8xf32>)
// CHECK-LABEL: func.func @main(
// CHECK-COUNT-1: memref.alloc()
// CHECK-NOT: memref.alloc()
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func private @kernel_0(%x: tensor<8x8xf32>) -> tensor<8x8xf32> attributes {nova.grid = array<i64: 8>, nova.kernel, nova.work = 4096 : i64} {
  %e0 = tensor.empty() : tensor<8x8xf32>
  %0 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %x : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e0 : tensor<8x8xf32>) {
  ^bb0(%p: f32, %q: f32, %out: f32):
    %9 = arith.maximumf %p, %q : f32
    linalg.yield %9 : f32
  } -> tensor<8x8xf32>
  %e1 = tensor.empty() : tensor<8x8xf32>
  %1 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%0, %x : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e1 : tensor<8x8xf32>) {
  ^bb0(%p: f32, %q: f32, %out: f32):
    %9 = arith.maximumf %p, %q : f32
    linalg.yield %9 : f32
  } -> tensor<8x8xf32>
  %e2 = tensor.empty() : tensor<8x8xf32>
  %2 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%1, %x : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e2 : tensor<8x8xf32>) {
  ^bb0(%p: f32, %q: f32, %out: f32):
    %9 = arith.maximumf %p, %q : f32
    linalg.yield %9 : f32
  } -> tensor<8x8xf32>
  %e3 = tensor.empty() : tensor<8x8xf32>
  %3 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%2, %x : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e3 : tensor<8x8xf32>) {
  ^bb0(%p: f32, %q: f32, %out: f32):
    %9 = arith.maximumf %p, %q : f32
    linalg.yield %9 : f32
  } -> tensor<8x8xf32>
  return %3 : tensor<8x8xf32>
}
func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = call @kernel_0(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// -----

// What other points read is in the workspace: columns here.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK-SAME: %[[X:.*]]: memref<8x8xf32>, %[[OUT:.*]]: memref<8x8xf32>, %[[S:.*]]: memref<8x8xf32>) attributes {
// CHECK-NOT: memref.alloca
// CHECK-LABEL: func.func @main(
#id = affine_map<(d0, d1) -> (d0, d1)>
#tr = affine_map<(d0, d1) -> (d1, d0)>
func.func private @kernel_0(%x: tensor<8x8xf32>) -> tensor<8x8xf32> attributes {nova.grid = array<i64>, nova.kernel, nova.work = 128 : i64} {
  %e0 = tensor.empty() : tensor<8x8xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x8xf32>) outs(%e0 : tensor<8x8xf32>) {
  ^bb0(%p: f32, %out: f32):
    %9 = math.exp %p : f32
    linalg.yield %9 : f32
  } -> tensor<8x8xf32>
  %e1 = tensor.empty() : tensor<8x8xf32>
  %1 = linalg.generic {indexing_maps = [#tr, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%0, %x : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e1 : tensor<8x8xf32>) {
  ^bb0(%p: f32, %q: f32, %out: f32):
    %9 = arith.addf %p, %q : f32
    linalg.yield %9 : f32
  } -> tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = call @kernel_0(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
