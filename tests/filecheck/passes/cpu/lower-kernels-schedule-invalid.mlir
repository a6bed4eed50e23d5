// RUN: not %nova-opt %s --split-input-file --lower-kernels='target=x86_64-v3' 2>&1 | %filecheck %s

// CHECK: error: nova.schedule of @product: a register tile of mr=7 rows by nv=2 vectors takes 18 registers, and x86_64-v3 has 16
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func private @product(%x: memref<64x784xf32>, %w: memref<784x512xf32>, %y: memref<64x512xf32>) attributes {nova.grid = array<i64: 64, 512>, nova.kernel, nova.schedule = {mr = 7, nv = 2}, nova.work = 51380224 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : memref<64x784xf32>, memref<784x512xf32>) outs(%y : memref<64x512xf32>) {
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

// -----

// CHECK: error: a schedule has no 'nr'
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func private @product(%x: memref<64x784xf32>, %w: memref<784x512xf32>, %y: memref<64x512xf32>) attributes {nova.grid = array<i64: 64, 512>, nova.kernel, nova.schedule = {mr = 6, nr = 2}, nova.work = 51380224 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : memref<64x784xf32>, memref<784x512xf32>) outs(%y : memref<64x512xf32>) {
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

// -----

// CHECK: error: mr of a schedule is 0, not a number above 0
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func private @product(%x: memref<64x784xf32>, %w: memref<784x512xf32>, %y: memref<64x512xf32>) attributes {nova.grid = array<i64: 64, 512>, nova.kernel, nova.schedule = {mr = 0}, nova.work = 51380224 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : memref<64x784xf32>, memref<784x512xf32>) outs(%y : memref<64x512xf32>) {
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

// -----

// CHECK: error: nova.schedule of @product: packed panels of mc={{[0-9]+}} rows and kc=784 are more than a task may hold
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func private @product(%x: memref<64x784xf32>, %w: memref<784x512xf32>, %y: memref<64x512xf32>) attributes {nova.grid = array<i64: 64, 512>, nova.kernel, nova.schedule = {kc = 784, mc = 4096}, nova.work = 51380224 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : memref<64x784xf32>, memref<784x512xf32>) outs(%y : memref<64x512xf32>) {
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

// -----

// CHECK: error: nova.schedule of @product: tile=64 does not fit the grid 64x512
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func private @product(%x: memref<64x784xf32>, %w: memref<784x512xf32>, %y: memref<64x512xf32>) attributes {nova.grid = array<i64: 64, 512>, nova.kernel, nova.schedule = {tile = array<i64: 64>}, nova.work = 51380224 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : memref<64x784xf32>, memref<784x512xf32>) outs(%y : memref<64x512xf32>) {
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

// -----

// CHECK: error: nova.schedule of @product: tile=65x8 does not fit the grid 64x512
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func private @product(%x: memref<64x784xf32>, %w: memref<784x512xf32>, %y: memref<64x512xf32>) attributes {nova.grid = array<i64: 64, 512>, nova.kernel, nova.schedule = {tile = array<i64: 65, 8>}, nova.work = 51380224 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : memref<64x784xf32>, memref<784x512xf32>) outs(%y : memref<64x512xf32>) {
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

// -----

// CHECK: error: nova.schedule of @product is 3 : i64, not a dictionary
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func private @product(%x: memref<64x784xf32>, %w: memref<784x512xf32>, %y: memref<64x512xf32>) attributes {nova.grid = array<i64: 64, 512>, nova.kernel, nova.schedule = 3 : i64, nova.work = 51380224 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : memref<64x784xf32>, memref<784x512xf32>) outs(%y : memref<64x512xf32>) {
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

// -----

// CHECK: error: task_ns of a schedule is "long", not a number above 0
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func private @product(%x: memref<64x784xf32>, %w: memref<784x512xf32>, %y: memref<64x512xf32>) attributes {nova.grid = array<i64: 64, 512>, nova.kernel, nova.schedule = {task_ns = "long"}, nova.work = 51380224 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : memref<64x784xf32>, memref<784x512xf32>) outs(%y : memref<64x512xf32>) {
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

// -----

// CHECK: error: nova.schedule of @copy: the kernel has no matmul
#id = affine_map<(d0) -> (d0)>
func.func private @copy(%x: memref<1000xf32>, %y: memref<1000xf32>) attributes {nova.grid = array<i64: 1000>, nova.kernel, nova.schedule = {mr = 4}, nova.work = 1000 : i64} {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : memref<1000xf32>) outs(%y : memref<1000xf32>) {
  ^bb0(%p: f32, %q: f32):
    linalg.yield %p : f32
  }
  return
}
func.func @main(%s: memref<0xi8>) {
  return
}
