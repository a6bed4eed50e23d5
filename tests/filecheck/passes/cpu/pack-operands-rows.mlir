// RUN: %nova-opt %s --pack-operands='target=x86_64-v4' | %filecheck %s

#a = affine_map<(d0, d1, d2, d3) -> (d1, d3)>
#b = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
#c = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>

// CHECK-DAG: #[[ROWS:map[0-9]*]] = affine_map<(d0, d1, d2, d3) -> (d1, d3, d0, d2)>

// The weight of a convolution is the left operand of a matmul for each image.
// CHECK-LABEL: func.func private @images(
// CHECK-SAME: memref<2359296xf32>,
// CHECK-SAME: nova.packed = [array<i64: 0, 32, 18>]
func.func private @images(%w: memref<512x4608xf32>, %x: memref<16x4608x49xf32>, %y: memref<16x512x49xf32>) attributes {nova.grid = array<i64: 16, 512, 49>, nova.ins = 2 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 3699376128 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%w, %x : memref<512x4608xf32>, memref<16x4608x49xf32>) outs(%y : memref<16x512x49xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %r, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// It is packed for each image where there are few of them.
// CHECK-LABEL: func.func private @few_images(
// CHECK-NOT: nova.packed
func.func private @few_images(%w: memref<512x4608xf32>, %x: memref<2x4608x49xf32>, %y: memref<2x512x49xf32>) attributes {nova.grid = array<i64: 2, 512, 49>, nova.ins = 2 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 462422016 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%w, %x : memref<512x4608xf32>, memref<2x4608x49xf32>) outs(%y : memref<2x512x49xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %r, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// CHECK-LABEL: func.func private @pack_0(
// CHECK-SAME: %[[A:arg[0-9]+]]: memref<512x4608xf32>, %[[P:arg[0-9]+]]: memref<18x16x256x32xf32>
// CHECK-SAME: nova.grid = array<i64: 18, 16>
// CHECK: %[[VIEW:.*]] = memref.reinterpret_cast %[[A]] to {{.*}} sizes: [16, 32, 18, 256]
// CHECK: indexing_maps = [#[[ROWS]], {{.*}} ins(%[[VIEW]]
// CHECK-SAME: outs(%[[P]]

// CHECK-LABEL: func.func @main(
// CHECK: call @pack_0(%arg0,
// CHECK: call @images(
// CHECK: call @few_images(%arg0,
func.func @main(%w: memref<512x4608xf32>, %x: memref<16x4608x49xf32>, %z: memref<2x4608x49xf32>, %y: memref<16x512x49xf32>, %v: memref<2x512x49xf32>, %s: memref<128xi8>) attributes {nova.inputs = 3 : i64, nova.outputs = 2 : i64, nova.workspace = 128 : i64} {
  call @images(%w, %x, %y) : (memref<512x4608xf32>, memref<16x4608x49xf32>, memref<16x512x49xf32>) -> ()
  call @few_images(%w, %z, %v) : (memref<512x4608xf32>, memref<2x4608x49xf32>, memref<2x512x49xf32>) -> ()
  return
}
