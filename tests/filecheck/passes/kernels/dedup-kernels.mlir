// RUN: %nova-opt %s --dedup-kernels | %filecheck %s

// Kernels that differ in nothing but their names are one.
// CHECK: func.func private @a(
// CHECK-NOT: func.func private @b(
// CHECK: func.func private @c(
// CHECK-LABEL: func.func @main(
// CHECK-NEXT: call @a(
// CHECK-NEXT: call @a(
// CHECK-NEXT: call @c(
#id = affine_map<(d0) -> (d0)>
func.func private @a(%x: memref<10xf32>, %y: memref<10xf32>) attributes {nova.grid = array<i64: 10>, nova.kernel, nova.work = 10 : i64} {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : memref<10xf32>) outs(%y : memref<10xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  }
  return
}
func.func private @b(%x: memref<10xf32>, %y: memref<10xf32>) attributes {nova.grid = array<i64: 10>, nova.kernel, nova.work = 10 : i64} {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : memref<10xf32>) outs(%y : memref<10xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  }
  return
}
func.func private @c(%x: memref<10xf32>, %y: memref<10xf32>) attributes {nova.grid = array<i64: 10>, nova.kernel, nova.work = 10 : i64} {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : memref<10xf32>) outs(%y : memref<10xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.log %in : f32
    linalg.yield %0 : f32
  }
  return
}
func.func @main(%x: memref<10xf32>, %y: memref<10xf32>) {
  call @a(%x, %y) : (memref<10xf32>, memref<10xf32>) -> ()
  call @b(%y, %x) : (memref<10xf32>, memref<10xf32>) -> ()
  call @c(%x, %y) : (memref<10xf32>, memref<10xf32>) -> ()
  return
}
