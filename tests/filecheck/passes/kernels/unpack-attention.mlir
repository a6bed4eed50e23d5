// RUN: %nova-opt %s --unpack-attention | %filecheck %s

// The gradients of q, k and v are parts of one buffer: it is the destination three times, each with
// the map of its gradient.
// CHECK-DAG: #[[Q:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d2, 0, d1, d4)>
// CHECK-DAG: #[[K:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, 1, d1, d4)>
// CHECK-DAG: #[[V:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, 2, d1, d5)>
// CHECK: linalg.generic {{.*}}, #[[Q]], #[[K]], #[[V]]]
// CHECK-SAME: outs(%[[X:.*]], %[[X]], %[[X]] : memref<4x32x3x2x16xf32>, memref<4x32x3x2x16xf32>, memref<4x32x3x2x16xf32>)
// CHECK: %[[GRADIENT:.*]] = {{.*}}nova.attend_gradient_point
// CHECK-NOT: packed
// CHECK: linalg.yield %[[GRADIENT]], %[[GRADIENT]], %[[GRADIENT]] : f32, f32, f32
#q = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d2, 0, d1, d4)>
#k = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, 1, d1, d4)>
#v = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, 2, d1, d5)>
#row = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2)>
#out = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d2, d1, d5)>
  func.func private @kernel_0(%arg0: memref<4x32x2x16xf32>, %arg1: memref<4x32x3x2x16xf32>, %arg2: memref<4x2x32xf32>, %arg3: memref<4x2x32xf32>, %arg4: memref<4x32x3x2x16xf32>) attributes {nova.grid = array<i64>, nova.ins = 4 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 1441792 : i64} {
    linalg.generic {indexing_maps = [#out, #q, #k, #v, #row, #row, #q], iterator_types = ["parallel", "parallel", "reduction", "reduction", "reduction", "reduction"]} ins(%arg0, %arg1, %arg1, %arg1, %arg2, %arg3 : memref<4x32x2x16xf32>, memref<4x32x3x2x16xf32>, memref<4x32x3x2x16xf32>, memref<4x32x3x2x16xf32>, memref<4x2x32xf32>, memref<4x2x32xf32>) outs(%arg4 : memref<4x32x3x2x16xf32>) attrs =  {nova.work = 1441792 : i64} {
    ^bb0(%in: f32, %in_0: f32, %in_1: f32, %in_2: f32, %in_3: f32, %in_4: f32, %out: f32):
      %0 = "nova.attend_gradient_point"(%in, %in_0, %in_1, %in_2, %in_3, %in_4) {causal = true, packed = [#q, #k, #v], results = ["q", "k", "v"], scale = 2.500000e-01 : f64} : (f32, f32, f32, f32, f32, f32) -> f32
      linalg.yield %0 : f32
    }
    return
  }
