// RUN: %nova-opt %s --pack-constants='target=x86_64-v3' | %filecheck %s
// RUN: %nova-opt %s --pack-constants='target=x86_64-v3' --lower-kernels='target=x86_64-v3' | %filecheck %s --check-prefix=LOOPS

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>

// The values in panels, the last one filled up with zeros; those of before stay for the text alone.
// CHECK-DAG: memref.global "private" constant @weights_packed0 : memref<[[SIZE:[0-9]+]]xf32> = dense<2.000000e+00>
// CHECK-DAG: memref.global "private" constant @weights : memref<64x48xf32> = dense<2.000000e+00> {nova.unpacked}
memref.global "private" constant @weights : memref<64x48xf32> = dense<2.000000e+00>
// What is read in another way as well stays.
// CHECK-DAG: memref.global "private" constant @both : memref<64x48xf32> = dense<3.000000e+00>{{$}}
memref.global "private" constant @both : memref<64x48xf32> = dense<3.000000e+00>

// CHECK-LABEL: func.func private @product(
// CHECK-SAME: %[[W:arg[0-9]+]]: memref<[[SIZE]]xf32>,
// CHECK-SAME: nova.packed = [array<i64: 1, {{[0-9]+}}, 1>]
// CHECK: memref.reinterpret_cast %[[W]]
// LOOPS-LABEL: func.func private @product(
// LOOPS-NOT: call @nova_pack{{.*}}%arg1
// LOOPS-NOT: call @nova_multiply_copying
// LOOPS: call @nova_multiply_f32
func.func private @product(%x: memref<1320x64xf32>, %w: memref<64x48xf32>, %y: memref<1320x48xf32>) attributes {nova.grid = array<i64: 1320, 48>, nova.kernel, nova.work = 8110080 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : memref<1320x64xf32>, memref<64x48xf32>) outs(%y : memref<1320x48xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %r, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// A kernel that is also called with what is no constant stays as it is.
// CHECK-LABEL: func.func private @either(
// CHECK-SAME: memref<64x48xf32>,
// CHECK-NOT: nova.packed
// LOOPS-LABEL: func.func private @either(
// LOOPS: call @nova_multiply_copying_f32
func.func private @either(%x: memref<1320x64xf32>, %w: memref<64x48xf32>, %y: memref<1320x48xf32>) attributes {nova.grid = array<i64: 1320, 48>, nova.kernel, nova.work = 8110080 : i64} {
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : memref<1320x64xf32>, memref<64x48xf32>) outs(%y : memref<1320x48xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %r, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// CHECK-LABEL: func.func @main(
// CHECK: %[[PACKED:[0-9]+]] = memref.get_global @weights_packed0
// CHECK: call @product(%{{.*}}, %[[PACKED]], %{{.*}})
func.func @main(%x: memref<1320x64xf32>, %v: memref<64x48xf32>, %y: memref<1320x48xf32>, %s: memref<0xi8>) attributes {nova.inputs = 2 : i64, nova.outputs = 1 : i64, nova.workspace = 0 : i64} {
  %w = memref.get_global @weights : memref<64x48xf32>
  %b = memref.get_global @both : memref<64x48xf32>
  call @product(%x, %w, %y) : (memref<1320x64xf32>, memref<64x48xf32>, memref<1320x48xf32>) -> ()
  call @either(%x, %b, %y) : (memref<1320x64xf32>, memref<64x48xf32>, memref<1320x48xf32>) -> ()
  call @either(%x, %v, %y) : (memref<1320x64xf32>, memref<64x48xf32>, memref<1320x48xf32>) -> ()
  return
}
